"""What is said where the row of a run has become that of another one."""

from __future__ import annotations

from agent_run_ledger.errors import Tampered
from agent_run_ledger.ports import RunRow, Store


def store_replaced(store: Store, row: RunRow) -> Tampered:
    """Return what to raise where the row of a run that was read is now that of another run."""
    return Tampered(
        f"{store.location} has another run in the place of {row.run_id!r}: an older copy was put back, and written on",
        code="store_replaced",
        hint="this process writes nothing more to it; find out which copy is the right one, run `arl verify` there, "
        "then start the process again: what it had recorded and is not there is lost and runs again",
    )
