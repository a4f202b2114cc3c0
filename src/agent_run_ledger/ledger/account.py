"""The read model of what runs cost: spent, restored and uncertain, for one run or a whole store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, cast

from agent_run_ledger.errors import Misuse, Tampered
from agent_run_ledger.kernel.account import Book, By, Entry, Lines, read_lines
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.ledger.views import is_live, record_content
from agent_run_ledger.ports import Reader, RunRow, Store, StoredRecord, UsageRow
from agent_run_ledger.runs.abandoned import RESOLVE, is_unknown

PAGE: Final = 500
DAY_MS: Final = 86_400_000
_ENDED: Final = (RecordKind.ERROR, RecordKind.RESCUED)
_TIMEOUT: Final = "agent_run_ledger.errors:StepTimeout"
_Call = tuple[bytes, str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one run, or all runs of a store, used.

    `rows`: the same by step, model, run or day, in the order in which they first occurred. `silent`: how many records
    of calls that ended say nothing at all (a step that asks no model says nothing); None where a beginning was asked
    for. `running`: calls that a living attempt has begun. `runs`: how many runs were read.
    """

    total: Entry
    rows: Mapping[str, Entry]
    silent: int | None
    running: int
    runs: int


def parse_by(by: str | None) -> By | None:
    """Return what the rows of an account stand for; Misuse for another word."""
    try:
        return None if by is None else By(by)
    except ValueError:
        words = ", ".join(repr(str(one)) for one in By)
        raise Misuse(f"by must be one of {words} or None, not {by!r}", code="bad_setting") from None


def account_of_run(store: Store, row: RunRow, *, by: By | None = By.STEP) -> Account:
    """Return the account of one run. Tampered for a usage that is none; reads no recorded values."""
    return _account(store, [row], by=by)


def account_of_family(store: Store, row: RunRow, *, by: By | None = By.RUN) -> Account:
    """Return the account of a run with all runs that were started within it, at any depth. Errors as of one run."""
    rows, seen = [row], {row.row_id}
    for one in rows:
        for child in store.reader().children_of(one.row_id):
            if child.row_id not in seen:
                seen.add(child.row_id)
                rows.append(child)
    return _account(store, rows, by=by)


def account_of_store(
    store: Store,
    *,
    by: By | None = None,
    since_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Account:
    """Return the account of all runs, of what ended from `since_ms` on (Unix milliseconds).

    Memory: a few hundred bytes per row of the account, and the record ids of one END. Tampered as of one run.
    """
    total = sum(1 for _ in _row_ids(store.reader())) if progress else 0
    return _account(store, _rows(store.reader()), by=by, since_ms=since_ms, progress=progress, total=total)


def _account(
    store: Store,
    rows: Sequence[RunRow] | Iterator[RunRow],
    *,
    by: By | None,
    since_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    total: int = 0,
) -> Account:
    book = Book(by)
    ended = running = runs = 0
    for row in rows:
        reading = _RunReading(store, row, book, by=by, since_ms=since_ms)
        reading.post()
        ended, running, runs = ended + reading.ended, running + reading.running, runs + 1
        if progress is not None:
            progress(runs, max(total, runs))
    return Account(
        total=book.whole(),
        rows={} if by is None else book.entries,
        silent=None if since_ms is not None else max(0, ended - book.spent_records),
        running=running,
        runs=runs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of an attempt: which records it used."""

    attempt: int
    at_ms: int
    used: frozenset[int]


@dataclass(slots=True, kw_only=True)
class _Doubts:
    """Calls of one key that were begun and left, each with its record's id and row."""

    open: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


class _RunReading:
    """Reads one run into a book, in one pass over its usages and one over its few other records."""

    def __init__(self, store: Store, row: RunRow, book: Book, *, by: By | None, since_ms: int | None) -> None:
        self._store = store
        self._reader = store.reader()
        self._row = row
        self._book = book
        self._by = by
        self._since_ms = since_ms
        self._ends: list[_End] = []
        self._doubts: dict[_Call, _Doubts] = {}
        self._doubted: dict[int, tuple[str, bool]] = {}
        self.ended = 0
        self.running = 0

    def post(self) -> None:
        """Read the run and post everything it says."""
        self.ended = self._reader.count_results(self._row.row_id)
        self._read_others()
        self._read_marks()
        for used in self._reader.usages(self._row.row_id):
            self._post_own(used)
        for used in self._inherited():
            for end in self._ends:
                if used.record_id in end.used:
                    self._restore(end, used)
        for key, unknown in self._doubted.values():  # last, so that rows come in the order of what was recorded
            self._book.doubt(key, unknown=unknown)

    def _read_others(self) -> None:
        kinds = (*_ENDED, RecordKind.ABANDONED, RecordKind.END, RecordKind.DECISION)
        inherits = self._row.forked_from_row_id is not None
        for stored in self._reader.records(self._row.row_id, kinds=kinds):
            record = stored.record
            if record.kind in _ENDED:
                self.ended += 1
            if record.kind is RecordKind.ABANDONED or _timed_out(record):
                self._note_doubt(stored)
            elif record.kind is RecordKind.DECISION:
                if record.name == RESOLVE:
                    self._resolve(record)
            elif (
                record.kind is RecordKind.END and (record.attempt > 1 or inherits) and self._counts(record.ended_at_ms)
            ):
                self._ends.append(_End(attempt=record.attempt, at_ms=record.ended_at_ms, used=_used(record)))

    def _note_doubt(self, stored: StoredRecord) -> None:
        record = stored.record
        if self._counts(record.ended_at_ms):
            key = self._key(record.name, record.ended_at_ms)
            self._doubted[stored.record_id] = (key, is_unknown(record))
            call = (record.scope, record.name, record.fingerprint)
            self._doubts.setdefault(call, _Doubts()).open.append((stored.record_id, key))

    def _resolve(self, decision: Record) -> None:
        """Take back the doubt about a call that a person has settled; what it used stands in its own record."""
        record_id = record_content(decision).get("record")
        if type(record_id) is int and self._doubted.pop(record_id, None) is not None:
            for doubts in self._doubts.values():
                doubts.open = [doubt for doubt in doubts.open if doubt[0] != record_id]

    def _read_marks(self) -> None:
        """Post what is in flight: running where its attempt lives, else as uncertain as an abandoned call."""
        marks = self._reader.in_flight(self._row.row_id)
        if marks and is_live(self._store, self._row) is not False:
            self.running = len(marks)
            return
        for mark in marks:
            if self._counts(mark.started_at_ms):
                key = self._key(mark.name, mark.started_at_ms)
                self._doubted[-1 - mark.lane] = (key, not mark.repeatable)

    def _post_own(self, used: UsageRow) -> None:
        if self._counts(used.ended_at_ms):
            self._book.spend(self._key(used.name, used.ended_at_ms), _lines(used))
        for end in self._ends:
            if used.attempt < end.attempt and used.record_id in end.used:
                self._restore(end, used)
        if self._doubts and used.kind is RecordKind.RESULT:
            self._settle(used)

    def _settle(self, used: UsageRow) -> None:
        """Post the usage of a call's result as the estimate for those of its starts before it that were left."""
        doubts = self._doubts.get((used.scope, used.name, used.fingerprint))
        if doubts is None:
            return
        for record_id, key in doubts.open:
            if record_id < used.record_id:
                self._book.estimate(key, _lines(used))
        doubts.open = [doubt for doubt in doubts.open if doubt[0] >= used.record_id]

    def _restore(self, end: _End, used: UsageRow) -> None:
        self._book.restore(self._key(used.name, end.at_ms), _lines(used))

    def _inherited(self) -> Iterator[UsageRow]:
        """Yield the usages of the runs that this one was forked from, as far as an END names records of theirs."""
        seen, ancestor = {self._row.row_id}, self._row.forked_from_row_id
        while ancestor is not None and ancestor not in seen and self._ends:
            seen.add(ancestor)
            yield from self._reader.usages(ancestor)
            ancestor = self._reader.get_run(ancestor).forked_from_row_id

    def _counts(self, at_ms: int) -> bool:
        return self._since_ms is None or at_ms >= self._since_ms

    def _key(self, step: str, at_ms: int) -> str:
        if self._by is By.STEP:
            return step
        if self._by is By.RUN:
            return self._row.run_id
        return _day(at_ms // DAY_MS) if self._by is By.DAY else ""


def _lines(used: UsageRow) -> Lines:
    try:
        return read_lines(used.usage)
    except (ValueError, TypeError) as error:
        raise Tampered(
            f"record {used.record_id} of step {used.name!r} says no usage that it can have: {error}",
            hint="run `arl verify`",
        ) from error


def _timed_out(record: Record) -> bool:
    """Return whether a record is of a call whose time was over: its body may have gone on, and nobody knows how far."""
    return record.kind is RecordKind.ERROR and record_content(record).get("t") == _TIMEOUT


def _used(end: Record) -> frozenset[int]:
    """Return the ids of the records that an attempt used; a content that is none names none."""
    ids = record_content(end).get("used")
    return frozenset(one for one in cast("list[object]", ids) if type(one) is int) if type(ids) is list else frozenset()


@lru_cache(maxsize=1024)
def _day(number: int) -> str:
    try:
        return datetime.fromtimestamp(number * 86_400, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "?"


def _row_ids(reader: Reader) -> Iterator[int]:
    before: int | None = None
    while page := reader.run_row_ids(before_row_id=before, limit=PAGE):
        yield from page
        before = page[-1]


def _rows(reader: Reader) -> Iterator[RunRow]:
    """Yield all runs, newest first."""
    before: int | None = None
    while page := reader.list_runs(state=None, before_row_id=before, limit=PAGE):
        yield from page
        before = page[-1].row_id
