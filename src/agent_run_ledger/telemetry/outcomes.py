"""How the end of a call is counted, and what it used, for every monitoring system alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.usage import Usage

LIVE: Final = "live"
REPLAYED: Final = "replayed"
FAILED: Final = "failed"
UNRECORDED: Final = "unrecorded"

OUTCOMES: Final = {
    RecordKind.RESULT: LIVE,
    RecordKind.ERROR: FAILED,
    RecordKind.RESCUED: FAILED,  # its result was paid for and cannot be stored: the run fails there
}


def total(lines: Sequence[Usage], field: str) -> int | None:
    """Return the sum of a field of tokens over the lines; None, which is unknown, where one of them does not know."""
    counts: list[int | None] = [getattr(line, field) for line in lines]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def type_name(error: BaseException) -> str:
    """Return the class of an exception as its module and name, without the module for a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
