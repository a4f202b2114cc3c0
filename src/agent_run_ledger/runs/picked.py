"""What a worker saw of a run when it picked it: the attempt that is begun by that look is begun on no other state."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.ports import RunRow

TAKEN: Final = "run_taken"
"""The code of the error that says so: somebody else carried the run on since it was looked at."""

_PICKED: ContextVar[RunRow | None] = ContextVar("picked", default=None)


@contextmanager
def picked_as(row: RunRow) -> Generator[None]:
    """Inside the block this run is begun only as it stands in this row; Unavailable("run_taken") where it does not."""
    token = _PICKED.set(row)
    try:
        yield
    finally:
        _PICKED.reset(token)


def picked_here(run_id: str) -> RunRow | None:
    """Return the row of this run as it was picked around here, None where nobody picked it."""
    row = _PICKED.get()
    return row if row is not None and row.run_id == run_id else None


def refuse_taken(picked: RunRow | None, row: RunRow | None) -> None:
    """Raise Unavailable("run_taken") for a run that was picked, and was carried on, ended or removed since then."""
    if picked is None:
        return
    if row is None or (row.run_uid, row.generation, row.state) != (picked.run_uid, picked.generation, picked.state):
        raise Unavailable(f"run {picked.run_id!r} was carried on by somebody else since it was looked at", code=TAKEN)
