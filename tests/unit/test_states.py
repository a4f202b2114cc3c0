"""The states of a run: every cell of the table, written out once more by hand."""

from __future__ import annotations

import pytest

from agent_run_ledger.kernel.states import RunEvent, RunState, next_run_state

# Rows: the state before. Columns in the order of RunEvent; "" is refused.
COLUMNS = list(RunEvent)
TABLE = """
              start    complete   fail    suspend    quarantine   release  takeover   cancel
none          running  .          .       .          .            .        .          .
running       running  completed  failed  suspended  quarantined  .        running    cancelled
suspended     running  .          .       .          quarantined  .        suspended  cancelled
failed        running  .          .       .          quarantined  .        failed     cancelled
quarantined   .        .          .       .          .            running  .          cancelled
cancelled     .        .          .       .          .            .        .          .
completed     .        .          .       .          .            .        .          .
"""
HEADER, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], event, cell) for row in ROWS for event, cell in zip(HEADER, row[1:], strict=True)]


@pytest.mark.parametrize(("state", "event", "after"), CELLS)
def test_every_cell(state: str, event: str, after: str) -> None:
    before = None if state == "none" else RunState(state)
    expected = None if after == "." else RunState(after)
    assert next_run_state(before, RunEvent(event)) is expected


def test_the_table_has_every_state_and_event() -> None:
    assert [RunEvent(event) for event in HEADER] == COLUMNS
    assert {row[0] for row in ROWS} == {"none", *RunState}


def test_states_are_written_as_the_words_that_are_stored() -> None:
    assert [str(state) for state in RunState] == [
        "running", "suspended", "failed", "quarantined", "cancelled", "completed",
    ]  # fmt: skip
