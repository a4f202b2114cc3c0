"""Measures steps at a server against the bare loop, writers side by side, the backlog of a queue, and the rest."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.children import race
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.work import chain, opened
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.worker.picking import Picker
from bench.server.dbos import beside_dbos
from bench.server.recovery import recovery, timed
from bench.server.trips import counted_trips
from bench.server.work import Bare, connect, make_store, statements

ONE = Target(sense=Sense.AT_LEAST, limit=0.30, of_ratio=True)
EIGHT = Target(sense=Sense.AT_LEAST, limit=0.20, of_ratio=True)
EIGHT_BESIDE_ONE = Target(sense=Sense.AT_LEAST, limit=0.50, of_ratio=True)
PICK = Target(sense=Sense.AT_MOST, limit=100)
TRIPS = Target(sense=Sense.AT_MOST, limit=3)
DEAD = Target(sense=Sense.AT_MOST, limit=1_000)

Place = Callable[[], Any]
"""Gives the URL of a database that nobody has used, as a context manager that drops it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    steps: int
    steps_counted: int
    pairs: int
    processes: int
    steps_each: int
    backlog: int
    picks: int
    interrupted: int


FULL = Plan(
    steps=1_000, steps_counted=200, pairs=5, processes=8, steps_each=250, backlog=100_000, picks=300, interrupted=1_000
)
QUICK = Plan(
    steps=300, steps_counted=100, pairs=2, processes=8, steps_each=50, backlog=10_000, picks=50, interrupted=100
)


def measure(plan: Plan, place: Place, say: Callable[[str], None]) -> Measured:
    """Return all figures. Every database is a new one."""
    figures: list[Figure] = []
    one, dead = _sequential(plan, place, say)
    figures += [*one, _trips(plan, place), dead]
    figures += _processes(plan, place, say, alone=one[0].value)
    figures += _picks(plan, place, say)
    figures += recovery(plan.interrupted, place, say, enough=plan.interrupted >= FULL.interrupted)
    beside = beside_dbos(plan.steps, max(1, plan.pairs - 2), place, say)
    return Measured(figures=[*figures, *beside.figures], raw=beside.raw)


def _sequential(plan: Plan, place: Place, say: Callable[[str], None]) -> tuple[list[Figure], Figure]:
    ratios, strict, bare_s, ours_s, dead = list[float](), list[float](), list[float](), list[float](), (0, 0, 0)
    for number in range(plan.pairs):
        say(f"server: one worker, pair {number + 1} of {plan.pairs}")
        with place() as url:
            bare, quick = Bare(url, create=True), Bare(url, create=False, one_trip=True)
            make_store(url)
            ledger = opened("bench", url, chain(plan.steps))
            works: dict[str, Callable[[], object]] = {
                "floor": lambda bare=bare: bare.put_all(plan.steps),
                "one trip": lambda quick=quick: quick.put_all(plan.steps, first_key=plan.steps),
                "product": ledger.execute,
            }
            order = ("floor", "product", "one trip") if number % 2 == 0 else ("one trip", "product", "floor")
            took = {kind: timed(works[kind]) for kind in order}
            dead = _dead_heads(url)
            bare.close()
            quick.close()
            ledger.close()
        bare_s.append(plan.steps / took["floor"])
        ours_s.append(plan.steps / took["product"])
        ratios.append(took["floor"] / took["product"])
        strict.append(took["one trip"] / took["product"])
    speed = Figure(
        name="server: steps per second, one worker",
        value=statistics.median(ours_s),
        unit="steps/s",
        floor=statistics.median(bare_s),
        ratio=statistics.median(ratios),
        target=ONE,
        note=f"median of {plan.pairs} pairs of {plan.steps:,}; floor: insert, then commit",
    )
    beside = Figure(
        name="server: one worker beside a loop of one round trip",
        value=speed.value,
        unit="steps/s",
        floor=speed.value / statistics.median(strict),
        ratio=statistics.median(strict),
        note="floor: insert and commit sent as one",
    )
    tuples, updates, hot = dead
    bounded = Figure(
        name="server: dead rows of the log's head",
        value=tuples,
        unit="rows",
        target=DEAD,
        note=f"after {updates:,} updates, {hot / max(updates, 1):.0%} of them beside an index",
    )
    return [speed, beside], bounded


def _processes(plan: Plan, place: Place, say: Callable[[str], None], *, alone: float) -> list[Figure]:
    ratios, ours = list[float](), list[float]()
    for number in range(max(1, plan.pairs - 2)):
        say(f"server: {plan.processes} processes, pair {number + 1}")
        speeds: dict[str, float] = {}
        with place() as url:
            Bare(url, create=True).close()
            make_store(url)
            for kind in ("floor", "product"):
                speeds[kind] = _race(plan, kind, url)
        ours.append(speeds["product"])
        ratios.append(speeds["product"] / speeds["floor"])
    value = statistics.median(ours)
    return [
        Figure(
            name=f"server: steps per second, {plan.processes} processes",
            value=value,
            unit="steps/s",
            floor=value / statistics.median(ratios),
            ratio=statistics.median(ratios),
            target=EIGHT,
            note=f"median of {len(ours)}; floor: as many bare loops",
        ),
        Figure(
            name=f"server: {plan.processes} processes beside one",
            value=value,
            unit="steps/s",
            floor=alone,
            target=EIGHT_BESIDE_ONE,
            note="writers take turns at the log's end",
        ),
    ]


def _race(plan: Plan, kind: str, url: str) -> float:
    command = [sys.executable, "-m", "bench.server.work", kind, url]
    answers = race([[*command, str(number), str(plan.steps_each)] for number in range(plan.processes)])
    wall = max(one["ended_s"] for one in answers) - min(one["started_s"] for one in answers)
    return plan.processes * plan.steps_each / wall


def _picks(plan: Plan, place: Place, say: Callable[[str], None]) -> list[Figure]:
    slowest: dict[int, float] = {}
    for backlog in (plan.backlog // 100, plan.backlog):
        say(f"server: picking from {backlog:,}")
        with place() as url, RunLedger(db_path=url) as ledger:
            ledger.entry(name="job")(lambda: 1)
            ledger.submit("pattern")
            with _connected(url) as connection:
                connection.execute(statements()["copy_pending"], (backlog,))
                connection.execute(statements()["analyze"])
            queue = ledger.runs_of_queue()
            taken: set[str] = set()
            times = list[float]()
            for _ in range(plan.picks):
                picker = Picker(queue, time.monotonic, pending_ms=0, fraction=SystemEntropy().fraction)
                started = time.perf_counter()
                found = picker.pick(1, taken)
                times.append((time.perf_counter() - started) * 1e3)
                if len(found) != 1:
                    raise LookupError("the benchmark's queue is not what was written")
        slowest[backlog] = statistics.quantiles(times, n=100)[98]
    small, large = slowest.items()
    return [
        Figure(
            name="server: picking a run, slowest of a hundred",
            value=large[1],
            unit="ms",
            floor=small[1],
            target=PICK,
            note=f"{large[0]:,} pending, beside {small[0]:,}; {plan.picks} picks",
        )
    ]


def _trips(plan: Plan, place: Place) -> Figure:
    """Count the round trips of steps, in a run that is not timed."""
    with place() as url:
        make_store(url)
        ledger = opened("counted", url, chain(plan.steps_counted))
        with counted_trips() as trips:
            ledger.execute()
        ledger.close()
    return Figure(
        name="server: round trips of a step",
        value=trips[0] / plan.steps_counted,
        unit="trips",
        target=TRIPS,
        note=f"a run of {plan.steps_counted} steps, its start and end among them",
    )


def _dead_heads(url: str) -> tuple[int, int, int]:
    with _connected(url) as connection:
        connection.execute(statements()["flush_statistics"])
        time.sleep(1.0)
        found = connection.execute(statements()["dead_heads"]).fetchone()
        return (int(found[0]), int(found[1]), int(found[2])) if found else (0, 0, 0)


@contextmanager
def _connected(url: str) -> Any:
    connection = connect(url)
    try:
        yield connection
    finally:
        connection.close()
