"""What a life left in the store, read from a copy of its files, as plain values."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.crash import SIDE_FILES
from agent_run_ledger.testing.integrity import is_store
from agent_run_ledger.testing.recorded_calls import all_runs

CALLS = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.ABANDONED, RecordKind.RESCUED)

REFUSED = "refused "
"""How the text of an error begins that a nested run raised within the body of a call, and its code."""


@dataclass(slots=True, kw_only=True)
class Left:
    """What stands on record: results and errors as text, how many records and marks each step has, and the runs."""

    results: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    states: dict[str, str] = field(default_factory=dict)


def look(folder: Path, *, complete: bool) -> Left:
    """Return what is there, after `check_ledger`; nothing where a store need not be `complete` and is not.

    Looks at a copy: the next life finds the files as they were left.
    """
    left = Left()
    copy = folder / "copy" / LEDGER_FILE
    copy.parent.mkdir(exist_ok=True)
    for side in SIDE_FILES:
        source = folder / f"{LEDGER_FILE}{side}"
        if source.exists():
            shutil.copyfile(source, f"{copy}{side}")
    try:
        if complete or is_store(copy):
            check_ledger(copy)
            store = open_sqlite(copy, create=False)
            try:
                reader = store.reader()
                for row in all_runs(reader):
                    left.states[row.run_id] = str(row.state)
                    _read(reader, row, left)
            finally:
                store.close()
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)
    return left


def _read(reader: Reader, row: RunRow, left: Left) -> None:
    for stored in reader.records(row.row_id, kinds=CALLS):
        record = stored.record
        left.kinds[record.kind.name] += 1
        left.counts[record.name] += 1
        if record.kind is RecordKind.RESULT:
            left.results.append(repr(codecs.unpack(record.encoding, record.payload)))
        elif record.kind is RecordKind.ERROR:
            error = codecs.unpack(record.encoding, record.payload)
            left.errors.append(f"{REFUSED}{error.code}" if isinstance(error, LedgerError) else str(error))
    for mark in reader.in_flight(row.row_id):
        left.kinds["mark"] += 1
        left.counts[mark.name] += 1
