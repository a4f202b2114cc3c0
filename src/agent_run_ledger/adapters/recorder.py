"""Records what a framework's hooks pass on: calls of models and of tools, as calls of steps in the run around them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from copy import copy
from typing import Any

from agent_run_ledger.adapters.effects import EffectsByTool, GivenEffects, state_of
from agent_run_ledger.adapters.finite import finite, is_finite
from agent_run_ledger.adapters.gate import Answer, CallWaits, Gate, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.rules import RulesByTool, ToolRules
from agent_run_ledger.adapters.tool_target import Act, ActAsync, beside_loop
from agent_run_ledger.codecs import NotFinite, value_digest
from agent_run_ledger.errors import ApprovalPending, EffectPending, Pending, Refused, Unstorable, Vetoed
from agent_run_ledger.runs.current import CURRENT, Caller
from agent_run_ledger.runs.effect_calls import DECIDED, ask_for, perform
from agent_run_ledger.runs.own_thread import in_own_thread
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

    A tool of `effects` is an action of the ledger: a call of it waits for people's approval by ApprovalPending, for
    evidence by EffectInDoubt, and what they refuse is Vetoed with the code of their decision. While it waits, what was
    said of the gate's Pending holds. Nothing is made in an attempt where one of them names a policy that the trust file
    has not: Refused("no_policy").

    `outcome`: for a framework whose tools return envelopes, see `Tool`. `run`: the run to record in where a hook is
    called in a thread or task that the framework made outside of the `with` block's context; else the run of the
    context is used. `called`: what gates and words call a tool, from the name of its step, where that is another one.
    Thread-safe.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, ToolRules | Mapping[str, Any]] | None = None,
        effects: GivenEffects | None = None,
        gate: Gate = allow_all,
        outcome: Callable[[Any], object] | None = None,
        run: Run | None = None,
        called: Callable[[str], str] = str,
    ) -> None:
        self.rules = RulesByTool(tools)
        self.effects = EffectsByTool(effects)
        self._gate = gate
        self._outcome = outcome
        self._called = called
        self._place: Caller | None = CURRENT.get() if run is None else run.root
        self._steps: dict[tuple[str, str, str, bool], Step[..., Any]] = {}
        self._waiting: dict[Which, Pending] = {}
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

    def tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        make: Make,
        *,
        call_id: str = "",
        make_with: Act | None = None,
    ) -> Any:
        """Return the result of a tool: from the record, or what `make` returns, recorded. Raises what it raised.

        An unsafe tool of which nobody can say whether it happened is not called: a result says so (see `Tool`).
        `make_with`: makes the call of a tool that is an effect with the arguments that were approved, which may be
        others than the agent's; without it such a call is made by `make`, of the agent's own arguments alone, and
        EffectPending("other_arguments") where people edited them.
        """
        self.effects.check(CURRENT.get() or self._place)
        step = self._tool(name, keyed=bool(call_id), asynchronous=False)
        if not self.is_effect(name):
            allowed = self._allowed(make, self._veto(name, arguments, call_id))
            return self._within(lambda: step(allowed, call_id, **finite(arguments)))
        act: Act = make_with or (lambda _: make())
        with self._settled(name, arguments, call_id) as asked_before:
            veto = self._veto(name, arguments, call_id)
            if asked_before and not veto:
                self._wait_on(name, arguments)
            allowed = self._allowed(lambda: self._carried_out(name, arguments, act, fixed=make_with is None), veto)
            return self._within(lambda: step(allowed, call_id, **finite(arguments)))

    async def atool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        make: MakeAsync,
        *,
        call_id: str = "",
        make_with: ActAsync | None = None,
    ) -> Any:
        """Do what `tool` does, on the running event loop."""
        self.effects.check(CURRENT.get() or self._place)
        step = self._tool(name, keyed=bool(call_id), asynchronous=True)
        if not self.is_effect(name):
            allowed = self._allowed_async(make, self._veto(name, arguments, call_id))
            return await self._within(lambda: step(allowed, call_id, **finite(arguments)))
        act: ActAsync = make_with or (lambda _: make())
        fixed = make_with is None

        async def carry_out() -> Any:
            return await beside_loop(lambda call: self._carried_out(name, arguments, call, fixed=fixed), act)

        with self._settled(name, arguments, call_id) as asked_before:
            veto = self._veto(name, arguments, call_id)
            if asked_before and not veto:
                await in_own_thread(lambda: self._wait_on(name, arguments))
            allowed = self._allowed_async(carry_out, veto)
            return await self._within(lambda: step(allowed, call_id, **finite(arguments)))

    @property
    def gated(self) -> bool:
        """Whether a gate was given: without one every call is allowed."""
        return self._gate is not allow_all

    def is_effect(self, name: str) -> bool:
        """Return whether a call of this tool is an action of the ledger."""
        return self._called(name) in self.effects

    def guards_as(self, other: Recorder) -> bool:
        """Return whether this recorder and the other one have the same gate, the same rules and the same effects."""
        return self._gate == other._gate and self.rules == other.rules and self.effects == other.effects

    def ask(self, name: str, arguments: Mapping[str, Any], *, call_id: str = "") -> Answer:
        """Return what is said of a call now: for a framework that pauses before it calls a tool.

        By the rules, else by the gate: nobody is to approve what may never be made. An effect that nobody has asked for
        is asked for, and is pending until people have approved it.
        """
        self.effects.check(CURRENT.get() or self._place)
        forbidden = self._forbidden(name, arguments)
        if forbidden:
            return Answer(permission=Permission.DENIED, reason=forbidden)
        answer = self._gate_says(name, arguments, call_id)
        if answer.permission is Permission.ALLOWED and self.is_effect(name):
            waits = self._asked_for(name, arguments)
            if waits is not None:
                state = state_of(waits)
                reason = waits.hint if state == "pending" else str(waits)
                return Answer(permission=Permission.PENDING, approval_id=waits.action_id, reason=reason, state=state)
        return answer

    async def aask(self, name: str, arguments: Mapping[str, Any], *, call_id: str = "") -> Answer:
        """Do what `ask` does, beside the running event loop where the ledger is asked."""
        if not self.is_effect(name):
            return self.ask(name, arguments, call_id=call_id)
        return await in_own_thread(lambda: self.ask(name, arguments, call_id=call_id))

    def waits_elsewhere(
        self, name: str, arguments: Mapping[str, Any], call_id: str, answer: Answer | EffectPending
    ) -> None:
        """Note that the framework itself waits for this call's approval: models may be asked meanwhile.

        Until the call is made, or a model is told what came of it (`told_of`), the run cannot be completed: Pending
        is raised where it is left.
        """
        if isinstance(answer, EffectPending):
            waits = CallWaits(answer.message, approval_id=answer.action_id, hint=answer.hint)
        else:
            waits = self._waits_for(name, answer)
        waits.elsewhere = True
        self._waits()[_which(name, arguments, call_id)] = waits

    def _carried_out(self, name: str, arguments: Mapping[str, Any], act: Act, *, fixed: bool) -> Any:
        """Carry out an effect, in the body of its step."""
        called = self._called(name)
        return self.effects.told(called, perform(self.effects.call(called, arguments, act, fixed=fixed)))

    def _asked_for(self, name: str, arguments: Mapping[str, Any]) -> EffectPending | None:
        """Ask for an effect that nobody has asked for, and return what it waits for; what is wrong, the call says."""
        if getattr(self._session(), "over", False):
            return None
        try:
            waits: EffectPending | None = self._within(
                lambda: ask_for(self.effects.call(self._called(name), arguments, _nothing))
            )
        except EffectPending as error:
            return error
        except Refused as error:
            if isinstance(error, Vetoed) or error.code in DECIDED:
                return None
            raise
        return waits

    def _wait_on(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise what a call still waits for that said so in this attempt: once on record is enough."""
        waits = self._asked_for(name, arguments)
        if waits is not None:
            raise waits

    @contextmanager
    def _settled(self, name: str, arguments: Mapping[str, Any], call_id: str) -> Generator[bool]:
        """Note that a call of an effect waits, or waits no more; what people refused is a veto.

        Gives whether it was told in this attempt that it waits for approval, and is to be told at once.
        """
        waits, which = self._waits(), _which(name, arguments, call_id)
        asked_before = isinstance(waits.get(which), ApprovalPending)
        try:
            yield asked_before and not self.effects.waits(self._called(name))
        except EffectPending as error:
            waits[which] = error
            raise
        except Refused as error:
            if error.code not in DECIDED:
                raise
            raise Vetoed(error.message, code=error.code, hint=error.hint) from error

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
        if answer.state == "pending":
            which = f" {answer.approval_id!r}" if answer.approval_id else ""
            said = f"the call of {self._called(name)!r} waits for approval{which}"
        else:
            which = f" (action {answer.approval_id})" if answer.approval_id else ""
            said = f"the call of {self._called(name)!r} waits{which}, and not for approval"
        return CallWaits(said, approval_id=answer.approval_id, hint=answer.reason)

    def _check_waiting(self, request: Mapping[str, Any], told_of: ToldOf | None) -> None:
        self.effects.check(CURRENT.get() or self._place)
        waits = self._waits()
        for which, one in [*waits.items()]:
            if not (isinstance(one, CallWaits) and one.elsewhere):
                raise _again(one)
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

    def _waits(self) -> dict[Which, Pending]:
        """The calls that wait in this attempt, whichever recorder asked."""
        waits: dict[Which, Pending] = getattr(self._session(), "waiting", self._waiting)
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
        rules, effect = self.rules.of(name), self.is_effect(name)
        tool: Tool[..., Any] = Tool(
            body,
            name=name,
            safe=rules.safe or effect,  # asked again, it finds what is on record of the action
            poll=rules.poll,
            volatile=rules.volatile,
            outcome=self._outcome,
            ignore=["make", "call_id"],
            key="{call_id}" if keyed else None,
            interchangeable=not keyed,
        )
        tool.beside, tool.kept_elsewhere = keyed, effect
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


def _again(waits: Pending) -> Pending:
    """Return an error that says the same, to be raised once more."""
    if isinstance(waits, CallWaits):
        return CallWaits(waits.message, approval_id=waits.approval_id, hint=waits.hint)
    return copy(waits)


def _nothing(arguments: dict[str, Any]) -> Any:
    raise AssertionError("what is only asked for is not carried out")


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
