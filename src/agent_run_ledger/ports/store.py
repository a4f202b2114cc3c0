"""The contracts of the store, its rows and observers, in prose with "must", each with a conformance test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.notices import CallBegun, Notice
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports.questions import Question
from agent_run_ledger.ports.run_locks import RunLock

if TYPE_CHECKING:  # who only records runs does not load the rules of effects by this
    from agent_run_ledger.ports.effects import EffectReader, EffectTx

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The mutable projection of one run. `row_id` is local to the store, `run_uid` is what leaves name.

    `queue`: from which workers take it, None for a run of its caller's own.
    """

    row_id: int
    run_uid: bytes
    run_id: str
    state: RunState
    reason: str
    generation: int
    attempt: int
    created_at_ms: int
    updated_at_ms: int
    holder: str
    parent_row_id: int | None = None
    start_record_id: int | None = None
    last_start_record_id: int | None = None
    end_record_id: int | None = None
    forked_from_row_id: int | None = None
    queue: str | None = None


class RunStanding(NamedTuple):
    """What decides whether an attempt may still write to its run."""

    generation: int
    state: RunState
    reason: str
    run_uid: bytes


@dataclass(slots=True, kw_only=True)
class InFlight:
    """A call that was started and not yet concluded. One small row per (run, lane), overwritten by the next start.

    `repeatable`: whether it may run again when nothing says how it ended. `after_record_id`: the latest record of the
    run when it was started. `reserved`: what it took of its budgets, compact JSON, empty where there is none.
    """

    run_row_id: int
    lane: int
    name: str
    scope: bytes
    fingerprint: bytes
    occurrence: int
    attempt: int
    tries: int
    generation: int
    started_at_ms: int
    repeatable: bool = True
    after_record_id: int = 0
    reserved: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record with its place: `record_id` = leaf index << 16 | position in the leaf's list of changes."""

    record_id: int
    run_row_id: int
    record: Record

    @property
    def erased(self) -> bool:
        """Whether its salt was erased, and with it all that was not its place, its name, its times and its usage."""
        return not self.record.salt

    @property
    def leaf_index(self) -> int:
        """Return the index of the leaf that holds this record's MAC."""
        return self.record_id >> 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """What is needed to restore by key, without the payload. An erased one has a filler for its fingerprint."""

    record_id: int
    scope: bytes
    name: str
    fingerprint: bytes
    occurrence: int
    attempt: int
    code: bytes
    value_sha256: bytes
    erased: bool = False


class KeptRecord(NamedTuple):
    """What an erasure would leave of a record (salt, payload and digests are empty), and how long its payload is."""

    record: StoredRecord
    payload_bytes: int


class UsageRow(NamedTuple):
    """What one call used, as stored (format: docs/formats/record.md), with what identifies the call."""

    record_id: int
    run_row_id: int
    kind: RecordKind
    scope: bytes
    name: str
    fingerprint: bytes
    occurrence: int
    attempt: int
    usage: bytes
    ended_at_ms: int


class RunInFlight(NamedTuple):
    """A run that has calls begun and not concluded, and since when the oldest of them is, in Unix milliseconds."""

    run_id: str
    state: RunState
    oldest_start_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One leaf: its index (0-based), the transaction that wrote it, and the bytes that are hashed."""

    index: int
    op_id: bytes
    envelope: bytes


@dataclass(slots=True, kw_only=True)
class Head:
    """The log's size and its frontier: the roots of the complete subtrees, largest first."""

    size: int
    frontier: tuple[bytes, ...]
    epoch: int
    time_ms: int


class Tx(Protocol):
    """One write transaction. All rows written through it and its one leaf land together or not at all."""

    @property
    def effects(self) -> EffectTx:
        """The rows of effects within this transaction."""
        ...

    @property
    def now_ms(self) -> int:
        """Unix milliseconds, read after the locks were taken; never below an earlier transaction's."""
        ...

    @property
    def losses(self) -> int:
        """How often, as it sees, the store lost what this process had committed with `sync=False`."""
        ...

    def find_run(self, run_id: str) -> RunRow | None:
        """Return the run with this run_id as the transaction sees it."""
        ...

    def get_run(self, row_id: int) -> RunRow:
        """Return the run with this row id; a missing one must raise Tampered."""
        ...

    def standing(self, row_id: int) -> RunStanding:
        """Return generation, state, reason and uid of a run, as get_run would; a missing one must raise Tampered."""
        ...

    def insert_run(
        self,
        *,
        run_uid: bytes,
        run_id: str,
        holder: str,
        parent_row_id: int | None = None,
        forked_from_row_id: int | None = None,
        queue: str | None = None,
    ) -> RunRow:
        """Insert a run in state running with generation 1 and attempt 1."""
        ...

    def update_run(
        self,
        row: RunRow,
        *,
        state: RunState,
        reason: str = "",
        generation: int,
        attempt: int,
        holder: str,
        start_record_id: int | None,
        last_start_record_id: int | None,
        end_record_id: int | None,
    ) -> None:
        """Write the run's new projection where its generation and state are still those of `row`; else Superseded."""
        ...

    def add_change(self, change: Change) -> None:
        """Add a transition without a record to this transaction's leaf."""
        ...

    def add_record(self, run_row_id: int, record: Record, change: Change) -> int:
        """Insert `record`, add `change` (whose `mac` must be the record's) to the leaf, return the record id.

        A second RESULT with the same (run, scope, fingerprint, occurrence) must raise Refused("already_recorded"), here
        or at the end of the transaction.
        """
        ...

    def erase_records(self, run_row_id: int, record_ids: Sequence[int]) -> int:
        """Erase those of these records that are the run's, of kinds 1 to 5 and not yet erased; return how many.

        Salt and payload become NULL; fingerprint, inputs, code and value digest go too. Place, scope, name,
        occurrence, times and usage must stay, and what was erased must be overwritten on the disk, not only freed.
        """
        ...

    def erase_marks(self, run_row_id: int, lanes: Sequence[int]) -> None:
        """Empty the fingerprints of these start marks."""
        ...

    def put_in_flight(self, mark: InFlight) -> None:
        """Write the start mark of a lane, replacing what the lane held."""
        ...

    def clear_in_flight(self, run_row_id: int, lane: int) -> None:
        """Remove a lane's mark; a lane without one is no error."""
        ...

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        """Return the marks of a run, by lane."""
        ...

    def budgets(self, run_row_id: int) -> dict[str, bytes]:
        """Return the counters of a run's budgets by tool, "" for the run's own, as the transaction sees them."""
        ...

    def is_erased(self, record_id: int) -> bool | None:
        """Return whether a record was erased; None for one that is not there."""
        ...

    def put_budget(self, run_row_id: int, tool: str, counters: bytes) -> None:
        """Write the counters of a budget, replacing what was there."""
        ...


class Reader(Protocol):
    """Reads outside a write transaction; each call sees one consistent state."""

    @property
    def effects(self) -> EffectReader:
        """The reads of effects."""
        ...

    def head(self) -> Head:
        """Return the log's head."""
        ...

    def find_run(self, run_id: str) -> RunRow | None:
        """Return the run, or None."""
        ...

    def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
        """Return runs, newest first, at most `limit`, with row ids below `before_row_id`."""
        ...

    def queued(self, queue: str, *, after_row_id: int, limit: int) -> list[RunRow]:
        """Return the runs of a queue that were submitted or are running, oldest first, above `after_row_id`.

        Must read no other run, however many wait or are over.
        """
        ...

    def waiting(self, queue: str, *, after_row_id: int, limit: int) -> list[RunRow]:
        """Return the runs of a queue that are suspended and were begun, oldest first. Otherwise as `queued`."""
        ...

    def run_row_ids(self, *, before_row_id: int | None, limit: int) -> list[int]:
        """Return the row ids that list_runs would go through, also where it must refuse a row for what it says."""
        ...

    def result_keys(self, run_row_id: int) -> list[RecordKey]:
        """Return the keys of all RESULT records of a run in the order they were recorded."""
        ...

    def keys_of(self, record_ids: Sequence[int]) -> list[RecordKey]:
        """Return the keys of these RESULT records, of whichever runs; a missing one must raise Tampered."""
        ...

    def count_results(self, run_row_id: int) -> int:
        """Return how many RESULT records a run has, erased ones too, without reading them."""
        ...

    def result_names(self, run_row_id: int) -> set[str]:
        """Return the names of the steps of which a run has a RESULT record, erased ones too, reading no more."""
        ...

    def record_names(self, run_row_id: int, *, kinds: Sequence[RecordKind]) -> Iterator[tuple[int, str]]:
        """Yield (record id, name) of a run's records of these kinds that are not erased, in the order recorded.

        In bounded memory but for 8 bytes per record.
        """
        ...

    def kept(self, record_ids: Sequence[int]) -> Iterator[KeptRecord]:
        """Yield these records without what an erasure takes, in the order given; a missing one must raise Tampered.

        Payloads must not be read for it.
        """
        ...

    def erased_names(self, run_row_id: int) -> list[str]:
        """Return the names of the steps of which a run has an erased RESULT, each once, without reading the others."""
        ...

    def has_erasable(self, run_row_id: int) -> bool:
        """Return whether a run has a record that `Tx.erase_records` would erase."""
        ...

    def usages(self, run_row_id: int) -> Iterator[UsageRow]:
        """Yield what the calls of a run used, for those that said so, in the order recorded, in bounded memory."""
        ...

    def get_run(self, row_id: int) -> RunRow:
        """Return the run with this row id; a missing one must raise Tampered."""
        ...

    def forks_of(self, row_id: int) -> list[RunRow]:
        """Return the runs that were forked from this one, oldest first."""
        ...

    def children_of(self, row_id: int) -> list[RunRow]:
        """Return the runs that were started within this one, oldest first."""
        ...

    def budgets(self, run_row_id: int) -> dict[str, bytes]:
        """Return the counters of a run's budgets by tool, "" for the run's own."""
        ...

    def record(self, record_id: int) -> StoredRecord:
        """Return one record with its payload; a missing one must raise Tampered."""
        ...

    def records(
        self, run_row_id: int, *, kinds: Sequence[RecordKind], after_record_id: int = -1
    ) -> Iterator[StoredRecord]:
        """Yield a run's records of these kinds with payloads, in the order recorded, in bounded memory."""
        ...

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        """Return the marks of a run, by lane."""
        ...

    def run_states(self) -> Mapping[RunState, int]:
        """Return how many runs are in each state that some run is in."""
        ...

    def runs_in_flight(self) -> list[RunInFlight]:
        """Return the runs that have start marks, the one with the oldest mark first."""
        ...

    def orphan_marks(self, *, limit: int) -> list[InFlight]:
        """Return the marks whose run does not exist, by place, at most `limit`."""
        ...

    def events(self, *, first: int, stop: int) -> Iterator[Event]:
        """Yield leaves first ≤ index < stop in order, in bounded memory."""
        ...

    def leaf_records(self, *, first: int, stop: int) -> Iterator[StoredRecord]:
        """Yield the records of leaves first ≤ index < stop in order, in bounded memory."""
        ...

    def tile(self, level: int, index: int) -> bytes | None:
        """Return the 255 inner nodes of a complete tile (8,160 bytes, heap order, root first), or None."""
        ...

    def tile_roots(self, level: int, *, first: int, stop: int) -> list[bytes]:
        """Return the roots of complete tiles first ≤ index < stop of a level."""
        ...


class Store(Protocol):
    """One provable log with its rows.

    - A transaction must change rows if and only if it appends exactly one leaf, and both must land or neither.
    - `transact` must run `fn` with the write lock held and the time read after it; `fn` must be called at most
      once per commit. An exception out of `fn` must roll everything back and pass through.
    - When the reply to a commit is lost, the store must look for `op_id` under the head lock: found means the
      commit landed and its value is returned; not found means Unavailable; unreachable means Uncertain.
    - A lock wait must end in Unavailable, never in going on.
    - After fork() every use in the child must raise Forked.
    - `sync=False` must survive the death of the process; it need not survive a power cut before the next synced commit.
    """

    @property
    def log_id(self) -> bytes:
        """The 16-byte id of this log, chosen at creation."""
        ...

    @property
    def authority(self) -> bool:
        """Whether this store may ever hold effects (set by `arl init`); False for a copy, whatever it was made of."""
        ...

    @property
    def location(self) -> str:
        """Where the store is, for messages."""
        ...

    def transact(self, op_id: bytes, fn: Callable[[Tx], T], *, sync: bool = True, first: Sequence[Question] = ()) -> T:
        """Run one transaction. See the class. What `fn` asks `first` may be answered with the lock, never before it."""
        ...

    def reader(self) -> Reader:
        """Return the read side; usable from any thread of this process."""
        ...

    def scrub(self) -> bool:
        """Make sure that the store's own side files hold no more of what was erased; False where readers hold it up."""
        ...

    def lock_run(self, run_id: str) -> RunLock | None:
        """Try to become the run's live attempt; None when another attempt (any process or thread) is live."""
        ...

    def is_run_live(self, run_id: str) -> bool:
        """Return whether an attempt of the run is live, in any process or thread.

        It must not make a `lock_run` anywhere fail, where the platform can ask without taking.
        """
        ...

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these runs for which `is_run_live` holds; at a server in one question, however many."""
        ...

    def on_submitted(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell`, from whichever thread, soon after a run was submitted in any process; return what ends that.

        A store that hears nothing must call nothing: who waits for runs must look by himself too.
        """
        ...

    def close(self) -> None:
        """Release the store; a second call does nothing."""
        ...


class Observer(Protocol):
    """Is told what happens in runs, and changes nothing.

    - It must not rely on being told: a process that dies tells nothing, and an `execute` that opens no attempt (the
      run is completed, refused or busy) tells nothing either. The records are the truth.
    - What it raises is logged once for each attempt and dropped; the run must go on as if nobody watched. Only a
      BaseException that is no Exception (an interrupt) passes through.
    - It must not block: it is told while the run waits, in an async run on the thread that serves the store.
    - It is told outside of every transaction and lock of the store, and must not call `execute` for the same run.
    - It must accept calls from several threads, a body that ends after its call was concluded (a timeout) or after
      the attempt ended, a conclusion of a call whose body never began, and notices of kinds it does not know.
    - In a forked child of the process that opened the attempt nothing is told.
    """

    def tell(self, notice: Notice) -> None:
        """Take note. Of one attempt: AttemptOpened first, AttemptEnded last."""
        ...

    def around(self, call: CallBegun) -> AbstractContextManager[object]:
        """Return what is entered where the body runs (its thread, its task) before it and left after it.

        It sees the body's exception and cannot swallow it.
        """
        ...
