"""Recovering what a killed worker left: how long one worker takes, beside as many bare commits, and its round trips."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.figures import Figure, Sense, Target
from agent_run_ledger.worker import Worker, WorkerSettings
from bench.server.trips import counted_trips
from bench.server.work import Bare, connect, statements

RECOVERY = Target(sense=Sense.AT_MOST, limit=10)


def recovery(interrupted: int, place: Callable[[], Any], say: Callable[[str], None], *, enough: bool) -> list[Figure]:
    """Leave runs behind as a worker does that is killed, and let another one end them."""
    say(f"server: {interrupted:,} interrupted runs")
    with place() as url, RunLedger(db_path=url) as ledger:
        stop = _left_behind(ledger, interrupted)
        stop.clear()
        worker = Worker(ledger, settings=WorkerSettings(concurrency=8, poll_s=0.05))
        size = _leaves(url)
        with counted_trips() as trips:
            seconds = timed(lambda: worker.run(until_idle=True))
        if worker.tally.outcomes.total() != interrupted:
            raise LookupError(f"not every run was gone on with: {worker.tally}")
        commits = _leaves(url) - size
        bare = Bare(url, create=True)
        floor_s = timed(lambda: bare.put_all(commits))
        bare.close()
    return [
        Figure(
            name=f"server: recovering {interrupted:,} interrupted runs",
            value=seconds,
            unit="s",
            floor=floor_s,
            target=RECOVERY,
            note=f"one worker, 8 at once; each restores a step and runs one; floor: a bare loop of {commits:,} rows",
            enough=enough,
        ),
        Figure(
            name="server: round trips of a recovered run",
            value=trips[0] / interrupted,
            unit="trips",
            note="the looks of the worker among them",
        ),
    ]


def _left_behind(ledger: RunLedger, count: int) -> list[bool]:
    stop = [True]

    @ledger.step
    def one(number: int) -> int:
        return number

    @ledger.entry
    def job(number: int) -> int:
        first = one(number)
        if stop:
            raise SystemExit
        return first + one(number + 1)

    for number in range(count):
        job.submit(f"r{number}", number=number)
        try:
            job.start(f"r{number}", number=number)
        except SystemExit:
            continue
    return stop


def _leaves(url: str) -> int:
    connection = connect(url)
    try:
        return int(connection.execute(statements()["head_size"]).fetchone()[0])
    finally:
        connection.close()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a work takes."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
