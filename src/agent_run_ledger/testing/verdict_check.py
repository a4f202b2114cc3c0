"""What the breaker said must be what comes out again, call by call."""

from __future__ import annotations

from collections.abc import Iterator

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.ports import Reader, RunRow
from agent_run_ledger.runs.breaker import JUDGED
from agent_run_ledger.runs.judged import judged_calls


def verdict_problems(reader: Reader, row: RunRow) -> Iterator[str]:
    """Yield each call whose recorded verdict is not the one that its record and those before it lead to.

    A run with erased records has lost what its verdicts rest on: of it nothing is said.
    """
    try:
        if any(stored.erased for stored in reader.records(row.row_id, kinds=JUDGED)):
            return
        for call in judged_calls(reader, row):
            if not call.agrees:
                name = call.stored.record.name
                yield f"record {call.stored.record_id} of {name!r}: its verdict is not what the log leads to"
    except LedgerError as error:
        yield f"its verdicts cannot be read: {error}"
