"""Agents on an event loop that go on with a value before its commit, which they hold up, and die in what they began."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agent_run_ledger import RunLedger, Unavailable
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.testing import BodyCounter
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE

LIFE = int(os.environ.get(LIFE_VARIABLE, "1"))
WHICH = "WHICH_AGENT"


def hand_on(workdir: Path) -> float:
    """Live one life of the agent that is asked for, and return what its step returned."""
    bodies = BodyCounter(workdir / "bodies.log")

    def echo(n: float) -> float:
        bodies.ran("echo", n)
        return n

    with RunLedger("r") as ledger, RunLedger("pipeline") as pipeline:
        pipeline.step(echo)
        agent: Callable[..., Awaitable[float]] = globals()[os.environ[WHICH]]
        return asyncio.run(_lived(agent, ledger, ledger.step(echo), pipeline))


async def _lived(agent: Callable[..., Awaitable[float]], ledger: RunLedger, echo: Any, pipeline: RunLedger) -> float:
    async with ledger.run() as run:
        return await agent(ledger, run, echo, pipeline)


def _hold(ledger: RunLedger) -> None:
    """In the first life no value is written in the background: the store's thread has something else to do."""
    if LIFE == 1:
        ledger._opened.post(threading.Event().wait)


async def call(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """The run's own call."""
    _hold(ledger)
    return float(echo(run.random()))


async def call_within(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """A call in a run within, with a value of the run around it."""
    async with ledger.run(x=1):
        _hold(ledger)
        return float(await asyncio.to_thread(echo, run.random()))


async def call_around(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """A call in the run around, with a value of one that is within it."""
    wrapped = run.wrap(echo)
    async with ledger.run(x=1) as inner:
        _hold(ledger)
        return float(await asyncio.to_thread(wrapped, inner.random()))


async def run_within(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """The inputs of a run within."""
    _hold(ledger)
    number = run.random()
    with ledger.run(number=number):
        return float(echo(number))


async def pipeline_within(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """The inputs of a pipeline."""
    _hold(ledger)
    return float(pipeline.execute(n=run.random()))


async def left_behind(ledger: RunLedger, run: Any, echo: Any, pipeline: RunLedger) -> float:
    """A call after a run within that was given up before its value, whose commit had failed once, went with another."""
    numbers, handed_out = list[float](), asyncio.Event()
    whole, failing = Journal.commit, [LIFE == 1]

    def commit(self: Journal, batch: Any) -> Any:
        if batch.values and failing.pop():
            failing.append(False)
            raise Unavailable("the disk is full")
        return whole(self, batch)

    async def within() -> None:
        async with ledger.run(x=1) as inner:
            numbers.append(inner.random())
            handed_out.set()
            await asyncio.Event().wait()

    with patch.object(Journal, "commit", commit):
        task = asyncio.create_task(within())
        await handed_out.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return float(echo(numbers[0]))
