"""What the ledger itself says about the demonstration: its recorded steps, and whether its log verifies."""

from __future__ import annotations

from pathlib import Path

from agent_run_ledger import codecs
from agent_run_ledger.demo.audit.shapes import Review, Synthesis
from agent_run_ledger.demo.facts import History, Proof, RecordedStep
from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.store import open_sqlite


def attempts_so_far(database: Path, run_id: str) -> int:
    """Return how many attempts the run has had, 0 where there is no database or no such run yet."""
    if not database.exists():
        return 0
    store = open_sqlite(str(database), create=False)
    try:
        row = store.reader().find_run(run_id)
        return 0 if row is None else row.attempt
    finally:
        store.close()


def read_history(database: Path, run_id: str) -> History:
    """Return the run's state and recorded steps, in the order recorded; Tampered where the run is missing."""
    store = open_sqlite(str(database), create=False)
    try:
        reader = store.reader()
        row = reader.find_run(run_id)
        if row is None:
            raise Tampered(f"run {run_id!r} is not in {database}", code="no_run")
        stored = reader.records(row.row_id, kinds=[RecordKind.RESULT])
        return History(state=str(row.state), attempt=row.attempt, steps=tuple(_recorded(one) for one in stored))
    finally:
        store.close()


def verified(database: Path) -> Proof:
    """Verify the whole log and return its size and root; raises Tampered where it does not hold."""
    store = open_sqlite(str(database), create=False)
    try:
        found = verify_log(store.reader(), log_id=store.log_id)
    finally:
        store.close()
    if not found.ok:
        first = found.problems[0].text
        raise Tampered(f"the log of {database} does not verify: {first}", hint=f"run `arl verify --db {database}`")
    return Proof(log_size=found.leaves, root_hex=found.root_hex)


def _recorded(stored: StoredRecord) -> RecordedStep:
    record = stored.record
    value = codecs.unpack(record.encoding, record.payload)
    costs = value.tokens_in + value.tokens_out if isinstance(value, Review | Synthesis) else 0
    return RecordedStep(
        name=record.name,
        attempt=record.attempt,
        took_ms=record.ended_at_ms - record.started_at_ms,
        subject=value.path if isinstance(value, Review) else "",
        tokens=costs,
    )
