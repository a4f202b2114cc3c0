"""A target that is a framework's own call of a tool, made once with the arguments that people approved."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from hashlib import sha256
from typing import Any, TypeVar

from agent_run_ledger.effects.answers import MAX_ANSWER_BYTES
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent, Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.states import TargetClass
from agent_run_ledger.ports.targets import Sending
from agent_run_ledger.runs.effect_calls import LEFT

Act = Callable[[dict[str, Any]], Any]
ActAsync = Callable[[dict[str, Any]], Awaitable[Any]]
T = TypeVar("T")


class NotDone(Exception):
    """A tool answered, and its answer does not say that it did it: an observation, from which nothing follows."""

    def __init__(self, answer: object) -> None:
        super().__init__("the tool did not say that it did it")
        self.answer = answer


class CalledTool:
    """A plain target (class N): what `act` returns is an observation that the tool did it. See ports.targets.Target.

    What it returns is kept as JSON where it has such a form, and is not larger than a kept answer may be.
    """

    target_class = TargetClass.N

    def __init__(self, tool: str, act: Act, *, audience: str = "", only: bytes | None = None) -> None:
        """`only`: the arguments, as bytes of a Call, that `act` can make the call with; None for any."""
        self.tool = tool
        self._only = only
        self.audience = audience or f"tool:{tool}"
        self._act = act

    def check(self, request: Request | Call) -> None:
        """Misuse("other_request") for what is no call of this tool, ("other_arguments") for what it cannot take."""
        if not isinstance(request, Call) or request.name != self.tool:
            raise Misuse(f"{self.audience} is not what this request asks", code="other_request")
        if self._only is not None and request.body != self._only:  # as bytes: True is 1 to Python
            raise Misuse(
                f"other arguments than its own were approved, and {self.audience} can be called with no others here",
                code="other_arguments",
            )

    def send(self, sending: Sending) -> Report:
        """See ports.targets.Target.send."""
        request = sending.request
        self.check(request)
        if not sending.in_time():
            return NotSent(reason="permit_expired")
        try:
            returned = self._act(request.arguments if isinstance(request, Call) else {})
        except NotDone as said:
            return _answered(Found.UNKNOWN, said.answer)
        except Exception as error:
            return Lost(reason="raised", raised=type(error).__name__)
        if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            return Lost(reason="unfinished")  # it has done nothing yet, or not all
        return _answered(Found.EXECUTED, returned)


def _answered(found: Found, value: object) -> Answered:
    try:
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        body = b""
    kept = body if len(body) <= MAX_ANSWER_BYTES else b""
    return Answered(found=found, status=None, body_sha256=sha256(body).digest(), body=kept)


async def beside_loop(work: Callable[[Act], T], act: ActAsync) -> T:
    """Return what `work` returns in a thread of its own, where what it is given makes the async call on this loop.

    Cancelled, it cancels that call and waits until the thread has put on record what is known then.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    begun: list[asyncio.Task[Any] | None] = []  # changed on the loop alone
    over, left = False, threading.Event()

    async def begin(arguments: dict[str, Any]) -> Any:
        begun.append(asyncio.current_task())
        if over:
            raise asyncio.CancelledError
        return await act(arguments)

    def call(arguments: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(begin(arguments), loop).result()

    def live() -> None:
        try:
            _tell(loop, ended, work(call), None)
        except BaseException as error:  # it is raised where it is waited for
            _tell(loop, ended, None, error)

    # A thread of its own: one of the loop's few may be what the call itself waits for.
    context = copy_context()
    context.run(LEFT.set, left)
    threading.Thread(target=context.run, args=(live,), name="arl-effect", daemon=True).start()
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        over = True
        left.set()
        for task in begun:
            if task is not None:
                task.cancel()
        await asyncio.wait([ended])
        if not ended.cancelled():
            ended.exception()  # seen: the cancellation says more
        raise


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    def tell() -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(value)
        else:
            ended.set_exception(error)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return
