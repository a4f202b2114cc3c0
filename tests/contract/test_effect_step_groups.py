"""Effects in task groups: what says that it waits comes out as a group of errors, and the run waits all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_run_ledger import ApprovalPending, Request, RunLedger
from agent_run_ledger.errors import Misuse, pending_of
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, desk

ORDERS = (1, 2)


class Agent:
    """A program with an effect that is asked for in a task group: by the run, by a run in it, or by a step."""

    def __init__(self, at: Desk) -> None:
        self.at = at
        self.ledger = RunLedger("ticket-17", at.path, effects=at.settings)

        @self.ledger.effect(key="refund:{order}", target=http(at.server.url), approval="finance")
        async def refund(order: int) -> Request:
            return Request.json("POST", "/refunds", {"order": order})

        @self.ledger.step
        async def both() -> str:
            await self.grouped()
            return "both"

        self.refund, self.both = refund, both

    async def grouped(self) -> None:
        """Ask for both at once."""
        async with asyncio.TaskGroup() as group:
            for order in ORDERS:
                group.create_task(self.refund(order))

    async def alone(self) -> None:
        """In the run itself."""
        async with self.ledger, self.ledger.run():
            await self.grouped()

    async def in_a_step(self) -> None:
        """In a step of the run."""
        async with self.ledger, self.ledger.run():
            await self.both()

    async def within(self) -> None:
        """In a run that waits, and that the one around it goes on from to an effect of its own."""
        async with self.ledger, self.ledger.run():
            try:
                async with self.ledger.run():
                    await self.grouped()
            except* ApprovalPending:
                pass
            await self.refund(3)


def states(at: Desk) -> set[tuple[str, str]]:
    """How the runs of the store stand, and why."""
    store = open_sqlite(at.path, create=False)
    try:
        return {
            (str(row.state), row.reason) for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)
        }
    finally:
        store.close()


@pytest.mark.parametrize("program", [Agent.alone, Agent.in_a_step, Agent.within])
def test_a_run_that_a_task_group_leaves_waiting_is_suspended_and_goes_on_with_all_that_was_granted(
    program: Any,
) -> None:
    with desk() as at:
        for _ in range(2):
            with pytest.raises((ApprovalPending, ExceptionGroup)):
                asyncio.run(program(Agent(at)))
            assert states(at) == {("suspended", "ApprovalPending")}
        orders = (*ORDERS, 3) if program is Agent.within else ORDERS
        for order in orders:
            at.grant(f"refund:{order}")
        asyncio.run(program(Agent(at)))
        assert (at.sent, {state for state, _ in states(at)}) == (len(orders), {"completed"})


def test_a_run_in_whose_task_group_something_failed_too_has_failed() -> None:
    with desk() as at:
        agent = Agent(at)

        async def live() -> None:
            async with agent.ledger, agent.ledger.run():
                try:
                    await agent.refund(1)
                except ApprovalPending as waits:
                    raise ExceptionGroup("both", [waits, ValueError("no matter of waiting")]) from waits

        with pytest.raises(ExceptionGroup):
            asyncio.run(live())
        assert states(at) == {("failed", "ExceptionGroup")}


def test_a_group_waits_where_all_in_it_do() -> None:
    first, second, other = ApprovalPending("first"), ApprovalPending("second"), Misuse("other")
    assert pending_of(None) is pending_of(other) is None
    assert pending_of(second) is second
    assert pending_of(ExceptionGroup("all", [ExceptionGroup("some", [first]), second])) is first
    for mixed in ([first, other], [other, first], [ExceptionGroup("some", [first, other]), second]):
        assert pending_of(ExceptionGroup("mixed", mixed)) is None
