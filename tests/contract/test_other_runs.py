"""A store that an older copy has taken the place of, and that was written on: nothing lands in another run's rows."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.errors import Tampered
from agent_run_ledger.ports import Reader, Store
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.fork import fork_run
from agent_run_ledger.testing import check_ledger
from tests.contract.budget_kit import Hand
from tests.contract.engine_kit import each_engine, new_place
from tests.contract.run_kit import store_of

pytestmark = each_engine


class PutBack:
    """A store that is read as it was, and written as it is after another one has taken its place."""

    def __init__(self, read: Store, written: Store) -> None:
        self._read = read
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._written, name)

    def reader(self) -> Reader:
        return self._read.reader()


@pytest.fixture
def ledgers(tmp_path: pathlib.Path) -> Iterator[tuple[RunLedger, RunLedger]]:
    """Two ledgers of one shape, each with a run in its first row."""
    places = [new_place(tmp_path, name) for name in ("read.db", "written.db")]
    with RunLedger(run_id="mine", db_path=places[0]) as read, RunLedger(run_id="another", db_path=places[1]) as written:
        for ledger in (read, written):
            ledger.add(Step(lambda: 1, name="one"))
        yield read, written
    for place in places:
        check_ledger(place)


def replaced(ledgers: tuple[RunLedger, RunLedger]) -> Context:
    read, written = ledgers
    store: Any = PutBack(store_of(read), store_of(written))
    return replace(read._opened.context(), store=store)


def leaves(ledger: RunLedger) -> int:
    return store_of(ledger).reader().head().size


def test_an_attempt_writes_nothing_into_the_row_of_another_run(ledgers: tuple[RunLedger, RunLedger]) -> None:
    mine, other = Hand(ledgers[0], "mine"), Hand(ledgers[1], "another")
    assert mine.attempt.row.row_id == other.attempt.row.row_id
    started, before = mine.begin(), leaves(ledgers[1])
    other.begin()
    mine.journal._context = replaced(ledgers)
    with pytest.raises(Tampered) as caught:
        mine.end(started)
    assert caught.value.code == "store_replaced"
    assert "arl verify" in (caught.value.hint or "")
    assert leaves(ledgers[1]) == before + 1
    for hand in (mine, other):
        hand.die()


ACTS: dict[str, Callable[[Context], object]] = {
    "erase": lambda context: erase_run(
        context, "mine", Selection(), Act(event="erase", reason="because", actor="somebody")
    ),
    "fork": lambda context: fork_run(context, "mine", from_step="one", new_run_id="fork", inputs=None),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_was_planned_of_a_run_is_not_done_to_another_one(ledgers: tuple[RunLedger, RunLedger], act: str) -> None:
    for ledger in ledgers:
        ledger.execute()
    before = leaves(ledgers[1])
    with pytest.raises(Tampered) as caught:
        ACTS[act](replaced(ledgers))
    assert caught.value.code == "store_replaced"
    assert leaves(ledgers[1]) == before
