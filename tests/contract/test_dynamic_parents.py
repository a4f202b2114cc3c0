"""A run that is started within another one names it, and is found again by its place after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib

import pytest

from agent_run_ledger import Pending, Refused, RunBusy, RunLedger, Step
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import store_of


class Boom(Exception):
    pass


def parent_of(ledger: RunLedger, run_id: str) -> str | None:
    context: Context = ledger._opened.context()
    reader = context.store.reader()
    row = reader.find_run(run_id)
    assert row is not None
    return None if row.parent_row_id is None else reader.get_run(row.parent_row_id).run_id


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> RunLedger:
    return RunLedger(run_id="outer", db_path=tmp_path / "runs.db")


def test_children_of_a_dynamic_run_are_named_by_place_inputs_and_number(
    ledger: RunLedger, tmp_path: pathlib.Path
) -> None:
    bodies: list[int] = []

    @ledger.step
    def work(n: int) -> int:
        bodies.append(n)
        return n

    def agent(order: list[int]) -> dict[int, str]:
        ids: dict[int, str] = {}
        with ledger.run() as run:
            assert run.id == "outer"
            for n in order:
                with ledger.run(n=n) as child:
                    work(child.inputs["n"])
                    ids[n] = child.id
            with ledger.run(n=order[0]) as second, ledger.run(f"by hand {order}") as third:
                assert second.id not in ids.values()
                assert parent_of(ledger, third.id) == second.id
            if not order[1:]:
                raise Boom
        return ids

    with pytest.raises(Boom):
        agent([1])
    first = agent([2, 1])
    assert bodies == [1, 2]
    assert all(child.startswith("outer/") for child in first.values())
    assert {parent_of(ledger, child) for child in first.values()} == {"outer"}
    ledger.close()
    check_ledger(tmp_path / "runs.db")


def test_the_body_of_a_pipelines_step_is_a_parent_too(ledger: RunLedger, tmp_path: pathlib.Path) -> None:
    inner = RunLedger(run_id="inner", db_path=tmp_path / "runs.db")

    @inner.step
    def leaf() -> int:
        return 1

    @ledger.step
    def outer() -> list[str]:
        with ledger.run(n=1) as first, ledger.run("named") as second:
            pass
        assert inner.execute() == 1
        return [first.id, second.id]

    first, second = ledger.execute()
    assert (parent_of(ledger, first), parent_of(ledger, second), parent_of(ledger, "inner")) == (
        "outer",
        first,
        "outer",
    )
    ledger.close()
    inner.close()
    check_ledger(tmp_path / "runs.db")


@pytest.mark.parametrize("kind", ["dynamic", "async", "pipeline"])
def test_a_child_that_was_busy_keeps_its_number_for_the_next_try(ledger: RunLedger, kind: str) -> None:
    bodies: list[int] = []
    seen: list[str] = []

    @ledger.step
    def work(n: int) -> int:
        bodies.append(n)
        return n

    def children(again: bool) -> None:
        if again:
            lock = store_of(ledger).lock_run(seen[0])
            assert lock is not None
            with pytest.raises(RunBusy), ledger.run(n=1):
                pass
            lock.release()
        for _ in range(2):
            with contextlib.suppress(Pending), ledger.run(n=1) as child:
                seen.append(child.id)
                work(1)
                raise Pending("later")
        raise Boom

    async def achildren(again: bool) -> None:
        async with ledger.run():
            if again:
                lock = store_of(ledger).lock_run(seen[0])
                assert lock is not None
                with pytest.raises(RunBusy):
                    async with ledger.run(n=1):
                        pass
                lock.release()
            for _ in range(2):
                with contextlib.suppress(Pending):
                    async with ledger.run(n=1) as child:
                        seen.append(child.id)
                        work(1)
                        raise Pending("later")
            raise Boom

    def live(again: bool) -> None:
        if kind == "pipeline":
            outer.execute()
        elif kind == "async":
            asyncio.run(achildren(again))
        else:
            with ledger.run():
                children(again)

    outer = RunLedger(run_id="outer", db_path=store_of(ledger).location)
    outer.add(Step(lambda: children(bool(seen)), name="outer"))
    for again in (False, True):
        with pytest.raises(Boom):
            live(again)
    outer.close()
    assert seen[:2] == seen[2:]
    assert seen[0] != seen[1]
    assert bodies == [1, 1]


def test_a_run_goes_on_only_within_its_own_parent(ledger: RunLedger) -> None:
    async def within(outer: str) -> None:
        async with ledger.run(outer), ledger.run("shared"):
            raise Boom

    with pytest.raises(Boom):
        asyncio.run(within("one"))
    with pytest.raises(Refused) as caught:
        asyncio.run(within("two"))
    assert caught.value.code == "other_parent"
    with ledger.run("shared"):  # by itself it may go on
        pass
    with pytest.raises(Boom):
        asyncio.run(within("three"))  # and once it is completed, others may look at it


def test_a_parent_in_another_store_is_not_named(ledger: RunLedger, tmp_path: pathlib.Path) -> None:
    other = RunLedger(db_path=tmp_path / "other.db")
    with ledger.run(), other.run("elsewhere"):
        pass
    assert parent_of(other, "elsewhere") is None
    other.close()
