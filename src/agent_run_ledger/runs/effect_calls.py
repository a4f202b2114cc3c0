"""One call of an effect: asks by its key what is on record, does what follows, and waits where people decide."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Final

from agent_run_ledger.errors import ApprovalPending, EffectInDoubt, EffectPending, LedgerError, Refused, Uncertain
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.kernel.effects.states import ActionState
from agent_run_ledger.kernel.effects.step_moves import Move, WantedTerms, next_move, standing_seen
from agent_run_ledger.ports.effect_steps import EffectMember, Effects, Probe, Wanted
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.effect_looks import Looks
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.going_on import check_going_on
from agent_run_ledger.runs.sending import sending

POLL_S: Final = 0.25
"""How often a call that waits looks what is on record. How often it asks a target about a doubt: `effect_looks`."""

LEFT: Final[ContextVar[threading.Event | None]] = ContextVar("agent_run_ledger_left", default=None)
"""What is set when the caller of the effects of this context goes away, None where each call has its own."""
DECIDED: Final = frozenset(
    {"rejected", "revoked", "expired", "not_executed", "written_off", "argument_drift", "other_policy"}
)
"""The codes with which a call of an effect is refused for good, and an agent may go on: people decided, or another
effect has its key, or they were asked under another policy."""

Carrying = Generator[float, None, EffectResult]
"""A call that is being carried out: see `carry_out`."""

_WORKER: Final = "run"
_MOST_MOVES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCall:
    """A call of an effect within one attempt of a run. `place`: where it is noted which action it is about.

    `left` is set where its caller went away: then nothing new is asked for or sent.
    """

    name: str
    wanted: Wanted
    effects: Effects
    place: Frame
    run_uid: bytes
    generation: int
    probe: Probe | None
    successors: int
    wait_s: float
    left: threading.Event = field(default_factory=lambda: LEFT.get() or threading.Event(), compare=False)

    @property
    def worker(self) -> str:
        """Who carries it out: this attempt of the run, and another one after a restart."""
        return f"{_WORKER}:{self.run_uid.hex()}:{self.generation}"

    def was_ours(self, worker: str) -> bool:
        """Return whether a worker was an earlier attempt of this run: it is over, for this one holds the run."""
        kind, _, rest = worker.partition(":")
        run, _, generation = rest.partition(":")
        mine = kind == _WORKER and run == self.run_uid.hex() and generation.isdecimal()
        return mine and int(generation) < self.generation


def perform(call: EffectCall) -> EffectResult:
    """Return the effect's result once it is on record that it happened. See `Effect` for what is raised."""
    going = carry_out(call)
    while True:
        wait_s, result = advance(going)
        if result is not None:
            return result
        call.left.wait(wait_s)


def advance(going: Carrying) -> tuple[float, EffectResult | None]:
    """Go on with a call until it waits or ends; return for how many seconds it waits, or the result."""
    try:
        return next(going), None
    except StopIteration as ended:
        return 0.0, ended.value


def carry_out(call: EffectCall) -> Carrying:
    """Carry a call out, giving how many seconds it waits before it goes on, and return its result.

    It asks by the key, does the next thing, and asks again: a crash anywhere leaves nothing that the next call of the
    same key does not find. What one call began and did not end is doubted, and never begun anew.
    """
    until = time.monotonic() + call.wait_s
    looks, unclear = Looks(), None
    call.place.asks = call.probe is not None
    terms = _terms(call)
    last: EffectMember | None = None
    moves = 0
    while moves < _MOST_MOVES:
        members = _members(call, unclear)
        if members:
            last = members[-1]
            call.place.effect, call.place.seen = last.action_id.hex(), standing_seen(last)
        move = _next(call, members, terms, looked=bool(members) and looks.enough(members[-1]))
        if move is Move.GIVE:
            return _given(call, members[-1])
        if move is Move.DRIFT:
            raise _drift(call)
        if move in _OTHERS:
            raise _other(call, members[-1], move, terms())
        if move in (Move.APPROVAL, Move.ELSEWHERE, Move.EVIDENCE):
            if time.monotonic() >= until:
                raise _waits(call, members[-1], move)
            yield min(POLL_S, max(0.0, until - time.monotonic()))
            _check_wanted(call)
            moves = 0
            continue
        moves += 1
        if move in _ACTS:
            _check_wanted(call)
        unclear = _done(call, members, move)
        if move is Move.LOOK:
            looks.note()
        reach("effect_step.moved")
    raise EffectPending(
        f"effect {call.name!r}: its action changed {_MOST_MOVES} times while it was carried out",
        **({} if last is None else _names(last)),
    )


_ACTS: Final = frozenset({Move.PROPOSE, Move.SUCCEED, Move.DISPATCH})
"""What is done only while the run goes on: a doubt and a look are for the record, also of a run that was stopped."""


def _check_wanted(call: EffectCall) -> None:
    """Raise where nobody waits any more: the run was stopped or left, or the call was cancelled. Nothing was sent."""
    if call.left.is_set():
        raise EffectPending(f"effect {call.name!r}: its caller went away", code="effect_left")
    check_going_on(call.place)


def ask_for(call: EffectCall) -> EffectPending | None:
    """Ask for the effect where nobody has, and return what it waits for before it can be sent; None for nothing.

    Nothing is sent, and nothing is noted in the run. Errors of `Effects.propose`.
    """
    terms = _terms(call)
    try:
        for _ in range(_MOST_MOVES):
            members = _members(call, None)
            move = _next(call, members, terms, looked=False)
            if move is Move.APPROVAL:
                return _waits_for_approval(call, members[-1])
            if move is not Move.PROPOSE:
                return None
            _done(call, members, move)
    except EffectPending as error:
        return error
    return None


def _terms(call: EffectCall) -> Callable[[], WantedTerms]:
    """Return what asks once for the terms of a call."""
    return cache(lambda: call.effects.terms(call.wanted))


def _members(call: EffectCall, unclear: Uncertain | None) -> Sequence[EffectMember]:
    """Return the members of the key; where that fails after something unclear, the latter is what is to be known."""
    try:
        return call.effects.members(call.wanted.action_key)
    except LedgerError:
        if unclear is not None:
            raise unclear from None
        raise


def _next(call: EffectCall, members: Sequence[EffectMember], terms: Callable[[], WantedTerms], *, looked: bool) -> Move:
    try:
        return next_move(
            members,
            request_sha256=sha256(call.wanted.request).digest(),
            terms=terms,
            worker=call.worker,
            was_ours=call.was_ours,
            looked=looked,
            successors=call.successors,
        )
    except Refused as error:  # what people were asked for is not lost with the name of its policy
        raise held_up(call.name, error, members[-1]) from error


def _done(call: EffectCall, members: Sequence[EffectMember], move: Move) -> Uncertain | None:
    """Do one thing; return what left its end unclear. A refusal stands only where nobody else changed the action."""
    effects, wanted = call.effects, call.wanted
    last = members[-1] if members else None
    acts: dict[Move, Callable[[EffectMember], object]] = {
        Move.DISPATCH: lambda one: _sent(call, one),
        Move.DOUBT: lambda one: effects.doubt(one.action_id, worker=one.worker or call.worker),
        Move.LOOK: lambda one: effects.look(one.action_id, wanted, call.probe),
        Move.SUCCEED: lambda one: effects.succeed(one.action_id, wanted),
    }
    try:
        if last is None:
            effects.propose(wanted)
        else:
            acts[move](last)
    except Uncertain as error:
        return error
    except Refused as error:
        now = effects.members(wanted.action_key)
        if last is None and not now and error.code == "no_policy":
            raise  # the program names what never was: nothing was asked for
        if not now if last is None else now and _standing(now[-1]) == _standing(last):
            raise (error if error.code in DECIDED else held_up(call.name, error, last)) from error
    return None


def _sent(call: EffectCall, one: EffectMember) -> None:
    with sending(call.name):
        call.effects.dispatch(one.action_id, call.wanted, worker=call.worker)


def _standing(member: EffectMember) -> tuple[bytes, ActionState, bool]:
    return member.action_id, member.state, member.handed_out


def _given(call: EffectCall, last: EffectMember) -> EffectResult:
    if last.state is ActionState.SUCCEEDED:
        return call.effects.result(last)
    raise Refused(
        f"effect {call.name!r} did not happen: action {last.action_id.hex()} of {last.action_key!r} is {last.status}",
        code=str(last.state),
        hint=_WAYS_ON.get(last.state, "ask people what is to follow").format(successor=_successor(call, last)),
    )


_WAYS_ON: Final = {
    ActionState.NOT_EXECUTED: "{successor} proposes it again, with approvals of its own",
    ActionState.EXPIRED: "{successor} proposes it again, with a window and approvals of its own",
    ActionState.REJECTED: "people said no; {successor} asks them again",
    ActionState.REVOKED: "people took it back; {successor} asks them again",
    ActionState.WRITTEN_OFF: "nobody found out what became of it, and nothing ever follows it",
}


def _waits(call: EffectCall, last: EffectMember, move: Move) -> EffectPending:
    """Return what says of a call that it waits, and for what."""
    if move is Move.APPROVAL:
        return _waits_for_approval(call, last)
    which = f"action {last.action_id.hex()} of {last.action_key!r}"
    if move is Move.ELSEWHERE:
        return EffectPending(
            f"effect {call.name!r}: {which} is {last.status}, by {last.worker}",
            code="effect_elsewhere",
            hint="start the run again when that worker has ended, or its time is over",
            **_names(last),
        )
    return EffectInDoubt(
        f"effect {call.name!r}: nobody knows whether it happened: {which} is {last.status}",
        hint=f"`arl effects show {last.action_id.hex()}{_of_store(call)}` says what would settle it; "
        "it is not repeated meanwhile",
        **_names(last),
    )


def _waits_for_approval(call: EffectCall, last: EffectMember) -> ApprovalPending:
    ours = last.request_sha256 == sha256(call.wanted.request).digest()  # or people edited what was asked for
    return ApprovalPending(
        f"effect {call.name!r} waits for approval: action {last.action_id.hex()} of {last.action_key!r} has "
        f"{len(last.approvals)} of {last.approvals_needed}",
        hint=f"`arl approvals show {last.action_id.hex()}{_of_store(call)}`; then start the run again",
        display=display(call.wanted.request) if ours else "",
        **_names(last),
    )


def held_up(name: str, error: Refused, last: EffectMember | None = None) -> EffectPending:
    """Return what says of a call that the store or the trust file does not allow it now, and nobody decided so."""
    return EffectPending(
        f"effect {name!r} is held up, and nobody decided against it: {error.message}",
        code=error.code,
        hint=f"{error.hint or 'put in order what it names'}; then start the program again",
        **({} if last is None else _names(last)),
    )


def _other(call: EffectCall, last: EffectMember, move: Move, terms: WantedTerms) -> Refused | EffectPending:
    """Return what says that an action of this key is there under other terms. Nothing of it is sent."""
    which = f"action {last.action_id.hex()} of {last.action_key!r}"
    if move is Move.OTHER_TERMS:
        wanted = {"target": terms.audience, "class": terms.target_class, "executor": terms.executor}
    else:
        wanted = {"approval": call.wanted.approval}
    options = "".join(f" --{name} {shlex.quote(value)}" for name, value in wanted.items())
    hint = f"people reject or revoke it, and {_successor(call, last, options)} proposes it again as it is wanted"
    error = Refused(f"effect {call.name!r}: {which} {_OTHERS[move]}", code=str(move), hint=hint)
    return error if move is Move.OTHER_POLICY else held_up(call.name, error, last)


_OTHERS: Final = {
    Move.OTHER_POLICY: "was proposed under another policy than the one that this call names",
    Move.UNKNOWN_POLICY: "was proposed under a policy that the trust file has no more",
    Move.OTHER_TERMS: "was proposed for another target, another class of target or another executor",
}


def _names(last: EffectMember) -> dict[str, str]:
    return {"action_id": last.action_id.hex(), "action_key": last.action_key}


def _drift(call: EffectCall) -> Refused:
    return Refused(
        f"effect {call.name!r}: the key {call.wanted.action_key!r} belongs to another request than this one",
        code="argument_drift",
        hint=f"`arl effects show {shlex.quote(call.wanted.action_key)}{_of_store(call)}` has what was asked for; "
        "another effect has another key",
    )


def _successor(call: EffectCall, last: EffectMember, options: str = "") -> str:
    """Return the command that proposes an action anew, with what is to be other than it was."""
    return f"`arl actions successor {last.action_id.hex()}{options}{_of_store(call)}`"


def _of_store(call: EffectCall) -> str:
    """Return what names the run's store on a command line."""
    return f" --db {shlex.quote(call.place.session.context.store.location)}"
