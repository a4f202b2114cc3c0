"""What a life left in the store, read from a copy of its files, as plain values."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger import codecs
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Reader, RunRow, StoredRecord
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.crash import SIDE_FILES
from agent_run_ledger.testing.integrity import is_store
from agent_run_ledger.testing.recorded_calls import all_runs
from tests.campaign.programs import digest_of, key_in

CALLS = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.ABANDONED, RecordKind.RESCUED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One recorded call. A RESULT tells the key that its value holds and the digest of the value."""

    record_id: int
    kind: str
    name: str
    attempt: int
    tries: int
    fingerprint: str
    key: str = ""
    digest: str = ""

    @property
    def place(self) -> tuple[str, int, int]:
        """Which try of which attempt: a body that began has exactly one."""
        return (self.name, self.attempt, self.tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A call that was started and not concluded."""

    name: str
    attempt: int
    tries: int
    fingerprint: str

    @property
    def place(self) -> tuple[str, int, int]:
        """See Call.place."""
        return (self.name, self.attempt, self.tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One run as it stands. `starts`: the leaf and the process of each attempt, from the first on."""

    state: str
    attempt: int
    generation: int
    starts: tuple[tuple[int, int], ...]
    calls: tuple[Call, ...]
    marks: frozenset[Mark]
    decisions: int


NOTHING = Seen(state="new", attempt=0, generation=0, starts=(), calls=(), marks=frozenset(), decisions=0)


def look(folder: Path) -> Mapping[str, Seen]:
    """Return every run of the store in `folder`, after `check_ledger`; nothing where a store was never completed.

    Looks at a copy, so that the next life finds the files as the last one left them. No process may have them open.
    """
    copy = folder / "copy" / LEDGER_FILE
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir()
    for side in SIDE_FILES:
        source = folder / f"{LEDGER_FILE}{side}"
        if source.exists():
            shutil.copyfile(source, f"{copy}{side}")
    if not is_store(copy):
        return {}
    check_ledger(copy)
    store = open_sqlite(copy, create=False)
    try:
        reader = store.reader()
        return {row.run_id: _seen(reader, row) for row in all_runs(reader)}
    finally:
        store.close()
        shutil.rmtree(copy.parent, ignore_errors=True)


def _seen(reader: Reader, row: RunRow) -> Seen:
    starts: list[tuple[int, int]] = []
    calls: list[Call] = []
    decisions = 0
    for stored in reader.records(row.row_id, kinds=tuple(RecordKind)):
        kind = stored.record.kind
        if kind is RecordKind.START:
            content: Any = codecs.unpack(stored.record.encoding, stored.record.payload)
            starts.append((stored.leaf_index, orjson.loads(content["holder"])["pid"]))
        elif kind in CALLS:
            calls.append(_call(stored))
        decisions += kind is RecordKind.DECISION
    marks = frozenset(
        Mark(name=mark.name, attempt=mark.attempt, tries=mark.tries, fingerprint=mark.fingerprint.hex())
        for mark in reader.in_flight(row.row_id)
    )
    return Seen(
        state=str(row.state),
        attempt=row.attempt,
        generation=row.generation,
        starts=tuple(starts),
        calls=tuple(calls),
        marks=marks,
        decisions=decisions,
    )


def _call(stored: StoredRecord) -> Call:
    record = stored.record
    key = digest = ""
    if record.kind is RecordKind.RESULT:
        value = codecs.unpack(record.encoding, record.payload)
        key, digest = key_in(value), digest_of(value)
    return Call(
        record_id=stored.record_id,
        kind=record.kind.name,
        name=record.name,
        attempt=record.attempt,
        tries=record.tries,
        fingerprint=record.fingerprint.hex(),
        key=key,
        digest=digest,
    )
