"""Running the bodies of steps on an event loop: async bodies as tasks, sync bodies in threads of their own."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_run_ledger.probes import reach
from agent_run_ledger.runs.bodies import Call, Outcome, Todo, in_thread, timed_out
from agent_run_ledger.runs.steps import Shape
from agent_run_ledger.runs.usage import METER


class AsyncBodies:
    """The bodies of one attempt, driven from one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Outcome], Call] = {}

    async def run(self, todo: Todo) -> list[Outcome]:
        """Launch what is to be launched and return at least one outcome, or none when `wait_s` passed first."""
        for call in todo.launch:
            task = asyncio.create_task(_outcome(call), name=f"arl-step-{call.step.name}")
            self._tasks[task] = call
        if not self._tasks:
            await asyncio.sleep(todo.wait_s or 0)
            return []
        done, _ = await asyncio.wait(self._tasks, timeout=todo.wait_s, return_when=asyncio.FIRST_COMPLETED)
        outcomes = [_ended(task, self._tasks.pop(task)) for task in done]
        return sorted(outcomes, key=lambda outcome: outcome.call.index)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended; nothing of it is recorded."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _ended(task: asyncio.Task[Outcome], call: Call) -> Outcome:
    try:
        return task.result()
    except BaseException as error:  # the body cancelled itself, or ends the program: never a result
        return Outcome(call=call, abort=error)


async def _outcome(call: Call) -> Outcome:
    run = _threaded if call.step.shape in (Shape.SYNC, Shape.GENERATOR) else _awaited
    try:
        async with asyncio.timeout(call.step.timeout_s):
            return await run(call)
    except TimeoutError:  # a body's own TimeoutError came back as an outcome: this one is ours
        return timed_out(call)


async def _awaited(call: Call) -> Outcome:
    """Await an async body. Cancellation passes through: it is never recorded as a result."""
    METER.set(call.meter)  # in the context of this task alone
    try:
        reach("body.before")
        if call.around is None:
            value = await _value(call)
        else:
            with call.around:
                value = await _value(call)
        reach("body.after")
    except (MemoryError, KeyboardInterrupt, SystemExit) as error:  # a task would take the loop down with the last two
        return Outcome(call=call, abort=error)
    except Exception as error:
        return Outcome(call=call, error=error)
    return Outcome(call=call, value=value)


async def _value(call: Call) -> Any:
    if call.step.shape is Shape.ASYNC_GENERATOR:
        return [item async for item in call.step.body(*call.args, **call.kwargs)]
    return await call.step.body(*call.args, **call.kwargs)


async def _threaded(call: Call) -> Outcome:
    """Run a sync body in a daemon thread; cancelled, the thread goes on and its late outcome is discarded."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()

    def deliver(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def report(outcome: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:  # the loop is closed: nobody waits for this outcome any more
            return

    in_thread(call, report)
    return await future
