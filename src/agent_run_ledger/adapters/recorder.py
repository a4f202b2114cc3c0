"""Records what a framework's hooks pass on: calls of models and of tools, as calls of steps in the run around them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from typing import Any

from agent_run_ledger.adapters.gate import Gate, ToolRequest, Verdict, allow_all
from agent_run_ledger.adapters.rules import RulesByTool, ToolRules
from agent_run_ledger.errors import Pending, Vetoed
from agent_run_ledger.runs.current import CURRENT, Caller
from agent_run_ledger.runs.run import Run
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.runs.tools import Tool

Make = Callable[[], Any]
MakeAsync = Callable[[], Awaitable[Any]]


class Recorder:
    """Makes calls of steps out of what a framework does.

    Guarantees: `make` is called only when nothing is on record of the call; what it returned is given again at every
    restart. A model call goes by its `request`, which must be a projection of meaning made of plain values (role,
    text, tool name, arguments, call id), never a dump of the framework's objects; a tool call by its call id, or where
    there is none by its arguments and its place among equal calls. A tool is called only when its rules and the gate
    allow it: Vetoed and Pending are raised before anything is started otherwise, the veto on record.

    `run`: the run to record in where a hook is called in a thread or task that the framework made outside of the
    `with` block's context; else the run of the context is used. Thread-safe.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, ToolRules | Mapping[str, Any]] | None = None,
        gate: Gate = allow_all,
        run: Run | None = None,
    ) -> None:
        self.rules = RulesByTool(tools)
        self._gate = gate
        self._run = run
        self._place: Caller | None = CURRENT.get()
        self._steps: dict[tuple[str, str, bool, bool], Step[..., Any]] = {}
        self._lock = threading.Lock()

    def model(self, name: str, request: Mapping[str, Any], make: Make) -> Any:
        """Return the answer of a model: from the record, or what `make` returns (plain values), recorded."""
        return self._within(lambda: self._model(name, asynchronous=False)(make, **request))

    async def amodel(self, name: str, request: Mapping[str, Any], make: MakeAsync) -> Any:
        """Do what `model` does, on the running event loop."""
        step = self._model(name, asynchronous=True)
        return await self._within(lambda: step(make, **request))

    def tool(self, name: str, arguments: Mapping[str, Any], make: Make, *, call_id: str = "") -> Any:
        """Return the result of a tool: from the record, or what `make` returns, recorded. Raises what it raised.

        An unsafe tool of which nobody can say whether it happened is not called: a result says so (see `Tool`).
        """
        step = self._tool(name, keyed=bool(call_id), asynchronous=False)
        self._ask(name, arguments, call_id)
        return self._within(lambda: step(self._allowed(name, make), call_id, **arguments))

    async def atool(self, name: str, arguments: Mapping[str, Any], make: MakeAsync, *, call_id: str = "") -> Any:
        """Do what `tool` does, on the running event loop."""
        step = self._tool(name, keyed=bool(call_id), asynchronous=True)
        self._ask(name, arguments, call_id)
        allowed = self._allowed_async(name, make)
        return await self._within(lambda: step(allowed, call_id, **arguments))

    def _ask(self, name: str, arguments: Mapping[str, Any], call_id: str) -> None:
        request = ToolRequest(run_id=self._run_id(), tool=name, arguments=arguments, call_id=call_id)
        answer = self._gate(request)
        if answer.verdict is Verdict.PENDING:
            raise Pending(f"the call of {name!r} waits for approval {answer.approval_id!r}", hint=answer.reason)
        if answer.verdict is Verdict.DENIED:
            raise Vetoed(f"the call of {name!r} was refused: {answer.reason or 'it may not be made'}")

    def _allowed(self, name: str, make: Make) -> Make:
        deny = self.rules.of(name).deny

        def refused() -> Any:
            raise Vetoed(f"tool {name!r} may not be called: {deny}")

        return refused if deny else make

    def _allowed_async(self, name: str, make: MakeAsync) -> MakeAsync:
        deny = self.rules.of(name).deny

        async def refused() -> Any:
            raise Vetoed(f"tool {name!r} may not be called: {deny}")

        return refused if deny else make

    def _run_id(self) -> str:
        place = CURRENT.get() or self._place
        session = getattr(place, "session", None)
        return self._run.id if self._run is not None else str(getattr(session, "run_id", ""))

    def _within(self, act: Callable[[], Any]) -> Any:
        """Act where steps can be called: in the run of this context, or in the one that this recorder was made in."""
        if CURRENT.get() is not None or self._place is None:
            return act()
        token: Token[Caller | None] = CURRENT.set(self._place)
        try:
            return act()
        finally:
            CURRENT.reset(token)

    def _model(self, name: str, *, asynchronous: bool) -> Step[..., Any]:
        body: Any = _ask_async if asynchronous else _ask
        return self._step(
            ("model", name, asynchronous, False), lambda: Step(body, name=name, ignore=["make"], interchangeable=True)
        )

    def _tool(self, name: str, *, keyed: bool, asynchronous: bool) -> Step[..., Any]:
        rules = self.rules.of(name)
        body: Any = _call_async if asynchronous else _call
        return self._step(
            ("tool", name, asynchronous, keyed),
            lambda: Tool(
                body,
                name=name,
                safe=rules.safe,
                poll=rules.poll,
                volatile=rules.volatile,
                ignore=["make", "call_id"],
                key="{call_id}" if keyed else None,
                interchangeable=not keyed,
            ),
        )

    def _step(self, key: tuple[str, str, bool, bool], build: Callable[[], Step[..., Any]]) -> Step[..., Any]:
        with self._lock:
            if key not in self._steps:
                self._steps[key] = build()
            return self._steps[key]


# One function each, whatever recorder it is used by: a run knows a step of one name by its function.


def _ask(make: Make, /, **request: Any) -> Any:
    return make()


async def _ask_async(make: MakeAsync, /, **request: Any) -> Any:
    return await make()


def _call(make: Make, call_id: str, /, **arguments: Any) -> Any:
    return make()


async def _call_async(make: MakeAsync, call_id: str, /, **arguments: Any) -> Any:
    return await make()
