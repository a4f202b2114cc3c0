"""A child process with many tasks that call steps, and one that notes how long the event loop stood still."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agent_run_ledger.benchmark.work import Result, result

TICK_S = 0.001
Task = Callable[[int], Awaitable[None]]
"""What task `number` does, from its first call to its last."""


async def watched(work: Callable[[], Awaitable[object]]) -> float:
    """Do the work and return the longest time in seconds that a task beside it waited beyond its sleep."""
    longest_s, over = 0.0, False

    async def tick() -> None:
        nonlocal longest_s
        while not over:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            longest_s = max(longest_s, time.perf_counter() - before - TICK_S)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work()
    finally:
        over = True
        await ticking
    return longest_s


async def on_product(path: str, tasks: int, calls: int) -> float:
    """Make the calls as an async step of one dynamic run, and return the longest stall in seconds."""
    from agent_run_ledger.benchmark.dynamic_work import opened

    ledger = opened(path)

    @ledger.step
    async def one(task: int, i: int, previous: Result) -> Result:
        await asyncio.sleep(0)
        return result(i)

    async def task(number: int) -> None:
        previous: Result = {}
        for i in range(calls):
            previous = await one(number, i, previous)

    async def work() -> None:
        async with ledger.run() as run:
            await run.map(task, range(tasks), limit=tasks)

    return await watched(work)


async def on_floor(path: str, tasks: int, calls: int) -> float:
    """Commit as many bare rows from as many tasks through one thread."""
    from agent_run_ledger.benchmark.floor import Floor

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        floor = await loop.run_in_executor(thread, Floor, path)

        async def task(number: int) -> None:
            for i in range(calls):
                await asyncio.sleep(0)
                key = number * calls + i
                await loop.run_in_executor(thread, lambda at: floor.put_all(1, result, first_key=at), key)

        longest_s = await watched(lambda: asyncio.gather(*(task(number) for number in range(tasks))))
        await loop.run_in_executor(thread, floor.close)
    return longest_s


def main(arguments: Sequence[str]) -> None:
    """Print the longest stall and the whole time in seconds as JSON: KIND PATH TASKS CALLS."""
    kind, path, tasks, calls = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    started = time.perf_counter()
    longest_s = asyncio.run((on_floor if kind == "floor" else on_product)(path, tasks, calls))
    print(json.dumps({"longest_stall_s": longest_s, "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(sys.argv[1:])
