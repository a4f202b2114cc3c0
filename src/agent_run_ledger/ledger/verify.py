"""The auditor's check: reads a whole log once and says everything in which leaves, records, tiles and rows disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from agent_run_ledger.errors import LedgerError, Misuse, Unavailable
from agent_run_ledger.kernel.effects import WitnessPolicy
from agent_run_ledger.kernel.effects.clock import is_correction
from agent_run_ledger.kernel.effects.record import ACTION
from agent_run_ledger.kernel.effects.trust_change import is_trust_change
from agent_run_ledger.kernel.envelope_check import EnvelopeCheck
from agent_run_ledger.kernel.merkle import leaf_hash, root, verify_consistency
from agent_run_ledger.kernel.record import SUBMITTED_KEY, record_mac
from agent_run_ledger.kernel.replay import Replay, Track, lawful_kind
from agent_run_ledger.kernel.states import CallState
from agent_run_ledger.kernel.tiles import TILE_WIDTH
from agent_run_ledger.ledger.around import Around
from agent_run_ledger.ledger.by_leaf import UNREADABLE, ByLeaf, readable
from agent_run_ledger.ledger.effect_audit import EffectAudit
from agent_run_ledger.ledger.erased import ErasedRecords
from agent_run_ledger.ledger.proofs import consistency_proof
from agent_run_ledger.ledger.regrown import RegrownTree
from agent_run_ledger.ledger.views import record_content
from agent_run_ledger.ports import Event, Head, Reader, RunRow, StoredRecord
from agent_run_ledger.runs.attempt import PARENT_KEY
from agent_run_ledger.store.moves import RETIRED_STATE

MAX_PROBLEMS = 100
"""Problems kept with their words; the others are only counted."""

_END_OF_TIME = (1 << 47) - 1  # beyond every leaf index: record ids have 16 bits less than 63
_PAGE = 500
_SETTLE_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One contradiction. `leaf_index` is None where it belongs to no leaf."""

    leaf_index: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was read and what is wrong. `root_hex` is the recomputed root, "" where leaves are missing.

    `erased` of the `records` are erased, each by a decision unless `problems` says otherwise. `actions` are the
    members of all keys, and `witness` the kind of witness that the ledger had at the latest transition of one.
    `problems` has the first MAX_PROBLEMS of `problem_count`.
    """

    leaves: int
    records: int
    erased: int = 0
    runs: int
    actions: int = 0
    witness: WitnessPolicy | None = None
    log_id_hex: str
    root_hex: str
    problems: tuple[Problem, ...]
    problem_count: int

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts anything."""
        return self.problem_count == 0


def verify_log(
    reader: Reader,
    *,
    log_id: bytes | None = None,
    is_copy: bool | None = None,
    is_retired: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Read the whole log and return everything that contradicts it; it does not stop at a problem.

    Trusted is nothing but the envelopes' bytes: leaf hashes, tiles, frontier, MACs, the states of every run and its
    row are recomputed from them, and the rules are asked again about every action. `log_id` (16 bytes) is the log that
    is meant; without it the first leaf decides.
    `is_copy` and `is_retired` are what the store says of itself: the log must say the same. `progress` gets (leaves
    read, leaves in all).
    Memory: a third of a KiB for each run, 41 bytes for each erased record, what is on record of one action's key, and
    nothing for a leaf. A log that grows meanwhile is followed; raises Unavailable where one run or key changes faster
    than it can be read.
    """
    audit = _Audit(reader, log_id, progress)
    audit.follow()
    audit.compare_rows()
    audit.replay_actions()
    audit.settle_erasures()
    audit.look_for_strays()
    if is_copy is not None:
        audit.compare_copy(is_copy)
    if is_retired is not None:
        audit.compare_retired(is_retired)
    return audit.report()


def verify_extends(reader: Reader, old_size: int, old_root: bytes) -> bool:
    """Return whether the log still begins with the log of `old_size` leaves that had the 32-byte `old_root`.

    This is for somebody who noted size and root earlier, elsewhere. It rests on the stored tiles: run `verify_log`
    too. False for a log that is shorter, was changed, or lacks what a proof needs.
    """
    try:
        head = reader.head()
        new_root = root(head.size, head.frontier)
        proof = consistency_proof(reader, old_size, head.size)
    except (Misuse, *UNREADABLE):
        return False
    return verify_consistency(old_size, old_root, head.size, new_root, proof)


class _Audit:
    """One pass over one log. `_at` is the index of the next leaf."""

    def __init__(self, reader: Reader, log_id: bytes | None, progress: Callable[[int, int], None] | None) -> None:
        self._reader = reader
        self._progress = progress
        self._envelopes = EnvelopeCheck(log_id)
        self._replay = Replay()
        self._tree = RegrownTree(reader)
        self._erased = ErasedRecords(reader)
        self._effects = EffectAudit(reader, self._note)
        self._head: Head | None = None
        self._size = 0
        self._at = 0
        self._leaves = 0
        self._records = 0
        self._rows_unreadable = False
        self._copied_at: int | None = None
        self._retired_at: int | None = None
        self._authority = False
        self._problems: list[Problem] = []
        self._problem_count = 0

    def report(self) -> Report:
        """Return what was found so far."""
        frontier = self._tree.frontier()
        return Report(
            leaves=self._leaves,
            records=self._records,
            erased=self._erased.count,
            runs=len(self._replay.tracks),
            actions=self._effects.actions,
            witness=self._effects.witness,
            log_id_hex=self._envelopes.log_id_hex or "",
            root_hex="" if frontier is None else root(self._leaves, frontier).hex(),
            problems=tuple(self._problems),
            problem_count=self._problem_count,
        )

    def follow(self) -> None:
        """Read on to the log's present end, and compare the head there."""
        before = self._head
        try:
            head = self._head = self._reader.head()
        except UNREADABLE as error:
            if self._at == 0:
                self._note(None, f"the head cannot be read: {error}")
                self._read_to(max((event.index for event in self._events(0, _END_OF_TIME)), default=-1) + 1)
            return
        if head.size < self._at:
            self._note(None, f"the head's size fell from {self._at} to {head.size}")
            return
        self._read_to(head.size)
        if head != before:
            self._compare_head(head)

    def _read_to(self, size: int) -> None:
        self._size = size
        while self._at < size:
            self._read_leaves(self._at, min((self._at // TILE_WIDTH + 1) * TILE_WIDTH, size))
            if self._progress is not None:
                self._progress(self._at, size)

    def _compare_head(self, head: Head) -> None:
        frontier = self._tree.frontier()
        if frontier is not None and head.frontier != frontier:
            self._note(None, f"the head's frontier is not that of its {head.size} leaves")
        if head.size == self._leaves:
            self._note_all(None, self._envelopes.wrong_head(epoch=head.epoch, time_ms=head.time_ms))

    def compare_rows(self) -> None:
        """Compare every run's row and marks with what the log says of it, although both may go on meanwhile."""
        listed_at = self._at
        suspects: list[str] = []
        for row in self._rows():
            track = self._replay.tracks.get(row.run_uid.hex())
            if track is not None:
                track.row_seen = True
            if self._row_problems(row):
                suspects.append(row.run_id)
        self.follow()
        for run_id in suspects:
            self._look_again(run_id)
        for uid, track in self._replay.tracks.items():
            if not track.row_seen and (track.first_start_id or 0) >> 16 < listed_at:
                readable = " that can be read" if self._rows_unreadable else ""
                self._note(track.last_leaf, f"run {uid} is in the log and has no row{readable}")

    def replay_actions(self) -> None:
        """Ask the rules again about every action, and compare its row, although it may go on meanwhile."""
        self._effects.replay(self._at)

    def settle_erasures(self) -> None:
        """Report erased records that no decision explains, when every decision is read that could."""
        for _ in range(_SETTLE_TRIES):
            before = self._at
            self.follow()
            if self._erased.is_settled or self._at == before:
                break
        for record_id, text in self._erased.unexplained():
            self._note(record_id >> 16, text)

    def compare_copy(self, is_copy: bool) -> None:
        """Compare what the store says of itself with the leaf that makes a copy one."""
        if is_copy is not (self._copied_at is not None):
            says = "is a copy, which the log does not say" if is_copy else "is no copy, and the log says that it is one"
            self._note(self._copied_at, f"the store says that it {says}")

    def compare_retired(self, is_retired: bool) -> None:
        """Compare what the store says of itself with the leaf that retires one."""
        if is_retired is not (self._retired_at is not None):
            says = "is retired, which the log does not say" if is_retired else "is live, and the log retired it"
            self._note(self._retired_at, f"the store says that it {says}")

    def look_for_strays(self) -> None:
        """Report leaves, records and tiles beyond the head or before the first leaf, and marks without a run."""
        for first, stop in ((-_END_OF_TIME, 0), (self._at, _END_OF_TIME)):
            events = [event.index for event in islice(self._events(first, stop), MAX_PROBLEMS)]
            records = [stored.leaf_index for stored in islice(self._leaf_records(first, stop), MAX_PROBLEMS)]
            self._effects.look_for_strays(first, stop, self._size_now)
            size = self._size_now()  # read after them: what landed meanwhile is below it
            for index in events:
                if not 0 <= index < size:
                    self._note(index, "a leaf outside the log that the head describes")
            for index in records:
                if not 0 <= index < size:
                    self._note(index, "a record outside the log that the head describes")
        self._note_all(None, self._tree.stray_tiles(self._size_now))
        try:
            orphans = self._reader.orphan_marks(limit=MAX_PROBLEMS)
        except UNREADABLE as error:
            self._note(None, f"the marks of runs that do not exist cannot be read: {error}")
            return
        for mark in orphans:
            self._note(None, f"step {mark.name!r} is in flight in run row {mark.run_row_id}, which does not exist")

    def _read_leaves(self, first: int, stop: int) -> None:
        """Check leaves first ≤ index < stop, and set `_at` behind them or, where all are missing, behind the gap."""
        events = list(self._events(first, stop))
        if not events:
            following = next(self._events(stop, self._size), None)
            stop = self._size if following is None else following.index
        expected = first
        beside = ByLeaf(self._leaf_records(first, stop), self._note, "a record of a leaf that is missing")
        self._effects.begin(first, stop)
        for event in events:
            if event.index > expected:
                self._note_gap(expected, event.index)
            expected = event.index + 1
            self._check_leaf(event, beside.of(event.index))
        if expected < stop:
            self._note_gap(expected, stop)
        beside.finish()
        self._effects.end()
        self._at = stop

    def _check_leaf(self, event: Event, own: dict[int, StoredRecord]) -> None:
        """Check one envelope, its changes and its records; `own` is keyed by position."""
        self._leaves += 1
        self._records += len(own)
        index = event.index
        changes, wrong = self._envelopes.changes(event.op_id, event.envelope)
        wrong += self._tree.append(leaf_hash(event.envelope))
        if wrong:
            self._note_all(index, wrong)
        for position, change in enumerate(changes):
            if change["type"] == ACTION or is_correction(change) or is_trust_change(change):
                continue
            stored = own.pop(position, None)
            mac = change.get("mac")
            uid, old, new, generation = change["id"], change["old"], change["new"], change["generation"]
            if stored is not None or mac is not None:
                self._check_record(index, position, change, stored)
            kind = None if stored is None else stored.record.kind
            if stored is None and mac is not None:
                kind = lawful_kind(change["type"], old, new)  # that the record is missing is said once
            place = index << 16 | position
            if change["type"] == "step":
                resolves = _resolves(stored) if new == CallState.RESOLVED.value else None
                wrong = self._replay.step_change(
                    uid, old, new, generation, kind=kind, record_id=place, resolves=resolves
                )
            elif change["type"] == "run":
                wrong = self._replay.run_change(uid, old, new, generation, kind=kind, record_id=place)
            else:
                self._copied_at = index if new == "copy" else self._copied_at
                self._authority = self._authority or new == "authority"
                if new == RETIRED_STATE:
                    self._retired_at = index
                elif old == RETIRED_STATE and new != "copy":
                    self._retired_at = None  # where the ledger went, it goes on
                continue
            if wrong:
                self._note_all(index, [f"change {position}, run {uid}: {text}" for text in wrong])
        is_copy = self._copied_at is not None
        around = Around(
            log_id_hex=self._envelopes.log_id_hex,
            epoch=self._envelopes.epoch,
            authority=self._authority,
            is_copy=is_copy,
        )
        self._effects.leaf(index, changes, around)
        for position in own:
            self._note(index, f"a record at position {position}, where the leaf has no change")

    def _check_record(self, index: int, position: int, change: Mapping[str, Any], stored: StoredRecord | None) -> None:
        uid, mac = change["id"], change.get("mac")
        if stored is None:
            self._note(index, f"change {position} has the MAC of a record that is not in the store")
            return
        if mac is None:
            self._note(index, f"change {position} has a record and no MAC of it")
            return
        record = stored.record
        if stored.erased:
            self._note_all(index, self._erased.note(uid, stored))
            return
        try:
            same = record_mac(record).hex() == mac
        except (AttributeError, OverflowError, *UNREADABLE):
            same = False
        if not same:
            self._note(index, f"the record at position {position} is not the one whose MAC the leaf has")
        elif record.run_uid.hex() != uid:
            self._note(index, f"the record at position {position} belongs to another run than its change")
        elif change["new"] == CallState.ERASED.value:
            self._note_all(index, self._erased.settle(uid, stored))

    def _look_again(self, run_id: str) -> None:
        """Compare one run until the log did not move it between two looks; then a difference is a problem."""
        for _ in range(_SETTLE_TRIES):
            before = self._at
            try:
                row = self._reader.find_run(run_id)
            except UNREADABLE as error:
                self._note(None, f"the row of run {run_id!r} cannot be read: {error}")
                return
            if row is None:
                self._note(None, f"the row of run {run_id!r} was there and is gone")
                return
            wrong = self._row_problems(row)
            self.follow()
            if not wrong:
                return
            track = self._replay.tracks.get(row.run_uid.hex())
            if track is None or track.last_leaf < before:
                self._note_all(None if track is None else track.last_leaf, wrong)
                return
        raise Unavailable(f"run {run_id!r} changes faster than it can be verified", hint="verify when it is quieter")

    def _row_problems(self, row: RunRow) -> list[str]:
        track = self._replay.tracks.get(row.run_uid.hex())
        if track is None:
            return [f"run {row.run_id!r} has a row and is not in the log"]
        try:
            marks = len(self._reader.in_flight(row.row_id))
        except UNREADABLE as error:
            return [f"the marks of run {row.run_id!r} cannot be read: {error}"]
        return [
            f"the row of run {row.run_id!r} says {name} {in_row!r}, the log {in_log!r}"
            for name, in_row, in_log in (*_compared(row, marks, track), *self._started_as(row, track))
            if in_row != in_log
        ]

    def _started_as(self, row: RunRow, track: Track) -> Iterator[tuple[str, object, object]]:
        """Yield the run_id of the row beside that of the first START record, whose MAC was checked on the way."""
        if track.first_start_id is None or row.start_record_id != track.first_start_id:
            return
        try:
            record = self._reader.record(track.first_start_id).record
            is_erased = not record.salt
            if is_erased and track.erasure_id is not None:  # its erasure says it too
                record = self._reader.record(track.erasure_id).record
            content = record_content(record)
        except (LedgerError, *UNREADABLE):  # said when the record itself was read
            return
        if "run_id" in content:
            yield "run_id", row.run_id, content["run_id"]
            if not is_erased:
                submitted = content.get(SUBMITTED_KEY)
                yield "queue", row.queue, cast("dict[str, object]", submitted).get("queue") if submitted else None
            fork = content.get("fork")
            in_log = cast("dict[str, object]", fork).get("run_uid") if isinstance(fork, dict) else None
            forked_from = content.get("forked_from") if is_erased else in_log
            yield "the run it was forked from", self._uid_hex(row.forked_from_row_id), forked_from
            yield "the run it was started within", self._uid_hex(row.parent_row_id), content.get(PARENT_KEY)

    def _uid_hex(self, row_id: int | None) -> str | None:
        """Return the uid of the run in a row that another row names."""
        try:
            return None if row_id is None else self._reader.get_run(row_id).run_uid.hex()
        except UNREADABLE:
            return f"row {row_id}"

    def _rows(self) -> Iterator[RunRow]:
        """Yield every run's row that can be read; what cannot be read is noted and skipped."""
        before: int | None = None
        while True:
            try:
                row_ids = self._reader.run_row_ids(before_row_id=before, limit=_PAGE)
            except UNREADABLE as error:
                self._note(None, f"the rows of runs cannot be read below row {before}: {error}")
                return
            if not row_ids:
                return
            try:
                yield from self._reader.list_runs(state=None, before_row_id=row_ids[0] + 1, limit=len(row_ids))
            except UNREADABLE:
                for row_id in row_ids:
                    yield from self._row(row_id)
            before = row_ids[-1]

    def _row(self, row_id: int) -> list[RunRow]:
        try:
            return self._reader.list_runs(state=None, before_row_id=row_id + 1, limit=1)
        except UNREADABLE as error:
            self._rows_unreadable = True
            self._note(None, f"the row of a run, row {row_id}, cannot be read: {error}")
            return []

    def _events(self, first: int, stop: int) -> Iterator[Event]:
        """Yield what can be read of a range of leaves; what cannot be read is noted and skipped."""
        last = first - 1
        try:
            for event in self._reader.events(first=first, stop=stop):
                yield event
                last = event.index
        except UNREADABLE as error:
            if stop - first == 1:
                self._note(first, f"the leaf cannot be read: {error}")
                return
            for index in range(last + 1, min(stop, last + 1 + TILE_WIDTH)):
                yield from self._events(index, index + 1)

    def _leaf_records(self, first: int, stop: int) -> Iterator[StoredRecord]:
        """Yield what can be read of the records of a range of leaves; what cannot be read is noted and skipped."""
        return readable(
            lambda begin, end: self._reader.leaf_records(first=begin, stop=end), first, stop, self._note, "a record"
        )

    def _size_now(self) -> int:
        try:
            return self._reader.head().size
        except UNREADABLE:  # has been noted
            return self._size

    def _note_gap(self, first: int, stop: int) -> None:
        self._tree.break_off()
        self._note(first, "the leaf is missing" if stop - first == 1 else f"leaves {first} to {stop - 1} are missing")

    def _note(self, leaf_index: int | None, text: str) -> None:
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(leaf_index=leaf_index, text=text))

    def _note_all(self, leaf_index: int | None, texts: list[str]) -> None:
        for text in texts:
            self._note(leaf_index, text)


def _resolves(stored: StoredRecord | None) -> int | None:
    """Return which record a resolution says it resolves: -1 where it names none, None where it is not there."""
    if stored is None:
        return None
    said: object = record_content(stored.record).get("record")
    return said if type(said) is int else -1


def _compared(row: RunRow, marks: int, track: Track) -> Iterator[tuple[str, object, object]]:
    yield "state", str(row.state), track.state
    yield "generation", row.generation, track.generation
    yield "attempt", row.attempt, track.attempt
    yield "first START record", row.start_record_id, track.first_start_id
    yield "last START record", row.last_start_record_id, track.last_start_id
    yield "END record", row.end_record_id, track.end_record_id
    yield "calls in flight", marks, track.in_flight
