"""Records what a framework's hooks pass on: calls of models and of tools, as calls of steps in the run around them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import Token
from typing import Any

from agent_run_ledger.adapters.finite import finite, is_finite
from agent_run_ledger.adapters.gate import Answer, CallWaits, Gate, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.rules import RulesByTool, ToolRules
from agent_run_ledger.codecs import NotFinite, value_digest
from agent_run_ledger.errors import Unstorable, Vetoed
from agent_run_ledger.runs.current import CURRENT, Caller
from agent_run_ledger.runs.run import Run
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.runs.tools import Tool

Make = Callable[[], Any]
MakeAsync = Callable[[], Awaitable[Any]]
MakeChunks = Callable[[], Iterator[Any]]
MakeChunksAsync = Callable[[], AsyncIterator[Any]]
WentOnFrom = Callable[[Mapping[str, Any], Any], bool]
ToldOf = Callable[[Mapping[str, Any], str], bool]
Which = tuple[str, str, object]


class Recorder:
    """Makes calls of steps out of what a framework does.

    Guarantees: `make` is called only when nothing is on record of the call; what it returned is given again at every
    restart. A model call goes by its `request`, which must be a projection of meaning made of plain values (role,
    text, tool name, arguments, call id), never a dump of the framework's objects; a tool call by its call id, or where
    there is none by its arguments and its place among equal calls; one id with other arguments is another call. A tool
    is called only when its rules and the gate, who is not asked where the rules say no, allow it: Pending is raised
    before anything is started, Vetoed as the recorded error of the call, which stands. So is NaN or an infinity among
    the arguments, as far as `is_finite` looks: NaN is not above any limit that a gate has. While a call of a tool waits
    for its approval no model is asked in the attempt, by any recorder, and the run cannot be completed, whatever the
    framework made of Pending: Pending is raised again, at last where the run is left.

    `outcome`: for a framework whose tools return envelopes, see `Tool`. `run`: the run to record in where a hook is
    called in a thread or task that the framework made outside of the `with` block's context; else the run of the
    context is used. `called`: what gates and words call a tool, from the name of its step, where that is another one.
    Thread-safe.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, ToolRules | Mapping[str, Any]] | None = None,
        gate: Gate = allow_all,
        outcome: Callable[[Any], object] | None = None,
        run: Run | None = None,
        called: Callable[[str], str] = str,
    ) -> None:
        self.rules = RulesByTool(tools)
        self._gate = gate
        self._outcome = outcome
        self._called = called
        self._place: Caller | None = CURRENT.get() if run is None else run.root
        self._steps: dict[tuple[str, str, str, bool], Step[..., Any]] = {}
        self._waiting: dict[Which, CallWaits] = {}
        self._lock = threading.Lock()

    def model(
        self,
        name: str,
        request: Mapping[str, Any],
        make: Make,
        *,
        went_on_from: WentOnFrom | None = None,
        told_of: ToldOf | None = None,
    ) -> Any:
        """Return the answer of a model: from the record, or what `make` returns (plain values), recorded.

        `went_on_from`: for frameworks with checkpoints of their own, which go on without asking for earlier answers
        again: whether a recorded answer (of this name) stands in a request. One that does is no divergence.
        `told_of`: whether a request holds what came of a call, by its id: the framework waits no more for such a one.
        """
        self._check_waiting(request, told_of)
        return self._within(lambda: self._model(name, _ask, went_on_from)(make, **request))

    async def amodel(
        self,
        name: str,
        request: Mapping[str, Any],
        make: MakeAsync,
        *,
        went_on_from: WentOnFrom | None = None,
        told_of: ToldOf | None = None,
    ) -> Any:
        """Do what `model` does, on the running event loop."""
        self._check_waiting(request, told_of)
        step = self._model(name, _ask_async, went_on_from)
        return await self._within(lambda: step(make, **request))

    def stream(
        self,
        name: str,
        request: Mapping[str, Any],
        make: MakeChunks,
        *,
        went_on_from: WentOnFrom | None = None,
        told_of: ToldOf | None = None,
    ) -> Iterator[Any]:
        """Yield the chunks of a model's answer (plain values) as they come, recorded when the last one is taken.

        Restored, all come at once. A stream that is left before its end is no record. In one run a name is either
        one of streams or one of whole answers, which are a stream of one chunk.
        """
        self._check_waiting(request, told_of)
        step = self._model(name, _ask_chunks, went_on_from)
        chunks: Iterator[Any] = self._within(lambda: step(make, **request))
        return chunks

    def astream(
        self,
        name: str,
        request: Mapping[str, Any],
        make: MakeChunksAsync,
        *,
        went_on_from: WentOnFrom | None = None,
        told_of: ToldOf | None = None,
    ) -> AsyncIterator[Any]:
        """Do what `stream` does, on the running event loop."""
        self._check_waiting(request, told_of)
        step = self._model(name, _ask_chunks_async, went_on_from)
        chunks: AsyncIterator[Any] = self._within(lambda: step(make, **request))
        return chunks

    def tool(self, name: str, arguments: Mapping[str, Any], make: Make, *, call_id: str = "") -> Any:
        """Return the result of a tool: from the record, or what `make` returns, recorded. Raises what it raised.

        An unsafe tool of which nobody can say whether it happened is not called: a result says so (see `Tool`).
        """
        step = self._tool(name, keyed=bool(call_id), asynchronous=False)
        allowed = self._allowed(make, self._veto(name, arguments, call_id))
        return self._within(lambda: step(allowed, call_id, **finite(arguments)))

    async def atool(self, name: str, arguments: Mapping[str, Any], make: MakeAsync, *, call_id: str = "") -> Any:
        """Do what `tool` does, on the running event loop."""
        step = self._tool(name, keyed=bool(call_id), asynchronous=True)
        allowed = self._allowed_async(make, self._veto(name, arguments, call_id))
        return await self._within(lambda: step(allowed, call_id, **finite(arguments)))

    @property
    def gated(self) -> bool:
        """Whether a gate was given: without one every call is allowed."""
        return self._gate is not allow_all

    def guards_as(self, other: Recorder) -> bool:
        """Return whether this recorder and the other one have the same gate and the same rules."""
        return self._gate == other._gate and self.rules == other.rules

    def ask(self, name: str, arguments: Mapping[str, Any], *, call_id: str = "") -> Answer:
        """Return what is said of a call now: for a framework that pauses before it calls a tool.

        By the rules, else by the gate: nobody is to approve what may never be made.
        """
        forbidden = self._forbidden(name, arguments)
        if forbidden:
            return Answer(permission=Permission.DENIED, reason=forbidden)
        return self._gate_says(name, arguments, call_id)

    def waits_elsewhere(self, name: str, arguments: Mapping[str, Any], call_id: str, answer: Answer) -> None:
        """Note that the framework itself waits for this call's approval: models may be asked meanwhile.

        Until the call is made, or a model is told what came of it (`told_of`), the run cannot be completed: Pending
        is raised where it is left.
        """
        waits = self._waits_for(name, answer)
        waits.elsewhere = True
        self._waits()[_which(name, arguments, call_id)] = waits

    def _forbidden(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return why a call may never be made, whoever is asked; empty where it may."""
        deny = self.rules.of(name).deny
        if deny:
            return f"tool {self._called(name)!r} may not be called: {deny}"
        if not is_finite(arguments):
            return f"the call of {self._called(name)!r} was refused: a number of its arguments is NaN or infinite"
        return ""

    def _veto(self, name: str, arguments: Mapping[str, Any], call_id: str) -> str:
        """Return why a call may not be made, empty where it may. CallWaits where nobody has decided."""
        veto, waits = self._forbidden(name, arguments), self._waits()
        if not veto:
            answer = self._gate_says(name, arguments, call_id)
            if answer.permission is Permission.PENDING:
                waiting = waits[_which(name, arguments, call_id)] = self._waits_for(name, answer)
                raise waiting
            if answer.permission is Permission.DENIED:
                veto = f"the call of {self._called(name)!r} was refused: {answer.reason or 'it may not be made'}"
        if waits:
            waits.pop(_which(name, arguments, call_id), None)
        return veto

    def _gate_says(self, name: str, arguments: Mapping[str, Any], call_id: str) -> Answer:
        tool = self._called(name)
        return self._gate(ToolRequest(run_id=self._run_id(), tool=tool, arguments=arguments, call_id=call_id))

    def _waits_for(self, name: str, answer: Answer) -> CallWaits:
        which = f" {answer.approval_id!r}" if answer.approval_id else ""
        said = f"the call of {self._called(name)!r} waits for approval{which}"
        return CallWaits(said, approval_id=answer.approval_id, hint=answer.reason)

    def _check_waiting(self, request: Mapping[str, Any], told_of: ToldOf | None) -> None:
        waits = self._waits()
        for which, one in [*waits.items()]:
            if not one.elsewhere:
                raise CallWaits(one.message, approval_id=one.approval_id, hint=one.hint)
            if told_of is not None and which[1] and told_of(request, which[1]):
                waits.pop(which, None)  # the framework went on without it

    def _allowed(self, make: Make, veto: str) -> Make:
        def refused() -> Any:
            raise Vetoed(veto)

        return refused if veto else make

    def _allowed_async(self, make: MakeAsync, veto: str) -> MakeAsync:
        async def refused() -> Any:
            raise Vetoed(veto)

        return refused if veto else make

    def _run_id(self) -> str:
        return str(getattr(self._session(), "run_id", ""))

    def _waits(self) -> dict[Which, CallWaits]:
        """The calls that wait in this attempt, whichever recorder asked."""
        waits: dict[Which, CallWaits] = getattr(self._session(), "waiting", self._waiting)
        return waits

    def _session(self) -> Any:
        """The attempt that is recorded in here; outside of a run the recorder itself."""
        return getattr(CURRENT.get() or self._place, "session", self)

    def _within(self, act: Callable[[], Any]) -> Any:
        """Act where steps can be called: in the run of this context, or in the one that this recorder was made in."""
        if CURRENT.get() is not None or self._place is None:
            return act()
        token: Token[Caller | None] = CURRENT.set(self._place)
        try:
            return act()
        finally:
            CURRENT.reset(token)

    def _model(self, name: str, body: Callable[..., Any], went_on_from: WentOnFrom | None) -> Step[..., Any]:
        def build() -> Step[..., Any]:
            step: Step[..., Any] = Step(body, name=name, ignore=["make"], interchangeable=True)
            step.went_on_from = went_on_from
            return step

        return self._step(("model", name, body.__name__, False), build)

    def _tool(self, name: str, *, keyed: bool, asynchronous: bool) -> Step[..., Any]:
        body: Any = _call_async if asynchronous else _call
        return self._step(("tool", name, body.__name__, keyed), lambda: self._build_tool(name, body, keyed=keyed))

    def _build_tool(self, name: str, body: Callable[..., Any], *, keyed: bool) -> Step[..., Any]:
        rules = self.rules.of(name)
        tool: Tool[..., Any] = Tool(
            body,
            name=name,
            safe=rules.safe,
            poll=rules.poll,
            volatile=rules.volatile,
            outcome=self._outcome,
            ignore=["make", "call_id"],
            key="{call_id}" if keyed else None,
            interchangeable=not keyed,
        )
        tool.beside = keyed
        return tool

    def _step(self, key: tuple[str, str, str, bool], build: Callable[[], Step[..., Any]]) -> Step[..., Any]:
        with self._lock:
            if key not in self._steps:
                self._steps[key] = build()
            return self._steps[key]


def _which(name: str, arguments: Mapping[str, Any], call_id: str) -> Which:
    """Return what a call that waits is known by in one attempt: an id that comes twice stands for two calls.

    The order of arguments is no part of it. Arguments that cannot be stored are like no others: no such call is made.
    """
    try:
        return name, call_id, value_digest(finite(arguments))
    except (NotFinite, Unstorable):
        return name, call_id, object()


# One function each, whatever recorder it is used by: a run knows a step of one name by its function.


def _ask(make: Make, /, **request: Any) -> Any:
    return make()


async def _ask_async(make: MakeAsync, /, **request: Any) -> Any:
    return await make()


def _ask_chunks(make: MakeChunks, /, **request: Any) -> Iterator[Any]:
    yield from make()


async def _ask_chunks_async(make: MakeChunksAsync, /, **request: Any) -> AsyncIterator[Any]:
    async for chunk in make():
        yield chunk


def _call(make: Make, call_id: str, /, **arguments: Any) -> Any:
    return make()


async def _call_async(make: MakeAsync, call_id: str, /, **arguments: Any) -> Any:
    return await make()
