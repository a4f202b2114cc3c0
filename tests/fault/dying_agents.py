"""Agents that die at a chosen place: by SIGKILL from within a body, or between two acts of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from agent_run_ledger import Pending, RunLedger, Unavailable
from agent_run_ledger.testing import BodyCounter
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE

LIFE = int(os.environ.get(LIFE_VARIABLE, "1"))
ERRORS = {"Pending": Pending, "Unavailable": Unavailable, "ValueError": ValueError}


def die() -> None:
    """End this process: nothing of it runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


class Acts:
    """What an agent's calls do: count their body, then die, raise or return, each as its life says."""

    def __init__(self, workdir: Path) -> None:
        self.bodies = BodyCounter(workdir / "bodies.log")

    def act(self, name: str, *arguments: object) -> str:
        """Do what "name" is said to do: the part behind the last dash says when and what."""
        self.bodies.ran(name, *arguments)
        if name.endswith("-dies") and LIFE == 1:
            die()
        if name.endswith("-dies-twice") and LIFE <= 2:
            die()
        for error, kind in ERRORS.items():
            if name.endswith(f"-{error}") and LIFE == 1:
                raise kind(name)
            if name.endswith(f"-{error}-always"):
                raise kind(name)
        return f"{name} in life {LIFE}"


def _register(ledger: RunLedger, kind: str, name: str, body: Any) -> Any:
    if kind == "step":
        return ledger.step(body, name=name)
    return ledger.tool(body, name=name, safe=kind == "safe")


def _sync(ledger: RunLedger, acts: Acts, kind: str, name: str) -> Any:
    return _register(ledger, kind, name, lambda n: acts.act(name, n))


def _async(ledger: RunLedger, acts: Acts, kind: str, name: str) -> Any:
    async def body(n: int) -> str:
        await asyncio.sleep(0)
        return acts.act(name, n)

    return _register(ledger, kind, name, body)


def _stream(ledger: RunLedger, acts: Acts, kind: str, name: str) -> Any:
    def body(n: int) -> Iterator[str]:
        yield "first"
        yield acts.act(name, n)

    return _register(ledger, kind, name, body)


def _async_stream(ledger: RunLedger, acts: Acts, kind: str, name: str) -> Any:
    async def body(n: int) -> AsyncIterator[str]:
        yield "first"
        yield acts.act(name, n)

    return _register(ledger, kind, name, body)


MAKERS = {"sync": _sync, "async": _async, "stream": _stream, "async stream": _async_stream}


def one_call(workdir: Path) -> object:
    """One call of the kind, the shape and the name that the environment says; what fails or not, two calls follow.

    HANDLED: whether the agent catches an error of it. THEN: what the agent does behind it, in each life.
    """
    kind, shape, name = os.environ["KIND"], os.environ["SHAPE"], os.environ["NAME"]
    handled, then = os.environ.get("HANDLED") == "yes", os.environ.get("THEN", "")
    acts = Acts(workdir)
    with RunLedger("agent") as ledger:
        call = MAKERS[shape](ledger, acts, kind, name)
        after = {one: MAKERS["sync"](ledger, acts, "step", one) for one in ("before", "after", then or "none")}

        def going_on(said: object) -> object:
            rest = [after["after"](2)]
            if then:
                rest.append(after[then](3))
            return [said, *rest]

        if shape in ("sync", "stream"):
            with ledger.run():
                after["before"](1)
                try:
                    said: object = call(1) if shape == "sync" else _taken(call(1))
                except Exception as error:
                    if not handled:
                        raise
                    said = repr(error)
                return going_on(said)

        async def main() -> object:
            async with ledger.run():
                after["before"](1)
                try:
                    said = await call(1) if shape == "async" else await _ataken(call(1))
                except Exception as error:
                    if not handled:
                        raise
                    said = repr(error)
                return going_on(said)

        return asyncio.run(main())


def _taken(stream: Any) -> object:
    """What a consumer gets; a live stream that does not run to its end may give an outcome instead of chunks."""
    return list(stream)


async def _ataken(stream: Any) -> object:
    return [chunk async for chunk in stream]


BRANCHES = {
    "ok": "step",
    "ok-safe": "safe",
    "done-unsafe": "unsafe",
    "failed-step-ValueError": "step",
    "failed-unsafe-ValueError": "unsafe",
    "waits-safe": "safe",
    "waits-unsafe": "unsafe",
    "dies": "step",
}


def in_branches(workdir: Path) -> object:
    """Eight branches, a call behind each: when one of them dies five have ended and three are in their bodies."""
    acts = Acts(workdir)
    there, never = threading.Semaphore(0), threading.Event()
    with RunLedger("agent", max_parallel=8) as ledger:
        behind = ledger.step(lambda name: acts.act(f"{name} behind"), name="behind")

        def body(name: str) -> Any:
            def run(n: int) -> str:
                if LIFE == 1 and name.startswith("waits"):
                    acts.bodies.ran(name, n)
                    there.release()
                    never.wait()
                if LIFE == 1 and name == "dies":
                    acts.bodies.ran(name, n)
                    for _ in range(7):
                        there.acquire()
                    die()
                return acts.act(name, n)

            return run

        calls = {name: _register(ledger, kind, name, body(name)) for name, kind in BRANCHES.items()}

        def branch(name: str) -> object:
            try:
                said = calls[name](1)
            except ValueError as error:
                said = repr(error)
            behind(name)
            there.release()
            return said

        with ledger.run() as run:
            return run.map(branch, BRANCHES)


def on_loop_in_branches(workdir: Path) -> object:
    """The same with tasks, and three branches."""
    acts = Acts(workdir)

    async def main() -> object:
        with RunLedger("agent") as ledger:
            good = _async(ledger, acts, "step", "good")
            paying = _async(ledger, acts, "unsafe", "paying")
            dies = _async(ledger, acts, "step", "third-dies")
            both = asyncio.Event()

            async def first() -> object:
                said = [await good(1), await good(1)]
                both.set()
                return said

            async def second() -> object:
                said = await paying(1)
                return [said, await paying(2)]

            async def third() -> object:
                await both.wait()
                return await dies(1)

            async with ledger.run() as run:
                return await run.gather(first, second, third)

    return asyncio.run(main())


def nested(workdir: Path) -> object:
    """A step whose body calls: a result, an error that it handles, and a call that dies."""
    acts = Acts(workdir)
    with RunLedger("agent") as ledger:
        good = _sync(ledger, acts, "step", "good")
        bad = _sync(ledger, acts, "step", "bad-ValueError")
        last = _sync(ledger, acts, os.environ["KIND"], "last-dies")

        @ledger.step
        def outer() -> object:
            acts.bodies.ran("outer")
            said = [good(1)]
            try:
                said.append(bad(1))
            except ValueError as error:
                said.append(repr(error))
            return [*said, last(1)]

        with ledger.run():
            return outer()


def child_after_an_error(workdir: Path) -> object:
    """An error is handled by starting a run within this one, which dies (or the outer run behind it)."""
    acts, where = Acts(workdir), os.environ["WHERE"]
    with RunLedger("agent") as ledger:
        bad = _sync(ledger, acts, os.environ["KIND"], "bad-ValueError")
        inner = _sync(ledger, acts, "step", "inner-dies" if where == "inner" else "inner")
        behind = _sync(ledger, acts, "step", "behind-dies" if where == "behind" else "behind")
        with ledger.run():
            try:
                said = bad(1)
            except ValueError as error:
                said = repr(error)
            with ledger.run(why=said):
                got = inner(1)
            return [said, got, behind(1)]


def failed_child(workdir: Path) -> object:
    """A run within this one fails, the agent goes on, and then it dies."""
    acts = Acts(workdir)
    with RunLedger("agent") as ledger:
        bad = _sync(ledger, acts, "step", "bad-ValueError")
        behind = _sync(ledger, acts, "step", "behind")
        last = _sync(ledger, acts, "step", "last-dies")
        with ledger.run():
            said = ""
            with contextlib.suppress(ValueError), ledger.run():
                said = bad(1)
            return [said, behind(len(said)), last(1)]


def retried(workdir: Path) -> object:
    """The error of the first try is recorded, and the process dies before the second."""
    acts = Acts(workdir)
    with RunLedger("agent") as ledger:
        step = ledger.step(lambda: acts.act("flaky-ValueError"), name="flaky", retries=1, retry_base_s=0)
        with ledger.run():
            return step()
