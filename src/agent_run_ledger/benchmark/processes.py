"""Measures many processes that write one file against as many bare ones."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from agent_run_ledger.benchmark.children import command, race
from agent_run_ledger.benchmark.disk import Disk, quiet_pairs
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor
from agent_run_ledger.benchmark.plan import Bench, Plan
from agent_run_ledger.benchmark.work import create_store

SPEED = Target(sense=Sense.AT_LEAST, limit=0.35, of_ratio=True)
FAIR = Target(sense=Sense.AT_MOST, limit=2)
WAIT = Target(sense=Sense.AT_MOST, limit=0.5)
ERRORS = Target(sense=Sense.AT_MOST, limit=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One start of all processes together. Times in seconds; a process with an error counts for nothing else."""

    steps_per_s: float
    slowest_to_fastest: float
    longest_wait_s: float
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestPair:
    """Bare processes, and processes of the product."""

    floor: Contest
    product: Contest

    @property
    def ratio(self) -> float:
        """The product's speed as a share of the floor's."""
        return self.product.steps_per_s / self.floor.steps_per_s if self.floor.steps_per_s else 0.0


def measure(bench: Bench) -> Measured:
    """Return speed, fairness, the longest wait and the errors of `processes` writers, each with a run of its own."""
    plan = bench.plan
    with Disk(bench.folder) as disk:

        def one(number: int) -> ContestPair:
            bench.say(f"processes: pair {number + 1}, wanted {plan.contest_pairs} quiet ones")
            order = ("floor", "product") if number % 2 == 0 else ("product", "floor")
            held = {kind: _hold(bench.folder, kind, number, plan) for kind in order}
            return ContestPair(floor=held["floor"], product=held["product"])

        kept, timed = quiet_pairs(one, disk.sample_us, wanted=plan.contest_pairs, at_most=plan.at_most_contest_pairs)
    pairs = [one.pair for one in kept or timed]
    enough = len(kept) >= plan.contest_pairs
    dropped = len(timed) - len(kept)
    errors = sum(one.pair.product.errors for one in timed)
    return Measured(
        figures=figures_of(pairs, plan, dropped=dropped, errors=errors, enough=enough),
        raw={"pairs": [asdict(one) for one in timed], "dropped_pairs": dropped},
    )


def figures_of(pairs: list[ContestPair], plan: Plan, *, dropped: int, errors: int, enough: bool) -> list[Figure]:
    """Return what the pairs say: medians for speed and fairness, the worst of all for the wait, all errors."""
    products, floors = [pair.product for pair in pairs], [pair.floor for pair in pairs]
    many = f"{plan.processes} processes"
    return [
        Figure(
            name=f"{many}: steps per second",
            value=statistics.median(one.steps_per_s for one in products),
            unit="steps/s",
            floor=statistics.median(one.steps_per_s for one in floors),
            ratio=statistics.median(pair.ratio for pair in pairs),
            target=SPEED,
            note=f"median of {len(pairs)} pairs of {plan.processes} × {plan.steps_each} steps, {dropped} dropped",
            enough=enough,
        ),
        Figure(
            name=f"{many}: slowest to fastest",
            value=statistics.median(one.slowest_to_fastest for one in products),
            unit="×",
            floor=statistics.median(one.slowest_to_fastest for one in floors),
            target=FAIR,
            note=f"worst {max(one.slowest_to_fastest for one in products):.2f}",
            enough=enough,
        ),
        Figure(
            name=f"{many}: longest wait",
            value=max(one.longest_wait_s for one in products),
            unit="s",
            floor=max(one.longest_wait_s for one in floors),
            target=WAIT,
            note="of any process in any pair that counts, between two bodies",
            enough=enough,
        ),
        Figure(
            name=f"{many}: errors",
            value=float(errors),
            unit="processes",
            floor=float(sum(one.errors for one in floors)),
            target=ERRORS,
            note="in all pairs",
        ),
    ]


def contest_of(answers: list[dict[str, Any]], steps_each: int) -> Contest:
    """Return one contest from what its processes printed."""
    ended = [one for one in answers if "error" not in one]
    errors = len(answers) - len(ended)
    if not ended:
        return Contest(steps_per_s=0.0, slowest_to_fastest=0.0, longest_wait_s=0.0, errors=errors)
    took = [one["ended_s"] - one["started_s"] for one in ended]
    wall = max(one["ended_s"] for one in ended) - min(one["started_s"] for one in ended)
    return Contest(
        steps_per_s=steps_each * len(ended) / wall,
        slowest_to_fastest=max(took) / min(took),
        longest_wait_s=max(one["longest_wait_s"] for one in ended),
        errors=errors,
    )


def _hold(folder: str, kind: str, number: int, plan: Plan) -> Contest:
    inside = os.path.join(folder, f"contest-{kind}-{number}")
    os.mkdir(inside)
    path = os.path.join(inside, "steps.db")
    _create(kind, path)
    starts = [command("contender", kind, path, str(i), str(plan.steps_each)) for i in range(plan.processes)]
    contest = contest_of(race(starts), plan.steps_each)
    for name in os.listdir(inside):
        os.remove(os.path.join(inside, name))
    os.rmdir(inside)
    return contest


def _create(kind: str, path: str) -> None:
    """Make the file before the race: it is about writing, not about who creates."""
    if kind == "floor":
        Floor(path).close()
        return
    create_store(path)
