"""A target that is an ordinary function, called once with the arguments that people approved."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.states import TargetClass
from agent_run_ledger.ports.targets import Sending


@dataclass(frozen=True, slots=True)
class Opaque:
    """A plain target (class N): nobody knows what the function does, and it is called at most once for each dispatch.

    A return is an observation that it did it; what it returns is kept as canonical JSON, and as no body where it has
    no such form. An exception says nothing about what it did before. KeyboardInterrupt and its kin pass through.
    """

    function: Callable[..., Any] | None = field(default=None, repr=False)
    name: str = ""

    @property
    def audience(self) -> str:
        """See ports.targets.Target.audience."""
        return f"function:{self.name}"

    @property
    def target_class(self) -> TargetClass:
        """See ports.targets.Target.target_class."""
        return TargetClass.N

    def calling(self, name: str, function: Callable[..., Any]) -> Opaque:
        """Return this target for one function, under the name that people approve. Misuse for one that is async."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise Misuse(f"{name!r} is async: what it returns at once has done nothing yet", code="async_function")
        return replace(self, function=function, name=name)

    def check(self, request: Request | Call) -> None:
        """Misuse("other_request") for what is no call of this function, ("other_arguments") for what it cannot take."""
        self._call_of(request)

    def send(self, sending: Sending) -> Report:
        """See ports.targets.Target.send. Misuse as `check`."""
        function, arguments = self._call_of(sending.request)
        if not sending.in_time():
            return NotSent(reason="permit_expired")
        try:
            returned = function(**arguments)
        except Exception as error:
            return Lost(reason="raised", raised=type(error).__name__)
        if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            return Lost(reason="unfinished")
        body = _body(returned)
        return Answered(found=Found.EXECUTED, status=None, body_sha256=sha256(body).digest(), body=body)

    def _call_of(self, request: Request | Call) -> tuple[Callable[..., Any], dict[str, Any]]:
        if self.function is None or not isinstance(request, Call) or request.name != self.name:
            raise Misuse(f"{self.audience} is not what this request asks", code="other_request")
        arguments = request.arguments
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            said = f"{self.audience} does not take the arguments {', '.join(map(repr, arguments)) or 'none'} by name"
            raise Misuse(f"{said}: {error}", code="other_arguments") from error
        except ValueError:  # a function that does not say what it takes
            return self.function, arguments
        return self.function, arguments


def _body(returned: object) -> bytes:
    try:
        return canonical(returned)
    except Misuse:
        return b""
