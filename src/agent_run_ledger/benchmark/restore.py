"""Measures how long a killed run takes to come back to its first step that is not recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files

from agent_run_ledger.benchmark.children import command, failed, live
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor, statements
from agent_run_ledger.benchmark.plan import Bench, Plan
from agent_run_ledger.benchmark.work import result
from agent_run_ledger.errors import Tampered

RESTORED = Target(sense=Sense.AT_MOST, limit=40)
FIRST_STEP = Target(sense=Sense.AT_MOST, limit=0.35)
RESTORED_MANY = Target(sense=Sense.AT_MOST, limit=500)
LINEAR = Target(sense=Sense.AT_MOST, limit=1.5, note="linear")
STEPS_LEFT = 100
MANY = 10_000
"""The number of records that RESTORED_MANY is about; a quick run measures fewer and is not judged by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """One way back: seconds from `execute` and from the process's start to the first live body."""

    execute_s: float
    process_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """The medians of several ways back with `recorded` steps, for the product and for the floor."""

    recorded: int
    product: Return
    floor: Return


def measure(bench: Bench) -> Measured:
    """Return the times for a usual number of records and for many, and whether they grow linearly."""
    plan = bench.plan
    few = returns(bench, plan.recorded)
    many = returns(bench, plan.recorded_many)
    return Measured(figures=figures_of(few, many, plan), raw={"returns": [asdict(few), asdict(many)]})


def figures_of(few: Returns, many: Returns, plan: Plan) -> list[Figure]:
    """Return the four figures of a restart."""

    def restored(returns: Returns, target: Target | None) -> Figure:
        return Figure(
            name=f"restore: {returns.recorded:,} recorded steps",
            value=returns.product.execute_s * 1e3,
            unit="ms",
            floor=returns.floor.execute_s * 1e3,
            target=target,
            note=f"execute() to the first live body, median of {plan.lives}; floor: read and decode as many bare rows",
        )

    per_step = [each.execute_s / r.recorded for r in (few, many) for each in (r.product, r.floor)]
    return [
        restored(few, RESTORED),
        Figure(
            name="restore: first new step",
            value=few.product.process_s,
            unit="s",
            floor=few.floor.process_s,
            target=FIRST_STEP,
            note=f"process start to the first live body with {few.recorded:,} recorded steps",
        ),
        restored(many, RESTORED_MANY if many.recorded >= MANY else None),
        Figure(
            name="restore: growth per step",
            value=per_step[2] / per_step[0],
            unit="×",
            floor=per_step[3] / per_step[1],
            target=LINEAR,
            note=f"time per step with {many.recorded:,} records over time per step with {few.recorded:,}",
        ),
    ]


def returns(bench: Bench, recorded: int, *, life: str = "life") -> Returns:
    """Measure lives that come back to `recorded` steps. `life`: the module whose processes live them."""
    bench.say(f"restore: recording {recorded:,} steps, then kill -9")
    inside = os.path.join(bench.folder, f"restore-{recorded}")
    os.mkdir(inside)
    steps = recorded + STEPS_LEFT
    killed = command(life, os.path.join(inside, "steps.db"), str(steps), str(recorded))
    if (died := live(killed, dies=True)).exit_code != -signal.SIGKILL:
        raise failed(killed, died.exit_code)
    floor = os.path.join(bench.folder, f"floor-{recorded}.db")
    _write_floor(floor, recorded)
    lives: list[tuple[Return, Return]] = []
    for number in range(bench.plan.lives):
        bench.say(f"restore: {recorded:,} steps, life {number + 1} of {bench.plan.lives}")
        again = f"{inside}-{number}"
        shutil.copytree(inside, again)  # as the kill left it, the WAL included
        product = _return(command(life, os.path.join(again, "steps.db"), str(steps)), recorded)
        shutil.rmtree(again)
        with as_file(files("agent_run_ledger.benchmark") / "bare_life.py") as script:
            bare = [sys.executable, "-P", str(script), floor, statements()["select_all"]]
            lives.append((product, _return(bare, recorded)))
    shutil.rmtree(inside)
    os.remove(floor)
    return Returns(
        recorded=recorded, product=_median([one for one, _ in lives]), floor=_median([one for _, one in lives])
    )


def _return(arguments: list[str], recorded: int) -> Return:
    lived = live(arguments)
    if lived.answer["step"] != recorded:
        raise Tampered(f"the first live step was {lived.answer['step']} with {recorded} recorded ones")
    return Return(execute_s=lived.answer["execute_s"], process_s=(lived.answer["entered_ns"] - lived.spawned_ns) / 1e9)


def _median(returns: Sequence[Return]) -> Return:
    return Return(
        execute_s=statistics.median(one.execute_s for one in returns),
        process_s=statistics.median(one.process_s for one in returns),
    )


def _write_floor(path: str, rows: int) -> None:
    floor = Floor(path)
    floor.put_together(rows, lambda i: json.dumps(result(i)))
    floor.close()
