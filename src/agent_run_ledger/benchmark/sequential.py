"""Measures one run of chained steps against the floor in the same process, in alternation."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from agent_run_ledger.benchmark.children import json_of_child
from agent_run_ledger.benchmark.disk import Disk, quiet_pairs
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor
from agent_run_ledger.benchmark.plan import Bench
from agent_run_ledger.benchmark.work import chain, create_store, opened, result

SPEED = Target(sense=Sense.AT_LEAST, limit=0.50, of_ratio=True, note="aim 0.60")
CPU = Target(sense=Sense.AT_MOST, limit=260)
SYNCS = Target(sense=Sense.AT_MOST, limit=1.01, note="and 3 per checkpoint")
BYTES = Target(sense=Sense.AT_MOST, limit=2_253)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What `steps` steps took: wall seconds, CPU seconds of this process, bytes of all files after close."""

    steps: int
    seconds: float
    cpu_s: float
    stored_bytes: int

    @property
    def steps_per_s(self) -> float:
        """Steps per second of wall time."""
        return self.steps / self.seconds

    @property
    def cpu_us_per_step(self) -> float:
        """User and system time per step, in µs."""
        return self.cpu_s * 1e6 / self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The floor and the product on the same work, one right after the other."""

    floor: Cost
    product: Cost

    @property
    def ratio(self) -> float:
        """The product's speed as a share of the floor's."""
        return self.product.steps_per_s / self.floor.steps_per_s


def measure(bench: Bench) -> Measured:
    """Return speed, CPU, bytes and syncs per step."""
    plan = bench.plan
    with Disk(bench.folder) as disk:

        def one(number: int) -> Pair:
            bench.say(f"sequential: pair {number + 1}, wanted {plan.step_pairs} quiet ones")
            return _pair(bench.folder, number, plan.steps)

        kept, timed = quiet_pairs(one, disk.sample_us, wanted=plan.step_pairs, at_most=plan.at_most_step_pairs)
    dropped = len(timed) - len(kept)
    bench.say("sequential: counting syncs")
    sync_us = min(min(one.before_us, one.after_us) for one in timed)
    figures = figures_of(
        [one.pair for one in kept or timed], dropped=dropped, sync_us=sync_us, enough=len(kept) >= plan.step_pairs
    )
    syncs = {
        kind: json_of_child("sync_count", kind, os.path.join(bench.folder, f"syncs-{kind}.db"), str(plan.steps))
        for kind in ("floor", "product")
    }
    return Measured(
        figures=[*figures, syncs_figure(syncs["floor"], syncs["product"])],
        raw={"pairs": [asdict(one) for one in timed], "dropped_pairs": dropped, "syncs": syncs},
    )


def figures_of(pairs: list[Pair], *, dropped: int, sync_us: float, enough: bool) -> list[Figure]:
    """Return what the pairs say, as medians; the ratio is the median of the pairs' ratios."""
    note = f"median of {len(pairs)} pairs, {dropped} dropped for a noisy disk; one sync took {sync_us:.0f} µs"

    def median(of: Callable[[Pair], float]) -> float:
        return statistics.median(of(pair) for pair in pairs)

    return [
        Figure(
            name="sequential: steps per second",
            value=median(lambda pair: pair.product.steps_per_s),
            unit="steps/s",
            floor=median(lambda pair: pair.floor.steps_per_s),
            ratio=median(lambda pair: pair.ratio),
            target=SPEED,
            note=note,
            enough=enough,
        ),
        Figure(
            name="sequential: CPU per step",
            value=median(lambda pair: pair.product.cpu_us_per_step),
            unit="µs",
            floor=median(lambda pair: pair.floor.cpu_us_per_step),
            target=CPU,
            note="user + system",
            enough=enough,
        ),
        Figure(
            name="sequential: stored per step",
            value=median(lambda pair: pair.product.stored_bytes / pair.product.steps),
            unit="bytes",
            floor=median(lambda pair: pair.floor.stored_bytes / pair.floor.steps),
            target=BYTES,
            note="all files after close; about 1,014 bytes of it are the result itself",
        ),
    ]


def syncs_figure(floor: dict[str, float], product: dict[str, float]) -> Figure:
    """Return the synced commits per step; what checkpoints sync is counted apart and said in the note."""
    return Figure(
        name="sequential: syncs per step",
        value=product["commits"] / product["steps"],
        unit="syncs",
        floor=floor["commits"] / floor["steps"],
        target=SYNCS,
        note=f"and {product['other']:.0f} for {product['checkpoints']:.0f} checkpoints "
        f"(floor {floor['other']:.0f} for {floor['checkpoints']:.0f})",
    )


def _pair(folder: str, number: int, steps: int) -> Pair:
    """Measure both, the floor first in even pairs and last in odd ones."""
    costs: dict[str, Cost] = {}
    for kind in ("floor", "product") if number % 2 == 0 else ("product", "floor"):
        inside = os.path.join(folder, f"{kind}-{number}")
        os.mkdir(inside)
        path = os.path.join(inside, "steps.db")
        costs[kind] = _cost(inside, steps, _floor(path, steps) if kind == "floor" else _product(path, steps))
        for name in os.listdir(inside):
            os.remove(os.path.join(inside, name))
        os.rmdir(inside)
    return Pair(floor=costs["floor"], product=costs["product"])


Work = tuple[Callable[[], object], Callable[[], None]]
"""What is timed, and what closes the store after it."""


def _floor(path: str, steps: int) -> Work:
    floor = Floor(path)
    return lambda: floor.put_all(steps, result), floor.close


def _product(path: str, steps: int) -> Work:
    create_store(path)
    ledger = opened("bench", path, chain(steps))
    return ledger.execute, ledger.close


def _cost(inside: str, steps: int, work: Work) -> Cost:
    run, close = work
    gc.collect()
    used, started = cpu_s(), time.perf_counter()
    run()
    seconds, used = time.perf_counter() - started, cpu_s() - used
    close()
    stored = sum(os.path.getsize(os.path.join(inside, name)) for name in os.listdir(inside))
    return Cost(steps=steps, seconds=seconds, cpu_s=used, stored_bytes=stored)


def cpu_s() -> float:
    """Return the processor time of this process so far, user and system, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
