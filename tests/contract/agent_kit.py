"""Lives of agents: each opens a ledger and a dynamic run, and ends well or by a crash."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.runs.run import Run

New = Callable[..., RunLedger]
Agent = Callable[[RunLedger, Run], Any]
AsyncAgent = Callable[[RunLedger, Run], Awaitable[Any]]
PATIENCE_S = 10.0


class Crash(BaseException):
    """The process ends here: nothing of this is an error of a step."""


def live(new_ledger: New, agent: Agent, *, crash: bool = False, run_id: str = "r1", **inputs: Any) -> Any:
    """Return what the agent saw in one life; with `crash` its attempt dies after its last act."""
    ledger, seen = new_ledger(run_id), None
    try:
        with ledger.run(**inputs) as run:
            seen = agent(ledger, run)
            if crash:
                raise Crash
    except Crash:
        assert crash or seen is None
    return seen


def alive(new_ledger: New, agent: AsyncAgent, *, crash: bool = False, run_id: str = "r1", **inputs: Any) -> Any:
    """Do the same on an event loop, in `async with`."""
    seen: list[Any] = [None]

    async def main() -> None:
        async with new_ledger(run_id).run(**inputs) as run:
            seen[0] = await agent(run_ledger, run)
            if crash:
                raise Crash

    run_ledger = new_ledger(run_id)
    try:
        asyncio.run(main())
    except Crash:
        assert crash or seen[0] is None
    return seen[0]


def elsewhere(act: Callable[[], Any]) -> Any:
    """Return what `act` returns in a thread that belongs to no run."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(act).result()


class Gate:
    """Lets a body wait for the test, and the test for the body."""

    def __init__(self) -> None:
        self._entered, self._go_on = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Say that the body is here, and wait until it may go on."""
        self._entered.set()
        assert self._go_on.wait(PATIENCE_S), "nobody opened the gate"

    def wait(self) -> None:
        """Return when a body is here."""
        assert self._entered.wait(PATIENCE_S), "nobody came to the gate"

    def open(self) -> None:
        """Let the body go on."""
        self._go_on.set()
