"""Measures effect steps end to end, with a target over HTTP, and the time from a grant to its result."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from agent_run_ledger.benchmark.children import command, failed, json_of_child
from agent_run_ledger.benchmark.disk import Disk, quiet_pairs
from agent_run_ledger.benchmark.effect_step_work import agent, approve_all, grant, make_store, refund_all
from agent_run_ledger.benchmark.effect_target import target
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor
from agent_run_ledger.benchmark.plan import Bench
from agent_run_ledger.benchmark.sequential import Cost, Pair, cpu_s
from agent_run_ledger.effects import ActionState
from agent_run_ledger.errors import Unavailable
from agent_run_ledger.ledger.authority import open_effects

COMMITS = 4
"""Synced transactions of a step: claim, prepare, hand-out and outcome. A start mark and the result are not synced."""

SPEED = Target(sense=Sense.AT_LEAST, limit=0.30, of_ratio=True)
SYNCS = Target(sense=Sense.AT_MOST, limit=COMMITS + 0.05, note="checkpoints sync unsynced commits too")
CONTINUED = Target(sense=Sense.AT_MOST, limit=1)

GRANTS = 8
LOOK_S = 0.01
WITHIN_S = 60.0
_ROW = len('{"data": ""}')
_ROW_BYTES = 1_024


def measure(bench: Bench) -> Measured:
    """Return speed, processor time and synced commits of effect steps, and the time from a grant to its result."""
    plan = bench.plan
    with target() as url, Disk(bench.folder) as disk:

        def one(number: int) -> Pair:
            bench.say(f"effect steps: pair {number + 1}, wanted {plan.effect_pairs} quiet ones")
            return _pair(bench.folder, url, number, plan.effect_lives)

        kept, timed = quiet_pairs(one, disk.sample_us, wanted=plan.effect_pairs, at_most=3 * plan.effect_pairs)
        bench.say("effect steps: counting syncs")
        syncs = _syncs(bench.folder, url, plan.effect_lives)
        bench.say("effect steps: from grants to results")
        waits_s = _waits(bench.folder, url)
    pairs, enough = [each.pair for each in kept or timed], len(kept) >= plan.effect_pairs
    return Measured(
        figures=[*step_figures(pairs, enough=enough), syncs_figure(syncs), wait_figure(waits_s)],
        raw={"pairs": [asdict(each) for each in timed], "syncs": syncs, "waits_s": waits_s},
    )


def step_figures(pairs: Sequence[Pair], *, enough: bool) -> list[Figure]:
    """Return speed and processor time of a step, as medians of the pairs."""

    def median(of: Callable[[Pair], float]) -> float:
        return statistics.median(of(pair) for pair in pairs)

    return [
        Figure(
            name="effect steps: steps per second",
            value=median(lambda pair: pair.product.steps_per_s),
            unit="steps/s",
            floor=median(lambda pair: pair.floor.steps_per_s),
            ratio=median(lambda pair: pair.ratio),
            target=SPEED,
            note=f"median of {len(pairs)} pairs, with one request over loopback each; floor: {COMMITS} bare rows",
            enough=enough,
        ),
        Figure(
            name="effect steps: CPU per step",
            value=median(lambda pair: pair.product.cpu_us_per_step),
            unit="µs",
            floor=median(lambda pair: pair.floor.cpu_us_per_step),
            note="user + system, without the target's",
        ),
    ]


def syncs_figure(syncs: dict[str, float]) -> Figure:
    """Return the synced commits of a step."""
    return Figure(
        name="effect steps: syncs per step",
        value=syncs["commits"] / syncs["steps"],
        unit="syncs",
        floor=float(COMMITS),
        target=SYNCS,
        note=f"and {syncs['other']:.0f} for checkpoints, of {syncs['steps']:.0f} steps",
    )


def wait_figure(waits_s: Sequence[float]) -> Figure:
    """Return the longest time from a grant to the result, in a process that waits for it."""
    return Figure(
        name="effect steps: longest time from grant to result",
        value=max(waits_s),
        unit="s",
        target=CONTINUED,
        note=f"of {len(waits_s)}, median {statistics.median(waits_s):.2f} s; who waits looks 4 times a second",
    )


def _pair(folder: str, url: str, number: int, steps: int) -> Pair:
    """Measure both, the floor first in even pairs and last in odd ones."""
    inside = os.path.join(folder, f"steps-{number}")
    os.mkdir(inside)
    path, trust = os.path.join(inside, "runs.db"), os.path.join(inside, "trust.json")
    approve_all(path, trust, url, range(steps), make_store(path, trust))
    ledger, refund = agent(path, trust, url)
    floor = Floor(os.path.join(inside, "floor.db"))
    with ledger:
        _ = ledger.bind("bench").state  # opens the store
        work: dict[str, Callable[[], object]] = {
            "product": lambda: refund_all(ledger, refund, range(steps)),
            "floor": lambda: floor.put_all(steps * COMMITS, lambda _: {"data": "x" * (_ROW_BYTES - _ROW)}),
        }
        order = ("floor", "product") if number % 2 == 0 else ("product", "floor")
        costs = {kind: _cost(steps, work[kind]) for kind in order}
    floor.close()
    shutil.rmtree(inside)
    return Pair(floor=costs["floor"], product=costs["product"])


def _cost(steps: int, work: Callable[[], object]) -> Cost:
    used, started = cpu_s(), time.perf_counter()
    work()
    return Cost(steps=steps, seconds=time.perf_counter() - started, cpu_s=cpu_s() - used, stored_bytes=0)


def _syncs(folder: str, url: str, steps: int) -> dict[str, float]:
    path, trust = os.path.join(folder, "syncs.db"), os.path.join(folder, "syncs.json")
    approve_all(path, trust, url, range(steps), make_store(path, trust))
    return json_of_child("effect_agent", "syncs", path, trust, url, str(steps))


def _waits(folder: str, url: str) -> list[float]:
    """Return, for each effect that a process waits for, the seconds from its grant to its result."""
    path, trust = os.path.join(folder, "waits.db"), os.path.join(folder, "waits.json")
    signing, waits = make_store(path, trust), list[float]()
    start = command("effect_agent", "waits", path, trust, url, str(GRANTS))
    with open_effects(path, trust_path=trust) as effects, subprocess.Popen(start, stdout=subprocess.PIPE) as child:
        try:
            for order in range(GRANTS):
                until = time.monotonic() + WITHIN_S
                while not (members := effects.inspect(f"refund:{order}")):
                    if time.monotonic() > until or child.poll() is not None:
                        raise Unavailable("an agent of the benchmark did not ask for its effect", code="bench_failed")
                    time.sleep(LOOK_S)
                time.sleep(LOOK_S * (1 + 5 * order))  # so that grants lie at different places between two looks
                granted_ns = time.monotonic_ns()
                grant(effects, members[-1], signing)
                line = b"" if child.stdout is None else child.stdout.readline()
                if not line:
                    raise failed(start, child.wait())
                waits.append((int(line) - granted_ns) / 1e9)
                if effects.inspect(f"refund:{order}")[-1].state is not ActionState.SUCCEEDED:
                    raise Unavailable("an effect of the benchmark did not succeed", code="bench_failed")
        finally:
            if len(waits) < GRANTS:
                child.kill()
    return waits
