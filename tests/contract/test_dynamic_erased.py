"""What was erased of a dynamic run while a call was in flight: it is refused from then on, and never made again."""

from __future__ import annotations

import pathlib

import pytest

from agent_run_ledger import Refused, RunLedger
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.testing import check_ledger


class Dying(BaseException):
    pass


def pay_twice(ledger: RunLedger, paid: list[int]) -> None:
    """Pay 4, and 5, whose first life nobody knows the end of. Only 5 is asked for again."""

    @ledger.tool(key="of {amount}")
    def pay(amount: int) -> int:
        paid.append(amount)
        if amount == 5 and paid.count(5) == 1:
            raise Dying
        return amount

    with ledger.run():
        if not paid:
            pay(4)
        pay(5)


@pytest.mark.parametrize("steps", [("pay",), None], ids=["its step", "the run"])
def test_a_tool_in_flight_that_was_erased_is_not_made_again(
    tmp_path: pathlib.Path, steps: tuple[str, ...] | None
) -> None:
    path = tmp_path / "runs.db"
    paid: list[int] = []
    with RunLedger("r", path) as ledger, pytest.raises(Dying):
        pay_twice(ledger, paid)
    with RunLedger("r", path) as ledger:
        act = Act(event="erase", reason="asked to", actor="ann")
        erase_run(ledger._opened.context(), "r", Selection(steps=steps, only=steps is not None), act)
    for _ in range(2):
        with RunLedger("r", path) as ledger, pytest.raises(Refused) as refused:
            pay_twice(ledger, paid)
        assert refused.value.code == "erased"
    assert paid == [4, 5]
    check_ledger(path)


def test_a_step_that_is_only_in_flight_can_be_erased(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "runs.db"
    with RunLedger("r", path) as ledger:

        @ledger.step
        def think(secret: str) -> str:
            raise Dying

        with pytest.raises(Dying), ledger.run():
            think("a secret")
        context = ledger._opened.context()
        erase_run(context, "r", Selection(steps=("think",), only=True), Act(event="erase", reason="x", actor="ann"))
        reader = context.store.reader()
        row = reader.find_run("r")
        assert row is not None
        assert [mark.fingerprint for mark in reader.in_flight(row.row_id)] == [b""]
    check_ledger(path)
