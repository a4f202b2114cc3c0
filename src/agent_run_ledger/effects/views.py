"""Actions as people see them: where each stands, what is not protected, and what may be done next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from agent_run_ledger.kernel.effects import (
    Action,
    ActionState,
    Event,
    LedgerState,
    Standing,
    TargetClass,
    WitnessPolicy,
)
from agent_run_ledger.kernel.effects.action import ends_by_time
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.states import ARROWS, CLOSED

CLASS_WORDS: Final[Mapping[TargetClass, str]] = {
    TargetClass.N: "plain target: after a restore or a repeated delivery it can happen twice",
    TargetClass.V: "checks signature, expiry and epoch: a repeated delivery can happen twice",
    TargetClass.I: "remembers an idempotency key: once while the key is remembered",
    TargetClass.F_MINUS: "fences before the effect: once, its outcome can be lost",
    TargetClass.F: "fences in the effect's own transaction: once, while the receiver itself is not restored",
}
"""What each class of receiver is good for, in one line of every status."""

READ_BY_CLOCK: Final = frozenset({ActionState.PREPARED})
"""The states whose words depend on what time it is now."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

UNWITNESSED: Final = "no witness: a restored older copy of this database is not noticed"


_NEXT: Final[Mapping[ActionState, tuple[Event, ...]]] = {
    state: tuple(event for old, event in ARROWS if old is state and event is not Event.ADMIT) for state in ActionState
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """One member of a key. `status` is its state in words, `guarantee` what its receiver's class is good for,
    `not_protected` what nothing guards it against, in words.

    `drain` is the evidence_id of what is on record about nothing more arriving; `seen`, what the last look at the
    target saw, and the drain that it came after.
    `nonce` is that of the authorisation which was begun, and whoever approves next has to sign: None before the first.
    `next` are the events that the state table lets follow; each has conditions of its own. Times are Unix
    milliseconds, None for what has not happened.
    """

    action_key: str
    action_id: bytes
    state: ActionState
    status: str
    guarantee: str
    epoch: int
    generation: int | None
    requester: str
    executor: str
    audience: str
    target_class: TargetClass
    checks_expiry: bool
    request_sha256: bytes
    not_before_ms: int
    dispatch_before_ms: int
    policy_sha256: bytes
    display_sha256: bytes
    preconditions: tuple[tuple[str, str], ...]
    approvals: tuple[str, ...]
    approvals_needed: int
    nonce: bytes | None
    revoked: bool
    worker: str | None
    claim_id: bytes | None
    claimed_ms: int | None
    prepared_ms: int | None
    permit_expires_ms: int | None
    handed_out: bool
    in_doubt_since_ms: int | None
    replaces: bytes | None
    evidence: tuple[bytes, ...]
    drain: bytes | None
    seen: tuple[Found, bytes | None] | None
    next: tuple[Event, ...]
    not_protected: tuple[str, ...]

    @property
    def authorized(self) -> bool:
        """Whether people have approved it: never so while it is proposed."""
        return self.state not in (ActionState.PROPOSED, ActionState.REJECTED)

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state in CLOSED

    @property
    def by_time(self) -> bool:
        """Whether time alone may end a doubt about it, once every permit is over."""
        return ends_by_time(self.target_class, checks_expiry=self.checks_expiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """Where the ledger stands: its state, its epoch, its witness, how many members are in which state.

    `not_protected` says in words what nothing guards against. `clock_trusted`: whether the clock may say that something
    is over; it may be doubted in any state.
    """

    ledger_id: bytes
    state: LedgerState
    epoch: int
    witness: WitnessPolicy
    counts: Mapping[ActionState, int]
    not_protected: tuple[str, ...]
    clock_trusted: bool


def unprotected(witness: WitnessPolicy) -> tuple[str, ...]:
    """Return in words what nothing guards against where this is the witness."""
    return (UNWITNESSED,) if witness is WitnessPolicy.NONE else ()


def view_of(action: Action, witness: WitnessPolicy, *, now_ms: int | None = None, bound_ms: int = 0) -> ActionView:
    """Return an action as people see it in a ledger with this witness.

    At `now_ms` by a clock that may be `bound_ms` off; see `status_words`.
    """
    terms = action.terms
    return ActionView(
        action_key=action.action_key,
        action_id=action.action_id,
        state=action.state,
        status=status_words(action, now_ms=now_ms, bound_ms=bound_ms),
        guarantee=CLASS_WORDS[terms.target_class],
        epoch=action.epoch,
        generation=action.generation,
        requester=action.requester,
        executor=terms.executor,
        audience=terms.audience,
        target_class=terms.target_class,
        checks_expiry=terms.checks_expiry,
        request_sha256=terms.request_sha256,
        not_before_ms=terms.not_before_ms,
        dispatch_before_ms=terms.dispatch_before_ms,
        policy_sha256=terms.policy_sha256,
        display_sha256=terms.display_sha256,
        preconditions=terms.preconditions,
        approvals=tuple([one.principal for one in action.approvals]),
        approvals_needed=terms.approvals_needed,
        nonce=action.approvals[0].nonce if action.approvals else None,
        revoked=action.revoked,
        worker=action.worker,
        claim_id=action.claim_id,
        claimed_ms=action.claimed_ms,
        prepared_ms=action.prepared_ms,
        permit_expires_ms=action.permit_expires_ms,
        handed_out=action.handed_out,
        in_doubt_since_ms=action.in_doubt_since_ms,
        replaces=action.replaces,
        evidence=action.evidence,
        drain=None if action.drain is None else action.drain.evidence_id,
        seen=None if action.observation is None else (action.observation.found, action.observation.after),
        next=_NEXT[action.state],
        not_protected=unprotected(witness),
    )


def ledger_view(ledger: Standing, counts: Mapping[ActionState, int], unsigned: tuple[str, ...] = ()) -> LedgerView:
    """Return a ledger as people see it. `unsigned`: what its signatures do not protect, in words."""
    return LedgerView(
        ledger_id=ledger.ledger_id,
        state=ledger.state,
        epoch=ledger.epoch,
        witness=ledger.witness,
        counts=counts,
        not_protected=(*unprotected(ledger.witness), *unsigned),
        clock_trusted=ledger.clock_trusted,
    )


def _utc(time_ms: int | None) -> str:
    """Return Unix milliseconds as RFC 3339 in UTC; out of range, the number itself."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms or 0)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def status_words(action: Action, *, now_ms: int | None = None, bound_ms: int = 0) -> str:
    """Return the state in words: with the doubt, the approvals that are missing, and a revocation.

    What is prepared is in doubt from the end of its permit by every clock on, also where nobody recorded that. Without
    `now_ms` the words are those of the moment at which it came into its state.
    """
    state, words = action.state, str(action.state)
    if state is ActionState.PROPOSED:
        words += f" (authorization: not_established, {len(action.approvals)} of {action.terms.approvals_needed})"
    elif state is ActionState.UNRESOLVED:
        words += f" (in doubt since {_utc(action.in_doubt_since_ms)})"
    elif state in READ_BY_CLOCK:
        over_ms = (action.permit_expires_ms or 0) + bound_ms
        if now_ms is not None and now_ms >= over_ms:
            words += f" (in doubt since {_utc(over_ms)})"
        else:
            words += " (handed out)" if action.handed_out else " (not handed out)"
    return f"{words}, revoked" if action.revoked and state is not ActionState.REVOKED else words
