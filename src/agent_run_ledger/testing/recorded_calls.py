"""What a ledger has recorded, as plain values for assertions."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.store import open_store

_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One record of a call: how it ended (a RESULT, ERROR, ABANDONED or RESCUED), of which run, step and attempt."""

    kind: RecordKind
    run_id: str
    name: str
    attempt: int
    tries: int
    fingerprint_hex: str


CALL_KINDS: tuple[RecordKind, ...] = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.ABANDONED, RecordKind.RESCUED)


def recorded_calls(path: str | os.PathLike[str], *, kinds: tuple[RecordKind, ...] = CALL_KINDS) -> list[RecordedCall]:
    """Return the calls recorded in the ledger at `path`, run by run (newest first) in the order recorded.

    Opens the ledger, as `check_ledger` does, and raises what opening and reading raise.
    """
    with _rows(path) as (reader, rows):
        return [
            RecordedCall(
                kind=stored.record.kind,
                run_id=row.run_id,
                name=stored.record.name,
                attempt=stored.record.attempt,
                tries=stored.record.tries,
                fingerprint_hex=stored.record.fingerprint.hex(),
            )
            for row in rows
            for stored in reader.records(row.row_id, kinds=kinds)
        ]


def calls_in_flight(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the steps in flight in all runs of the ledger at `path`. See `recorded_calls`."""
    with _rows(path) as (reader, rows):
        return [mark.name for row in rows for mark in reader.in_flight(row.row_id)]


@contextmanager
def _rows(path: str | os.PathLike[str]) -> Generator[tuple[Reader, Iterator[RunRow]]]:
    store = open_store(os.fspath(path), create=False)
    try:
        reader = store.reader()
        yield reader, all_runs(reader)
    finally:
        store.close()


def all_runs(reader: Reader) -> Iterator[RunRow]:
    """Yield every run, newest first, in bounded memory."""
    before: int | None = None
    while page := reader.list_runs(state=None, before_row_id=before, limit=_PAGE):
        yield from page
        before = page[-1].row_id
