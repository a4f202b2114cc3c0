"""What a START says of a fork is read exactly or not at all, and a chain of forks is followed once."""

from __future__ import annotations

from typing import Any

import pytest

from agent_run_ledger import Tampered
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.prefix import Origin, Prefix, lineage, origin_of, prefix_in

PREFIX = Prefix(run_id="a", run_uid_hex="00" * 16, from_step="s", records={"x": 65536, "y": 3 << 16})


def test_what_is_stored_is_read_back() -> None:
    assert prefix_in({"fork": PREFIX.stored(), "run_id": "b"}) == PREFIX
    assert PREFIX.record_ids == {65536, 3 << 16}
    assert prefix_in({"run_id": "b"}) is None


@pytest.mark.parametrize(
    "fork",
    [None, [], {}, {**PREFIX.stored(), "records": None}, {**PREFIX.stored(), "records": {"x": "one"}}, {"records": {}}],
)
def test_what_is_not_a_prefix_is_never_taken_for_none(fork: Any) -> None:
    with pytest.raises(Tampered):
        prefix_in({"fork": fork})


class Rows:
    """A reader of runs that say what they were forked from."""

    def __init__(self, **forked_from: str | None) -> None:
        self.names = list(forked_from)
        self.forked_from = forked_from
        self.patience = 20

    def row(self, name: str) -> RunRow:
        return self.get_run(self.names.index(name))

    def get_run(self, row_id: int) -> RunRow:
        self.patience -= 1
        assert self.patience, "asked again and again"
        came_from = self.forked_from[self.names[row_id]]
        return RunRow(
            row_id=row_id,
            run_uid=b"",
            run_id=self.names[row_id],
            state=RunState.COMPLETED,
            reason="",
            generation=1,
            attempt=1,
            created_at_ms=0,
            updated_at_ms=0,
            holder="",
            forked_from_row_id=None if came_from is None else self.names.index(came_from),
        )


def test_the_origin_names_the_run_and_the_forks_between_oldest_first() -> None:
    rows: Any = Rows(a=None, b="a", c="b", d="c", stranger=None)
    ancestors = lineage(rows, rows.row("d"))
    assert [row.run_id for row in ancestors] == ["c", "b", "a"]
    assert str(origin_of(rows, ancestors, 0)) == "recorded in 'a', referenced by 'b', 'c'"
    assert origin_of(rows, ancestors, 2) == Origin(recorded_in="c")
    assert origin_of(rows, ancestors, 4) == Origin(recorded_in="stranger"), "of no run that it was forked from"
    assert lineage(rows, rows.row("a")) == []


def test_rows_that_were_made_to_lead_in_a_circle_are_followed_once() -> None:
    rows: Any = Rows(a="c", b="a", c="b")
    assert [row.run_id for row in lineage(rows, rows.row("a"))] == ["c", "b"]
