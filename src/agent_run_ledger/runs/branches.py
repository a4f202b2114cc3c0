"""Parallel calls in a dynamic run: each branch is a scope of its own, numbered by the order of the arguments."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from agent_run_ledger.errors import Misuse, Pending
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.own_thread import in_own_thread
from agent_run_ledger.runs.steps import Shape, Step

P = ParamSpec("P")
R = TypeVar("R")
Job = Callable[[], Any]


def wrapped(frame: Frame, fn: Callable[P, R]) -> Callable[P, R]:
    """Return fn for a thread of the program's own: it belongs to the run, in a branch numbered now."""
    branch = frame.wrap()
    context = contextvars.copy_context()

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        inner = context.copy()  # one context cannot be entered twice at once
        inner.run(CURRENT.set, branch)
        return inner.run(fn, *args, **kwargs)

    return call


def in_threads(frame: Frame, jobs: Sequence[Job], *, limit: int) -> list[Any]:
    """Run the jobs in at most `limit` threads, and return their results in their order.

    All of them end before the first error, in the order of the jobs, is raised; Pending only where nothing else is.
    """
    ended: list[tuple[Any, BaseException | None]] = [(None, None)] * len(jobs)
    waiting = iter(range(len(jobs)))
    lock = threading.Lock()
    branches = _branches(frame, len(jobs))

    def work() -> None:
        while True:
            with lock:
                at = next(waiting, None)
            if at is None:
                return
            context = contextvars.copy_context()
            context.run(CURRENT.set, branches[at])
            try:
                ended[at] = (context.run(jobs[at]), None)
            except BaseException as error:  # carried to the thread that waits
                ended[at] = (None, error)

    context = contextvars.copy_context()
    threads = [
        threading.Thread(target=context.copy().run, args=(work,), name=f"arl-branch-{at}", daemon=True)
        for at in range(min(limit, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _results(ended)


async def on_loop(frame: Frame, jobs: Sequence[Job | Awaitable[Any]], *, limit: int) -> list[Any]:
    """Do the same with tasks; a job that is neither awaitable nor async is called in a thread.

    Cancelled, it cancels its tasks and waits for them.
    """
    import asyncio

    room = asyncio.Semaphore(limit)
    branches = _branches(frame, len(jobs))

    async def work(job: Job | Awaitable[Any], branch: Frame) -> tuple[Any, BaseException | None]:
        async with room:
            CURRENT.set(branch)  # in the context of this task alone
            try:
                if not inspect.isawaitable(job):
                    call = job
                    job = call() if _is_async(call) else await in_own_thread(call, name="arl-branch")
                return (await job if inspect.isawaitable(job) else job), None
            except Exception as error:
                return None, error

    tasks = [asyncio.create_task(work(job, branch)) for job, branch in zip(jobs, branches, strict=True)]
    try:
        return _results([await task for task in tasks])
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def each(fn: Callable[[Any], Any], items: Iterable[Any]) -> list[Job]:
    """Return one job per item."""

    def job(item: Any) -> Job:
        if _is_async(fn):

            async def acall() -> Any:
                return await fn(item)

            return acall
        return lambda: fn(item)

    return [job(item) for item in items]


def check_limit(limit: object) -> None:
    """Raise Misuse unless this is a number of branches that can run at once."""
    if type(limit) is not int or not 1 <= limit <= 1024:
        raise Misuse(f"limit must be a whole number from 1 to 1024, not {limit!r}", code="bad_setting")


def _is_async(fn: object) -> bool:
    if isinstance(fn, Step):
        return cast("Step[..., Any]", fn).shape is Shape.ASYNC
    return inspect.iscoroutinefunction(fn)


def _branches(frame: Frame, number: int) -> list[Frame]:
    group = frame.group()
    return [frame.branch(group, at) for at in range(number)]


def _results(ended: Sequence[tuple[Any, BaseException | None]]) -> list[Any]:
    errors = [error for _, error in ended if error is not None]
    if not errors:
        return [value for value, _ in ended]
    first = next((error for error in errors if not isinstance(error, Exception)), None)
    first = first or next((error for error in errors if not isinstance(error, Pending)), errors[0])
    for error in errors:
        if error is not first:
            first.add_note(f"another branch failed too: {type(error).__name__}")
    raise first
