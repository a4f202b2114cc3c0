"""What suites about runs look at: rows, records, marks and leaves of a ledger's store, and how it was written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ledger.verify import Report, verify_log
from agent_run_ledger.ports import InFlight, Reader, RunRow, Store, StoredRecord
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store import is_url, open_store

in_a_file = pytest.mark.parametrize("db", ["sqlite"], indirect=True)
"""For what is about a file, and not about every kind of store."""


def store_exists(named: str | os.PathLike[str]) -> bool:
    """Whether there is a store at a path or a URL, without making one."""
    if not is_url(named):
        return os.path.exists(named)
    try:
        open_store(named, create=False, readonly=True).close()
    except Refused as error:
        if error.code != "no_store":
            raise
        return False
    return True


def store_of(ledger: RunLedger) -> Store:
    return ledger._opened.context().store


def row_of(ledger: RunLedger, run_id: str = "r1") -> RunRow:
    row = store_of(ledger).reader().find_run(run_id)
    assert row is not None
    return row


def stored_of(ledger: RunLedger, *kinds: RecordKind, run_id: str = "r1") -> list[StoredRecord]:
    """Return the run's records of these kinds, or of all, in the order recorded."""
    reader = store_of(ledger).reader()
    return list(reader.records(row_of(ledger, run_id).row_id, kinds=kinds or tuple(RecordKind)))


def records_of(ledger: RunLedger, *kinds: RecordKind, run_id: str = "r1") -> list[Record]:
    return [stored.record for stored in stored_of(ledger, *kinds, run_id=run_id)]


def calls_of(ledger: RunLedger, run_id: str = "r1") -> list[tuple[str, str]]:
    """Return (kind, step) of everything recorded for the run except START, END and DECISION."""
    kinds = [RecordKind.RESULT, RecordKind.ERROR, RecordKind.ABANDONED, RecordKind.RESCUED]
    return [(record.kind.name, record.name) for record in records_of(ledger, *kinds, run_id=run_id)]


def marks_of(ledger: RunLedger, run_id: str = "r1") -> list[InFlight]:
    return store_of(ledger).reader().in_flight(row_of(ledger, run_id).row_id)


def leaves_of(ledger: RunLedger) -> list[list[tuple[str, str, str]]]:
    """Return (type, old, new) of every change, one list for each leaf."""
    reader = store_of(ledger).reader()
    found: list[list[tuple[str, str, str]]] = []
    for event in reader.events(first=0, stop=reader.head().size):
        changes: list[dict[str, Any]] = orjson.loads(event.envelope)["changes"]
        found.append([(change["type"], change["old"], change["new"]) for change in changes])
    return found


def report_of(ledger: RunLedger) -> Report:
    return verify_log(store_of(ledger).reader())


def operate(ledger: RunLedger, event: RunEvent) -> None:
    decide(ledger._opened.context(), "r1", event, reason="because", actor="op")


def watch_sync(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to which every later transaction adds whether it was synced."""
    synced: list[bool] = []
    kind = type(store_of(ledger))
    whole = kind.transact

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        synced.append(sync)
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(kind, "transact", transact)
    return synced


def keep_locks(ledger: RunLedger, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which every later lock of a run is added, so that none is let go by being forgotten."""
    kept: list[Any] = []
    kind = type(store_of(ledger))
    whole = kind.lock_run

    def lock_run(self: Any, run_id: str) -> Any:
        kept.append(whole(self, run_id))
        return kept[-1]

    monkeypatch.setattr(kind, "lock_run", lock_run)
    return kept


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not within half a minute or so."""
    pause = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        pause.wait(0.001)
    pytest.fail("what was waited for did not come")


class LyingStore:
    """A store whose reader answers some questions falsely: `answers` has a function by the method's name."""

    def __init__(self, store: Store, **answers: Any) -> None:
        self._store = store
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def reader(self) -> Reader:
        return _LyingReader(self._store.reader(), self._answers)  # type: ignore[return-value]


class _LyingReader:
    def __init__(self, reader: Reader, answers: dict[str, Any]) -> None:
        self._reader = reader
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return self._answers.get(name) or getattr(self._reader, name)
