"""Telling the observers of one attempt what happens in it; whatever they do, the run goes on as if nobody watched."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.loops import Verdict
from agent_run_ledger.kernel.notices import (
    AbandonedCall,
    AttemptEnded,
    AttemptOpened,
    CallBegun,
    CallConcluded,
    CallJudged,
    CallRestored,
    CallUnrecorded,
    CommitMade,
    Notice,
)
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Observer, Reader, RecordKey, RunRow, Store
from agent_run_ledger.runs.abandoned import is_unknown

log = logging.getLogger("agent_run_ledger")

Entered = tuple[Observer, AbstractContextManager[object]]

NEVER_S = -1.0
"""The waiting time of a commit that never had the lock."""


class Conclusion(Protocol):
    """A call that ended, with the record that says how (see journal.Concluded)."""

    @property
    def record(self) -> Record:
        """The record that is about to be committed."""
        ...


@dataclass(slots=True, kw_only=True)
class _Ending:
    call: CallBegun
    item: Conclusion
    error: BaseException | None
    again: bool


class Watch:
    """Guarantees: no Exception of an observer reaches the run, each observer's first one is logged; a call whose body
    began is told to be concluded or unrecorded, once; nothing is told in a forked child or after the end.
    """

    def __init__(
        self, observers: Sequence[Observer], opened: AttemptOpened, read_usage: Callable[[int], bytes]
    ) -> None:
        self._observers = tuple(observers)
        self._read_usage = read_usage
        self._pid = os.getpid()
        self._over = False
        self._failed: set[int] = set()
        self._begun: dict[CallBegun, None] = {}
        self._endings: dict[int, _Ending] = {}
        self.attempt = opened
        self.state = RunState.RUNNING
        self._tell(opened)

    def body(self, step: str, tries: int, started_at_ms: int) -> Around:
        """Return what the body of this call is to run in."""
        return Around(self, CallBegun(attempt=self.attempt, step=step, tries=tries, started_at_ms=started_at_ms))

    def restored(self, key: RecordKey) -> None:
        """A call was answered from its record."""
        record_id = key.record_id
        self._tell(
            CallRestored(
                attempt=self.attempt,
                step=key.name,
                record_id=record_id,
                read_usage=lambda: self._read_usage(record_id),
            )
        )

    def ending(self, around: Around, item: Conclusion, error: BaseException | None, *, again: bool) -> None:
        """A call ended; `landed` tells of it when its record is committed, `ended` when it never is."""
        self._endings[id(item)] = _Ending(call=around.call, item=item, error=error, again=again)

    def committed(self, *, began_s: float, locked_s: float | None, ended_s: float, error: BaseException | None) -> None:
        """A commit came back, at these moments of the monotonic clock."""
        failed = "" if error is None else error.code if isinstance(error, LedgerError) else type(error).__name__
        waited_s = NEVER_S if locked_s is None else locked_s - began_s
        took_s = ended_s - began_s
        self._tell(CommitMade(attempt=self.attempt, waited_s=waited_s, took_s=took_s, failed=failed))

    def landed(self, state: RunState, items: Sequence[Conclusion], record_ids: Sequence[int]) -> None:
        """These calls are committed under these record ids, in their order; the run is in this state."""
        self.state = state
        for item, record_id in zip(items, record_ids, strict=True):
            ending = self._endings.pop(id(item), None)
            if ending is None:
                continue
            self._begun.pop(ending.call, None)
            record = ending.item.record
            self._tell(
                CallConcluded(
                    call=ending.call,
                    kind=record.kind,
                    record_id=record_id,
                    ended_at_ms=record.ended_at_ms,
                    usage=record.usage,
                    error=ending.error,
                    again=ending.again,
                )
            )

    def judged(self, step: str, record_id: int, verdict: Verdict) -> None:
        """The breaker said this of a call whose record is committed."""
        self._tell(
            CallJudged(
                attempt=self.attempt,
                step=step,
                record_id=record_id,
                level=verdict.level.name.lower(),
                rule=verdict.rule,
                count=verdict.count,
                limit=verdict.limit,
            )
        )

    def ended(self, error: BaseException | None) -> None:
        """The attempt gave the run back; what is not known to be recorded is told as such."""
        known = {ending.call: ending.item.record.usage for ending in self._endings.values()}
        for call in {**self._begun, **known}:
            self._tell(CallUnrecorded(call=call, usage=known.get(call, b"")))
        self._tell(AttemptEnded(attempt=self.attempt, state=self.state, error=error))
        self._over = True

    def began(self, call: CallBegun) -> list[Entered]:
        """Enter what the observers put around a body, in their order, and return it."""
        entered: list[Entered] = []
        if not self._tells():
            return entered
        self._begun[call] = None
        for observer in self._observers:
            try:
                manager = observer.around(call)
                manager.__enter__()
                entered.append((observer, manager))
            except Exception as error:
                self._dropped(observer, error)
        return entered

    def left(
        self,
        entered: Sequence[Entered],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it again, the last one first. What an observer would swallow goes on all the same."""
        for observer, manager in reversed(entered):
            try:
                manager.__exit__(kind, error, trace)
            except Exception as failure:
                if failure is not error:  # who passes the body's own exception on has not failed
                    self._dropped(observer, failure)

    def _tells(self) -> bool:
        return not self._over and os.getpid() == self._pid

    def _tell(self, notice: Notice) -> None:
        if not self._tells():
            return
        for observer in self._observers:
            try:
                observer.tell(notice)
            except Exception as error:
                self._dropped(observer, error)

    def _dropped(self, observer: Observer, error: Exception) -> None:
        if id(observer) in self._failed:
            return
        self._failed.add(id(observer))
        log.warning(
            "run %r: an observer (%s) raised %s; the run is not affected, further ones of this attempt are not logged",
            self.attempt.run_id,
            type(observer).__name__,
            type(error).__name__,
            exc_info=error,
        )


class Around:
    """A body's surroundings, as its observers want them; it swallows nothing."""

    __slots__ = ("_entered", "_watch", "call")

    def __init__(self, watch: Watch, call: CallBegun) -> None:
        self._watch = watch
        self._entered: list[Entered] = []
        self.call = call

    def __enter__(self) -> Self:
        """Enter what the observers return, in this thread and context."""
        self._entered = self._watch.began(self.call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it in the same thread and context."""
        self._watch.left(self._entered, kind, error, trace)


def begin_watch(observers: Sequence[Observer], store: Store, row: RunRow, *, takeover: bool) -> Watch | None:
    """Tell of an attempt that was just opened, and return what tells the rest; None where nobody watches."""
    if not observers:
        return None
    reader = store.reader()
    opened = AttemptOpened(
        run_id=row.run_id,
        attempt=row.attempt,
        generation=row.generation,
        resumed=row.attempt > 1,
        takeover=takeover,
        abandoned=_abandoned(reader, row),
    )
    return Watch(observers, opened, _usage_reader(reader, row))


def _abandoned(reader: Reader, row: RunRow) -> tuple[AbandonedCall, ...]:
    """Return what the START of this attempt recorded as abandoned: the records behind it in its own leaf."""
    if row.attempt == 1 or row.last_start_record_id is None:
        return ()
    try:
        found = reader.records(row.row_id, kinds=[RecordKind.ABANDONED], after_record_id=row.last_start_record_id)
        return tuple(
            AbandonedCall(
                step=r.name,
                attempt=r.attempt,
                tries=r.tries,
                started_at_ms=r.started_at_ms,
                unknown=is_unknown(r),
            )
            for r in (stored.record for stored in found)
        )
    except LedgerError as error:
        log.warning("run %r: observers are not told what was abandoned: %s", row.run_id, error)
        return ()


def _usage_reader(reader: Reader, row: RunRow) -> Callable[[int], bytes]:
    known: dict[int, bytes] = {}
    unread = [row.row_id]

    def read(record_id: int) -> bytes:
        while unread:
            known.update((used.record_id, used.usage) for used in reader.usages(unread[0]))
            unread.clear()
        if record_id not in known and row.forked_from_row_id is not None:  # a record of the run it was forked from
            known[record_id] = reader.record(record_id).record.usage
        return known.get(record_id, b"")

    return read
