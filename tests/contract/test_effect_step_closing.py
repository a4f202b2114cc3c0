"""Closing a ledger on an event loop while an effect is under way that needs this very loop: nothing of it is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from agent_run_ledger import ApprovalPending, Request, RunLedger, StepTimeout
from agent_run_ledger.effects import ActionState
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, desk, eventually, holding

A = ActionState


class Service:
    """A service on the program's own loop, which answers once it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.requests = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        self.asked.set()
        await self.may_answer.wait()
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()


@asynccontextmanager
async def service(port: int = 0) -> AsyncIterator[Service]:
    made = Service()
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


async def begun(at: Desk, ledger: RunLedger, there: Service) -> None:
    """Let a call of an effect be granted, sent to the service and cancelled while the answer is due."""

    @ledger.effect(key="refund:{order}", target=http(there.url), approval="finance")
    async def refund(order: int) -> Request:
        return Request.json("POST", "/refunds", {"order": order})

    with pytest.raises(ApprovalPending):
        async with ledger.run():
            await cast("Any", refund(17))
    await asyncio.to_thread(at.grant)
    with suppress(asyncio.CancelledError):
        async with ledger.run():
            task = asyncio.ensure_future(cast("Any", refund(17)))
            await there.asked.wait()
            task.cancel()
            await task


def test_close_on_a_loop_waits_for_no_send_that_needs_this_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.ledger.run_effects.CLOSE_WAIT_S", 20.0)
    with desk() as at:

        async def main() -> None:
            async with service() as there:
                ledger = RunLedger("async", at.path, effects=at.settings)
                await begun(at, ledger, there)
                ledger.close()  # the answer comes from this loop: waited for in here, it never came
                there.may_answer.set()
                await asyncio.to_thread(eventually, lambda: at.last().state is A.SUCCEEDED)
                await asyncio.to_thread(eventually, lambda: not closing())
                assert there.requests == 1

        asyncio.run(main())


def closing() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "arl-close"]


@pytest.mark.parametrize("how", ["aclose", "async with"])
def test_what_is_under_way_is_on_record_when_a_ledger_was_closed_by_await(how: str) -> None:
    with desk() as at:

        async def main() -> None:
            async with service() as there:
                ledger = RunLedger("async", at.path, effects=at.settings)
                if how == "async with":
                    async with ledger as same:
                        await begun(at, same, there)
                        asyncio.get_running_loop().call_later(0.2, there.may_answer.set)
                else:
                    await begun(at, ledger, there)
                    asyncio.get_running_loop().call_later(0.2, there.may_answer.set)
                    await ledger.aclose()
                assert at.last().state is A.SUCCEEDED
                await ledger.aclose()  # a second time: nothing is open

        asyncio.run(main())


def test_close_on_a_loop_closes_at_once_where_nothing_is_under_way() -> None:
    with desk() as at:

        async def main() -> None:
            ledger = RunLedger("async", at.path, effects=at.settings)
            ledger.check_effects()
            effects: Any = ledger._opened._effects
            ledger.close()
            with pytest.raises(Exception, match="closed"):
                effects.members("refund:17")

        asyncio.run(main())


def test_close_off_a_loop_waits_until_what_is_under_way_is_on_record() -> None:
    gate = threading.Event()
    with desk(holding(gate)) as at:
        at.program().outcome()
        at.grant()
        program = at.program(timeout_s=0.5)
        with pytest.raises(StepTimeout), program.ledger.run():
            program.refund(17, 3_000)
        assert (at.sent, at.last().state) == (1, A.PREPARED)
        threading.Timer(0.3, gate.set).start()
        program.ledger.close()
        assert at.last().state is A.SUCCEEDED
