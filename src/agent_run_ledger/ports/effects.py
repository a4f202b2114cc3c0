"""What the effect half needs from the store, from the clocks and from a witness, in prose with "must"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent_run_ledger.kernel.effects.action import Action, Now
from agent_run_ledger.kernel.effects.clock import Correction
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.record import Transition
from agent_run_ledger.kernel.effects.states import ActionState, Event, WitnessPolicy
from agent_run_ledger.kernel.effects.trust_change import TrustChange, TrustOnRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAction:
    """A member of a key as it stands, with its place in the store and when it came and changed (Unix milliseconds)."""

    row_id: int
    action: Action
    proposed_at_ms: int
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransition:
    """The record of one transition: `record_id` = leaf index << 16 | position in the leaf's list of changes.

    `action_id` is that of the row that it belongs to, None where there is no such row.
    """

    record_id: int
    action_id: bytes | None
    salt: bytes
    payload: bytes

    @property
    def leaf_index(self) -> int:
        """Return the index of the leaf that holds this record's MAC."""
        return self.record_id >> 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCorrection:
    """The record of one clock correction: `record_id` as of a transition, `later_ms` as in `Correction`."""

    record_id: int
    later_ms: int
    salt: bytes
    payload: bytes

    @property
    def leaf_index(self) -> int:
        """Return the index of the leaf that holds this record's MAC."""
        return self.record_id >> 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What a target answered, whole: `evidence_id` is that of the observation that it is, on the action's record."""

    evidence_id: bytes
    status: int | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrustChange:
    """The record of one trust file that came into use: `record_id` as of a transition, the rest as in `TrustChange`."""

    record_id: int
    sha256: bytes
    serial: int
    salt: bytes
    payload: bytes

    @property
    def leaf_index(self) -> int:
        """Return the index of the leaf that holds this record's MAC."""
        return self.record_id >> 16


class EffectTx(Protocol):
    """The rows of effects within one write transaction; what it writes lands with the transaction's one leaf."""

    @property
    def epoch(self) -> int:
        """The ledger's epoch."""
        ...

    def time_kept(self) -> tuple[Sample | None, tuple[int, int]]:
        """Return the latest time that was believed, None before the first, and what the reader's `corrections` does."""
        ...

    def put_time_mark(self, mark: Sample) -> None:
        """Keep a time that was believed."""
        ...

    def correction(self, op_id: bytes) -> StoredCorrection | None:
        """Return the record of an operation that is a clock correction in the log, None for any other."""
        ...

    def correct_clock(self, correction: Correction, *, salt: bytes) -> int:
        """Write a correction's record, its change in the leaf, and its new mark; return the record id."""
        ...

    def trust(self) -> TrustOnRecord | None:
        """Return which trust file is in use, None before the first."""
        ...

    def is_before_trust(self, action_id: bytes) -> bool:
        """Return whether an action was made before the first trust file came into use; False where none did."""
        ...

    def trust_change(self, op_id: bytes) -> StoredTrustChange | None:
        """Return the record of an operation by which a trust file came into use, None for any other."""
        ...

    def change_trust(self, change: TrustChange, *, salt: bytes) -> int:
        """Write the record of a trust file that comes into use and its change in the leaf; return the record id.

        Where its serial is not above all that were in use it must raise Tampered("rules_disagree"), and nothing may
        land.
        """
        ...

    def members(self, action_key: str) -> tuple[Action, ...]:
        """Return all members of a key in the order in which they were made."""
        ...

    def members_of(self, action_id: bytes) -> tuple[Action, ...]:
        """Return all members of the key that an action is a member of, as `members` does; none for no action."""
        ...

    def landed(self, op_id: bytes) -> Sequence[StoredTransition] | None:
        """Return the records of an operation that is in the log, in order; empty for one that was about no action.

        None for an operation that is not in the log.
        """
        ...

    def transitions(self, action_id: bytes) -> Sequence[StoredTransition]:
        """Return the records of one member, in the order recorded."""
        ...

    def last_record_id(self, action_id: bytes) -> int:
        """Return the record id of a member's latest transition, -1 without one."""
        ...

    def write(self, before: Action | None, transition: Transition, *, now: Now, salt: bytes, request: bytes) -> int:
        """Write one row as a transition left it, its record and its change in the leaf, and return the record id.

        `before` is the row as `members` gave it, None for a new one, whose `request` are the bytes it sends, empty for
        one that was rebuilt. The row must be written by a statement that is conditional on all that its event needs
        (state, claim, worker, executor, digest, epoch, not revoked, window or permit at `now`); where it finds no row
        it must raise Tampered("rules_disagree") and nothing may land.
        """
        ...

    def keep_answer(self, action_id: bytes, answer: StoredAnswer) -> None:
        """Keep what a target answered, of a member that `members` gave or `write` wrote in this transaction."""
        ...


class EffectReader(Protocol):
    """Reads of effects outside a write transaction; each call sees one consistent state."""

    def corrections(self) -> tuple[int, int]:
        """Return how many clock corrections there are, and the latest of their `later_ms`; (0, 0) without one."""
        ...

    def time_mark(self) -> Sample | None:
        """Return the latest time that was believed, None before the first."""
        ...

    def trust(self) -> TrustOnRecord | None:
        """Return which trust file is in use, None before the first."""
        ...

    def ownerless(self, *, limit: int) -> tuple[int, list[tuple[str, int]]]:
        """Return how many approvals, requests and answers belong to no action, and of `limit` kind and row id."""
        ...

    def latest(self) -> StoredTransition | None:
        """Return the record of the latest transition of any action, None before the first."""
        ...

    def members(self, action_key: str) -> list[StoredAction]:
        """Return all members of a key in the order in which they were made."""
        ...

    def action(self, action_id: bytes) -> StoredAction | None:
        """Return one member, None for no action."""
        ...

    def in_states(self, states: Sequence[ActionState], *, after_row_id: int, limit: int) -> list[StoredAction]:
        """Return the members in these states with row ids above `after_row_id`, oldest first, by an index."""
        ...

    def oldest(self, states: Sequence[ActionState], *, limit: int) -> list[StoredAction]:
        """Return the members in these states that wait longest, by `ages.since_ms`, at most `limit`.

        A state's members are found by an index; those that are claimed, prepared or unresolved are all looked at.
        """
        ...

    def stranded(self, *, over_ms: int, limit: int) -> list[StoredAction]:
        """Return the claims, prepared or not, whose `ages.deadline_ms` is `over_ms` or before, oldest claim first."""
        ...

    def count_stranded(self, *, over_ms: int) -> int:
        """Return how many there are of them."""
        ...

    def waiting_since(self, *, now_ms: int) -> int | None:
        """Return when the oldest proposal was made that is not approved and whose window is not over; None: none."""
        ...

    def ids_with(self, prefix: str, *, limit: int) -> list[bytes]:
        """Return the ids, at most `limit`, whose lower-case hex digits begin with these (at most 32 of them)."""
        ...

    def keys(self) -> Iterator[str]:
        """Yield every key, sorted, in bounded memory."""
        ...

    def counts(self) -> Mapping[ActionState, int]:
        """Return how many members are in each state that some member is in."""
        ...

    def request(self, action_id: bytes) -> bytes | None:
        """Return the exact bytes that an action sends; None where there are none."""
        ...

    def answers(self, action_id: bytes) -> list[StoredAnswer]:
        """Return what its target answered, in the order in which it came."""
        ...

    def transitions(self, action_id: bytes) -> list[StoredTransition]:
        """Return the records of one member, in the order recorded."""
        ...

    def last_record_id(self, action_id: bytes) -> int:
        """Return the record id of a member's latest transition, -1 without one."""
        ...

    def leaf_transitions(self, *, first: int, stop: int) -> Iterator[StoredTransition]:
        """Yield the records of leaves first ≤ index < stop in order, in bounded memory."""
        ...

    def leaf_corrections(self, *, first: int, stop: int) -> Iterator[StoredCorrection]:
        """Yield the records of clock corrections of leaves first ≤ index < stop in order, in bounded memory."""
        ...

    def leaf_trust_changes(self, *, first: int, stop: int) -> Iterator[StoredTrustChange]:
        """Yield the records of trust files of leaves first ≤ index < stop in order, in bounded memory."""
        ...

    def count_transitions(self) -> int:
        """Return how many records of transitions there are."""
        ...


class TimeSource(Protocol):
    """Where the effect ledger's time comes from: the machine's, or the integer ticks of an exercise."""

    def sample(self) -> Sample:
        """Return one look at the clocks. Called inside of the write transaction, after the locks."""
        ...


class Gave(StrEnum):
    """What a ledger gave for an answer. RECORDED: it was on record already, and nothing changed."""

    ACCEPTED = "accepted"
    RECORDED = "recorded"
    REFUSED = "refused"
    PENDING = "pending"
    UNAVAILABLE = "unavailable"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectNotice:
    """One question that was asked of a ledger, and the answer. `code`: that of the error, empty without one.

    Nothing of the action is in it: no key, no id, no name.
    """

    event: Event
    gave: Gave
    code: str = ""


class EffectObserver(Protocol):
    """What is told of the questions to an effect ledger in this process, and changes nothing in it.

    It is told in the thread that asked, after the transaction. What it raises is logged once and it is told no more.
    """

    def tell(self, notice: EffectNotice, /) -> None:
        """Take note of one answer."""
        ...


class Seen(StrEnum):
    """What a witness says to a log's head. SILENT: no answer. AHEAD, FORKED: this is not the log that it knows."""

    CURRENT = "current"
    SILENT = "silent"
    AHEAD = "ahead"
    FORKED = "forked"


@dataclass(frozen=True, slots=True)
class Heard:
    """A witness's answer. `size`: with AHEAD, how many leaves the head has that it knows."""

    seen: Seen
    size: int = 0


class Witness(Protocol):
    """A memory of the log's heads outside of the database and of who administers it.

    - It must remember the largest head that it was shown, and say CURRENT only for one that extends it.
    - After CURRENT no smaller head, and none that does not extend this one, may be CURRENT again.
    - Several processes show it heads of one log, in any order: for one that is smaller than what it knows it must say
      AHEAD with the size that it knows, and the ledger finds out whether its log has come so far meanwhile.
    - It must answer, or fail, within a time limit of its own, a few seconds at most: everybody who needs it waits. An
      exception, or what is no `Heard`, is taken for SILENT.
    """

    @property
    def policy(self) -> WitnessPolicy:
        """Which kind of witness it is."""
        ...

    def extend(self, size: int, root: bytes) -> Heard:
        """Show it a head: how many leaves, and the 32-byte root of their tree. Never called inside a transaction."""
        ...
