"""A run that waits for several effects: whatever its program makes of what they raise, no start uses up a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from agent_run_ledger import ApprovalPending, Budget, BudgetExceeded, LedgerError, Request, Reserve, RunLedger
from agent_run_ledger.codecs import pack, unpack
from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs.recount import recounted
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, Program, desk

ORDERS = (1, 2, 3)


def in_a_map(program: Program, run: Any) -> None:
    run.map(lambda order: program.refund(order, 3_000), ORDERS)


def one_after_the_other(program: Program, _: Any) -> None:
    waits: list[Exception] = []
    for order in ORDERS:
        try:
            program.refund(order, 3_000)
        except ApprovalPending as error:
            waits.append(error)
    if waits:
        raise waits[0]


def replaced(program: Program, run: Any) -> None:
    try:
        in_a_map(program, run)
    except ApprovalPending as error:
        raise RuntimeError("people have to decide first") from error


def copied(program: Program, run: Any) -> None:
    try:
        in_a_map(program, run)
    except ApprovalPending as error:
        raise ApprovalPending(error.message) from None


def in_a_group(program: Program, _: Any) -> None:
    waits: list[Exception] = []
    for order in ORDERS:
        try:
            program.refund(order, 3_000)
        except ApprovalPending as error:
            waits.append(error)
    if waits:
        raise ExceptionGroup("they wait", waits)


WAYS = [in_a_map, one_after_the_other, replaced, copied, in_a_group]


def start(at: Desk, agent: Callable[[Program, Any], None], *, max_calls: int = len(ORDERS) + 1) -> None:
    program = at.program()
    with program.ledger, program.ledger.bind("ticket-17", budget=Budget(max_calls=max_calls)).run() as run:
        program.think("before")
        agent(program, run)


@pytest.mark.parametrize("agent", WAYS)
def test_waiting_for_several_effects_uses_up_no_budget_of_calls(agent: Callable[[Program, Any], None]) -> None:
    with desk() as at:
        for _ in range(5):
            with pytest.raises(Exception, match=r"wait|decide") as caught:
                start(at, agent)
            assert not isinstance(caught.value, BudgetExceeded)
        for order in ORDERS:
            at.grant(f"refund:{order}")
        start(at, agent)
        assert (at.sent, at.program().state()) == (len(ORDERS), "completed")
        assert counted(at) == len(ORDERS) + 1


def test_within_one_attempt_what_waits_counts() -> None:
    with desk() as at:

        def again_and_again(program: Program, _: Any) -> None:
            for _ in range(100):
                with suppress(ApprovalPending):
                    program.refund(1, 3_000)

        with pytest.raises(BudgetExceeded):
            start(at, again_and_again)


def test_a_run_that_is_completed_without_what_it_waited_for_has_called_it() -> None:
    with desk() as at:

        def swallow(program: Program, _: Any) -> None:
            with suppress(ApprovalPending):
                program.refund(1, 3_000)

        start(at, swallow)
        assert (at.program().state(), counted(at)) == ("completed", 2)


def test_what_one_end_says_of_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.runs.batches.MOST_WAITS", 2)
    with desk() as at:
        with pytest.raises(ApprovalPending):
            start(at, one_after_the_other)
        assert counted(at) == 2


def test_an_end_that_says_what_it_cannot_have_waited_for_is_found() -> None:
    with desk() as at:
        with pytest.raises(ApprovalPending):
            start(at, in_a_map)
        store = open_sqlite(at.path, create=False)
        try:
            reader = store.reader()
            row = reader.find_run("ticket-17")
            assert row is not None
            assert recounted(reader, row, [""])[""].calls == 1
            kinds = (RecordKind.RESULT, RecordKind.END)
            (thought, end) = [*reader.records(row.row_id, kinds=kinds)]
            said: Any = unpack(end.record.encoding, end.record.payload)
            for wrong in ([thought.record_id], said["waits_for"] * 2, [end.record_id], "all", 7, ["1"]):
                forged = pack({**said, "waits_for": wrong}, limit_bytes=10_000)
                with pytest.raises(Tampered):
                    recounted(Forged(reader, end.record_id, forged), row, [""])  # type: ignore[arg-type]
        finally:
            store.close()


class Forged:
    """A reader that gives another content of one END."""

    def __init__(self, reader: Any, record_id: int, packed: Any) -> None:
        self._reader, self._record_id, self._packed = reader, record_id, packed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def records(self, row_id: int, **how: Any) -> Any:
        from dataclasses import replace

        for stored in self._reader.records(row_id, **how):
            if stored.record_id != self._record_id:
                yield stored
                continue
            changed = replace(stored.record, encoding=self._packed.encoding, payload=self._packed.payload)
            yield replace(stored, record=changed)


def counted(at: Desk) -> int:
    """The calls that the records of the run say, of which its budget must say the same."""
    at.check()
    store = open_sqlite(at.path, create=False)
    try:
        reader = store.reader()
        row = reader.find_run("ticket-17")
        assert row is not None
        return recounted(reader, row, [""])[""].calls
    finally:
        store.close()


def test_a_child_that_waits_for_several_uses_up_no_budget_of_its_parent() -> None:
    with desk() as at:

        def parent(program: Program, _: Any) -> None:
            with program.ledger.run("child") as run:
                in_a_map(program, run)

        for _ in range(4):
            with pytest.raises(ApprovalPending):
                start(at, parent)
        for order in ORDERS:
            at.grant(f"refund:{order}")
        start(at, parent)
        assert (at.sent, counted(at)) == (len(ORDERS), len(ORDERS) + 1)


async def gathered(calls: list[Any]) -> None:
    await asyncio.gather(*calls)


async def in_a_task_group(calls: list[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


@pytest.mark.parametrize("together", [gathered, in_a_task_group])
def test_calls_that_are_left_while_they_wait_use_up_no_budget(together: Callable[[list[Any]], Awaitable[None]]) -> None:
    with desk() as at:

        async def live() -> None:
            ledger = RunLedger("ticket-17", at.path, effects=at.settings)
            settings: Any = {"target": http(at.server.url), "approval": "finance", "reserves": Reserve(tokens=10)}

            @ledger.effect(name="one", key="refund:{order}", **settings)
            async def one(order: int) -> Request:
                while not (await asyncio.to_thread(all_asked, at, 2, 3)):  # the others wait by now
                    await asyncio.sleep(0.01)
                return Request.json("POST", "/refunds", {"order": order})

            @ledger.effect(name="more", key="refund:{order}", wait_s=3_600, **settings)
            async def more(order: int) -> Request:
                return Request.json("POST", "/refunds", {"order": order})

            async with ledger, ledger.bind("ticket-17", budget=Budget(max_calls=3, max_tokens=30)).run():
                calls: list[Any] = [more(2), more(3), one(1)]
                await together(calls)

        for _ in range(4):
            with pytest.raises((ApprovalPending, ExceptionGroup)):
                asyncio.run(live())
        for order in ORDERS:
            at.grant(f"refund:{order}")
        asyncio.run(live())
        assert (at.sent, at.program().state(), counted(at)) == (len(ORDERS), "completed", len(ORDERS))


def test_a_call_that_was_left_before_others_went_on_uses_up_no_budget() -> None:
    with desk() as at:
        for _ in range(4):
            with pytest.raises(ApprovalPending):
                asyncio.run(left_early(at, swallow=False))
        assert counted(at) == 1, "the step that thought counts, once"


def test_a_run_that_is_completed_without_what_it_left_has_called_it() -> None:
    with desk() as at:
        asyncio.run(left_early(at, swallow=True))
        assert (at.program().state(), counted(at)) == ("completed", 3)


async def left_early(at: Desk, *, swallow: bool) -> None:
    """Leave a call of an effect while it waits, go on with a step, and leave the run with another call that waits."""
    ledger = RunLedger("ticket-17", at.path, effects=at.settings)

    @ledger.effect(name="refund", key="refund:{order}", target=http(at.server.url), approval="finance", wait_s=3_600)
    async def refund(order: int) -> Request:
        return Request.json("POST", "/refunds", {"order": order})

    @ledger.effect(name="last", key="refund:{order}", target=http(at.server.url), approval="finance")
    async def last(order: int) -> Request:
        return Request.json("POST", "/refunds", {"order": order})

    @ledger.step
    async def think() -> str:
        return "thought"

    async with ledger, ledger.bind("ticket-17", budget=Budget(max_calls=3)).run():
        call: Any = refund(2)
        task = asyncio.ensure_future(call)
        while not (await asyncio.to_thread(all_asked, at, 2)):
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await think()
        with suppress(ApprovalPending if swallow else ZeroDivisionError):
            await last(3)


def all_asked(at: Desk, *orders: int) -> bool:
    with at.people() as effects:
        return all(effects.inspect(f"refund:{order}") for order in orders)


def test_what_a_run_is_left_with_says_nothing_of_the_budget_where_it_is_another_error() -> None:
    with desk() as at:

        def agent(program: Program, _: Any) -> None:
            with suppress(ApprovalPending):
                program.refund(1, 3_000)
            raise ValueError("something else")

        for _ in range(5):
            with pytest.raises(ValueError, match="something else"):
                start(at, agent, max_calls=2)
        at.grant("refund:1")
        with suppress(ValueError, LedgerError):
            start(at, agent, max_calls=2)
        assert at.sent == 1
