"""The states of an action, what a ledger allows in which state, and the numbered invariants, all as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ActionState(StrEnum):
    """Where one member of a key stands. `prepared` says neither that the request went out nor that it did not."""

    PROPOSED = "proposed"
    AVAILABLE = "available"
    CLAIMED = "claimed"
    PREPARED = "prepared"
    UNRESOLVED = "unresolved"
    SUCCEEDED = "succeeded"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    EXPIRED = "expired"
    REVOKED = "revoked"
    NOT_EXECUTED = "not_executed"
    WRITTEN_OFF = "written_off"


class LedgerState(StrEnum):
    """What a ledger may do with its authority."""

    OPEN = "open"
    HELD = "held"
    TIME_UNTRUSTED = "time_untrusted"
    RECOVERY = "recovery"
    FROZEN = "frozen"


class Operation(StrEnum):
    """The columns of the table of ledger states."""

    READ = "read"
    PROPOSE = "propose"
    REVOKE = "revoke"
    CLAIM = "claim"
    PREPARE = "prepare"
    RECONCILE = "reconcile"
    ADMIT = "admit"


class Leave(StrEnum):
    """One cell of that table. UNACKNOWLEDGED: done here at once, acknowledged when the witness has seen it."""

    NO = "no"
    YES = "yes"
    UNACKNOWLEDGED = "unacknowledged"
    SUCCESS_ONLY = "success_only"
    OBSERVE_ONLY = "observe_only"


class Event(StrEnum):
    """What can happen to an action."""

    PROPOSE = "propose"
    EDIT = "edit"
    REJECT = "reject"
    APPROVE = "approve"
    CLAIM = "claim"
    PREPARE = "prepare"
    HAND_OUT = "hand_out"
    OUTCOME = "outcome"
    DOUBT = "doubt"
    OBSERVE = "observe"
    SUCCESS = "success"
    NOT_EXECUTED = "not_executed"
    WRITE_OFF = "write_off"
    CLOSE_UNPREPARED = "close_unprepared"
    SUCCESSOR = "successor"
    REVOKE = "revoke"
    EXPIRE = "expire"
    ADMIT = "admit"


class Role(StrEnum):
    """What a principal may be in a ledger; one may be several things."""

    REQUESTER = "requester"
    APPROVER = "approver"
    EXECUTOR = "executor"
    RECONCILER = "reconciler"
    REVOKER = "revoker"
    OPERATOR = "operator"
    OFFICER = "officer"


class TargetClass(StrEnum):
    """What a receiver does about a request that comes late or again; see the table of targets in the protocol page.

    N: plain. V: checks signature, expiry and epoch. I: remembers an idempotency key. F_MINUS: fences in a table of its
    own, before the effect. F: stores the highest generation in the effect's own transaction.
    """

    N = "n"
    V = "v"
    I = "i"  # noqa: E741 - the protocol's own letter
    F_MINUS = "f_minus"
    F = "f"


class WitnessPolicy(StrEnum):
    """Which memory outside the database a ledger has. NONE: no protection against a restored copy."""

    NONE = "none"
    FILE = "file"
    HTTP = "http"


FIRST_EPOCH: Final = 0
"""The epoch of a ledger that was never admitted."""

_A = ActionState

CLOSED: Final = frozenset(
    {_A.SUCCEEDED, _A.SUPERSEDED, _A.REJECTED, _A.EXPIRED, _A.REVOKED, _A.NOT_EXECUTED, _A.WRITTEN_OFF}
)
"""An action in one of these is over; at most one member of a key is in none of them."""

FENCING: Final = frozenset({TargetClass.F_MINUS, TargetClass.F})
"""Receivers whose signed answer is a fence."""

SAME_PERMIT_AGAIN: Final = frozenset({TargetClass.I, TargetClass.F_MINUS, TargetClass.F})
"""Receivers that take one permit for one effect however often it comes: a lost reply may be answered again."""

_OPEN, _LATE_OK = Leave.YES, Leave.UNACKNOWLEDGED

LEDGER_TABLE: Final[Mapping[LedgerState, Mapping[Operation, Leave]]] = {
    LedgerState.OPEN: {
        Operation.READ: _OPEN,
        Operation.PROPOSE: _OPEN,
        Operation.REVOKE: _OPEN,
        Operation.CLAIM: _OPEN,
        Operation.PREPARE: _OPEN,
        Operation.RECONCILE: _OPEN,
        Operation.ADMIT: Leave.NO,
    },
    LedgerState.HELD: {
        Operation.READ: _OPEN,
        Operation.PROPOSE: _OPEN,
        Operation.REVOKE: _LATE_OK,
        Operation.CLAIM: _OPEN,
        Operation.PREPARE: Leave.NO,
        Operation.RECONCILE: Leave.SUCCESS_ONLY,
        Operation.ADMIT: Leave.NO,
    },
    LedgerState.TIME_UNTRUSTED: {
        Operation.READ: _OPEN,
        Operation.PROPOSE: _OPEN,
        Operation.REVOKE: _LATE_OK,
        Operation.CLAIM: Leave.NO,
        Operation.PREPARE: Leave.NO,
        Operation.RECONCILE: _OPEN,
        Operation.ADMIT: Leave.NO,
    },
    LedgerState.RECOVERY: {
        Operation.READ: _OPEN,
        Operation.PROPOSE: Leave.NO,
        Operation.REVOKE: Leave.NO,
        Operation.CLAIM: Leave.NO,
        Operation.PREPARE: Leave.NO,
        Operation.RECONCILE: Leave.OBSERVE_ONLY,
        Operation.ADMIT: _OPEN,
    },
    LedgerState.FROZEN: {
        Operation.READ: _OPEN,
        Operation.PROPOSE: Leave.NO,
        Operation.REVOKE: Leave.NO,
        Operation.CLAIM: Leave.NO,
        Operation.PREPARE: Leave.NO,
        Operation.RECONCILE: Leave.NO,
        Operation.ADMIT: Leave.NO,
    },
}
"""What a ledger lets happen. Held: no answer of the witness. Recovery: a copy, or behind its witness."""

_FULL: Final = frozenset({Leave.YES, Leave.UNACKNOWLEDGED})
_SUCCESS: Final = _FULL | {Leave.SUCCESS_ONLY}

EVENT_NEEDS: Final[Mapping[Event, tuple[Operation, frozenset[Leave]]]] = {
    Event.PROPOSE: (Operation.PROPOSE, _FULL),
    Event.EDIT: (Operation.PROPOSE, _FULL),
    Event.REJECT: (Operation.PROPOSE, _FULL),
    Event.APPROVE: (Operation.PROPOSE, _FULL),
    Event.SUCCESSOR: (Operation.PROPOSE, _FULL),
    Event.EXPIRE: (Operation.PROPOSE, _FULL),
    Event.REVOKE: (Operation.REVOKE, _FULL),
    Event.CLAIM: (Operation.CLAIM, _FULL),
    Event.PREPARE: (Operation.PREPARE, _FULL),
    Event.HAND_OUT: (Operation.PREPARE, _FULL),
    Event.OUTCOME: (Operation.RECONCILE, _SUCCESS),
    Event.SUCCESS: (Operation.RECONCILE, _SUCCESS),
    Event.DOUBT: (Operation.RECONCILE, _SUCCESS),
    Event.OBSERVE: (Operation.RECONCILE, _SUCCESS | {Leave.OBSERVE_ONLY}),
    Event.NOT_EXECUTED: (Operation.RECONCILE, _FULL),
    Event.WRITE_OFF: (Operation.RECONCILE, _FULL),
    Event.CLOSE_UNPREPARED: (Operation.RECONCILE, _FULL),
    Event.ADMIT: (Operation.ADMIT, _FULL),
}
"""For each event its column and the cells that let it happen. A doubt only narrows: it goes where success goes."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """One row of the state table: from `old` (None: no action yet) `event` leads to one of `new`.

    `roles`: who may cause it, one of these. `guards`: the codes of what must hold, in the order in which it is asked.
    `beside`: the state in which the same transaction makes one more member of the key, if it does.
    """

    old: ActionState | None
    event: Event
    new: tuple[ActionState, ...]
    roles: frozenset[Role]
    guards: tuple[str, ...]
    beside: ActionState | None = None


_TERMS = ("empty_window", "no_approvals")
_SUCCESS_BY = (
    "other_key",
    "other_receiver",
    "says_no_success",
    "other_observer",
    "other_epoch",
    "evidence_used",
    "id_taken",
)
_FENCE = (
    "no_fence",
    "fence_of_other_key",
    "fence_of_other_receiver",
    "fence_of_other_epoch",
    "receiver_executed",
    "outcome_unknown",
    "mark_below",
    "evidence_used",
)
_GUARDS: Final[Mapping[Event, tuple[str, ...]]] = {
    Event.PROPOSE: ("key_taken", *_TERMS),
    Event.EDIT: ("same_bytes", "id_taken", *_TERMS),
    Event.REJECT: (),
    Event.APPROVE: (
        "other_bytes_signed",
        "other_approver",
        "old_epoch",
        "other_action",
        "other_request",
        "other_policy",
        "other_window",
        "other_terms",
        "approver_is_requester",
        "approver_is_executor",
        "same_principal",
        "other_instance",
        "expired",
    ),
    Event.CLAIM: (
        "wrong_executor",
        "digest_mismatch",
        "old_epoch",
        "few_approvals",
        "audience_closed",
        "origin_not_frozen",
        "revoked",
        "not_yet_valid",
        "expired",
    ),
    Event.PREPARE: (
        "wrong_executor",
        "other_claim",
        "other_worker",
        "old_epoch",
        "audience_closed",
        "origin_not_frozen",
        "revoked",
        "not_yet_valid",
        "expired",
        "seen_executed",
        "permit_too_long",
    ),
    Event.HAND_OUT: (
        "wrong_executor",
        "other_claim",
        "other_worker",
        "restarted",
        "old_epoch",
        "revoked",
        "permit_expired",
        "prepared_later",
        "drained",
        "seen_executed",
        "not_cosigned",
        "handed_out",
    ),
    Event.OUTCOME: ("wrong_executor", *_SUCCESS_BY),
    Event.SUCCESS: ("reconciler_is_executor", *_SUCCESS_BY),
    Event.DOUBT: ("neighbours_claim", "not_operator", "clock_untrusted", "too_early"),
    Event.OBSERVE: (
        "other_key",
        "other_observer",
        "other_epoch",
        "evidence_used",
        "other_drain",
        "contradicted",
        "nothing_to_drain",
        "fence_instead",
        "drain_by_executor",
        "no_timer",
        "clock_untrusted",
        "permit_may_live",
        "covers_too_little",
    ),
    Event.NOT_EXECUTED: (
        "reconciler_is_executor",
        "few_people",
        "seen_executed",
        "not_asked",
        *_FENCE,
        "no_drain",
        "clock_untrusted",
        "drain_before_correction",
        "no_observation",
        "observation_before_drain",
        "executors_word",
    ),
    Event.WRITE_OFF: ("reconciler_is_executor", "few_people", "observable"),
    Event.CLOSE_UNPREPARED: (
        "reconciler_is_executor",
        "seen_executed",
        "prepared_before",
        "needs_fence_or_drain",
        *_FENCE,
    ),
    Event.SUCCESSOR: ("id_taken", *_TERMS, "close_not_cosigned"),
    Event.REVOKE: (),
    Event.EXPIRE: ("clock_untrusted", "window_open"),
    Event.ADMIT: ("few_officers", "wrong_epoch", "permit_may_live", "loss_unknown"),
}

_R = Role
ROLES: Final[Mapping[Event, frozenset[Role]]] = {
    Event.PROPOSE: frozenset({_R.REQUESTER}),
    Event.EDIT: frozenset({_R.REQUESTER, _R.APPROVER}),
    Event.REJECT: frozenset({_R.APPROVER}),
    Event.APPROVE: frozenset({_R.APPROVER}),
    Event.CLAIM: frozenset({_R.EXECUTOR}),
    Event.PREPARE: frozenset({_R.EXECUTOR}),
    Event.HAND_OUT: frozenset({_R.EXECUTOR}),
    Event.OUTCOME: frozenset({_R.EXECUTOR}),
    Event.DOUBT: frozenset({_R.EXECUTOR, _R.RECONCILER, _R.OPERATOR}),
    Event.OBSERVE: frozenset({_R.EXECUTOR, _R.RECONCILER}),
    Event.SUCCESS: frozenset({_R.RECONCILER}),
    Event.NOT_EXECUTED: frozenset({_R.RECONCILER}),
    Event.WRITE_OFF: frozenset({_R.RECONCILER}),
    Event.CLOSE_UNPREPARED: frozenset({_R.RECONCILER}),
    Event.SUCCESSOR: frozenset({_R.REQUESTER}),
    Event.REVOKE: frozenset({_R.REVOKER}),
    Event.EXPIRE: frozenset({_R.EXECUTOR, _R.RECONCILER, _R.OPERATOR}),
    Event.ADMIT: frozenset({_R.OFFICER}),
}
"""Who may cause an event: a principal with one of these roles."""


def _arrow(old: ActionState | None, event: Event, *new: ActionState, beside: ActionState | None = None) -> Arrow:
    return Arrow(old, event, new, ROLES[event], _GUARDS[event], beside)


ARROWS: Final[Mapping[tuple[ActionState | None, Event], Arrow]] = {
    (arrow.old, arrow.event): arrow
    for arrow in (
        _arrow(None, Event.PROPOSE, _A.PROPOSED, _A.UNRESOLVED),
        _arrow(_A.PROPOSED, Event.EDIT, _A.SUPERSEDED, beside=_A.PROPOSED),
        _arrow(_A.PROPOSED, Event.REJECT, _A.REJECTED),
        _arrow(_A.PROPOSED, Event.APPROVE, _A.PROPOSED, _A.AVAILABLE),
        _arrow(_A.AVAILABLE, Event.CLAIM, _A.CLAIMED),
        _arrow(_A.CLAIMED, Event.PREPARE, _A.PREPARED),
        _arrow(_A.PREPARED, Event.HAND_OUT, _A.PREPARED),
        _arrow(_A.CLAIMED, Event.CLOSE_UNPREPARED, _A.NOT_EXECUTED),
        _arrow(_A.UNRESOLVED, Event.CLOSE_UNPREPARED, _A.NOT_EXECUTED),
        _arrow(_A.PREPARED, Event.OUTCOME, _A.SUCCEEDED, _A.SUPERSEDED, beside=_A.SUCCEEDED),
        _arrow(_A.UNRESOLVED, Event.OUTCOME, _A.SUCCEEDED, _A.SUPERSEDED, beside=_A.SUCCEEDED),
        _arrow(_A.PREPARED, Event.SUCCESS, _A.SUCCEEDED, _A.SUPERSEDED, beside=_A.SUCCEEDED),
        _arrow(_A.UNRESOLVED, Event.SUCCESS, _A.SUCCEEDED, _A.SUPERSEDED, beside=_A.SUCCEEDED),
        _arrow(_A.PREPARED, Event.NOT_EXECUTED, _A.NOT_EXECUTED),
        _arrow(_A.UNRESOLVED, Event.NOT_EXECUTED, _A.NOT_EXECUTED),
        _arrow(_A.UNRESOLVED, Event.WRITE_OFF, _A.WRITTEN_OFF),
        _arrow(_A.CLAIMED, Event.DOUBT, _A.UNRESOLVED),
        _arrow(_A.PREPARED, Event.DOUBT, _A.UNRESOLVED),
        *(_arrow(state, Event.OBSERVE, state) for state in (_A.CLAIMED, _A.PREPARED, _A.UNRESOLVED)),
        *(
            _arrow(state, Event.SUCCESSOR, _A.SUPERSEDED, beside=_A.PROPOSED)
            for state in (_A.NOT_EXECUTED, _A.EXPIRED, _A.REJECTED, _A.REVOKED)
        ),
        *(_arrow(state, Event.REVOKE, _A.REVOKED) for state in (_A.PROPOSED, _A.AVAILABLE)),
        *(_arrow(state, Event.REVOKE, state) for state in (_A.CLAIMED, _A.PREPARED, _A.UNRESOLVED)),
        *(_arrow(state, Event.EXPIRE, _A.EXPIRED) for state in (_A.PROPOSED, _A.AVAILABLE)),
        *(
            _arrow(state, Event.ADMIT, _A.UNRESOLVED)
            for state in ActionState
            if state not in (_A.SUCCEEDED, _A.SUPERSEDED, _A.WRITTEN_OFF)
        ),
    )
}
"""Every pair that is not a key is refused. No arrow leads back to `available`."""

INVARIANTS: Final[Mapping[int, str]] = {
    1: "at most one accepted claim per key and generation within one history; handed-out (epoch, generation) only grow",
    2: "a row changes if and only if a leaf is appended, in one transaction",
    3: "no permit without a prepared row",
    4: "with a witness policy no permit before a checkpoint that covers the prepare leaf is cosigned",
    5: "a permit is handed out at most once, unless the receiver takes it for one effect anyway",
    6: "the generation of a key only grows within one history, across members and epochs",
    7: "a fencing receiver accepts at most one effect per key and generation, never a lower generation or epoch",
    8: "unresolved is left only by recorded evidence and a recorded decision, or by the receiver's signed receipt",
    9: "no transition into not_executed comes before the fence or the drain, and the observation comes after it",
    10: "an admission demotes the newest member of each key to unresolved unless it succeeded",
    11: "an approval is valid in one epoch only, and the epoch is inside the signed statement",
    12: "approver is not requester nor executor, reconciler is not executor, approvers are distinct principals",
    13: "the bytes sent are the stored bytes of the claim",
    14: "checkpoints never shrink or fork under one origin",
    15: "a missing database is not an empty one; wrong pragmas or an unknown schema mean no permits",
    16: "a storage error, a busy lock or a timeout never means that one may go on; a lock wait extends no window",
    17: "time only narrows; safety rests on generation and epoch",
    18: "an erasure never changes a leaf; erasing an unsettled request is refused",
    19: "a refused second request is no evidence about the first",
    20: "no worker chooses a degraded mode; no cached grant",
}
"""Numbered as in the protocol page, which says which of them a rule of this package keeps and which test shows it."""
