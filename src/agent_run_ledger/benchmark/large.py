"""Measures a large store beside an empty one: appending, proving, verifying, listing, erasing and pruning."""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agent_run_ledger.benchmark.children import command, failed, json_of_child
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.plan import Bench
from agent_run_ledger.benchmark.verifying import BYTES_PER_LEAF, cheap_folder, proof_figures
from agent_run_ledger.benchmark.work import chain, create_store, opened
from agent_run_ledger.store.mounts import filesystem

APPEND = Target(sense=Sense.AT_MOST, limit=1.3, of_ratio=True)
MEMORY = Target(sense=Sense.AT_MOST, limit=300)
ERASING_MEMORY = Target(sense=Sense.AT_MOST, limit=200)
PAGE = Target(sense=Sense.AT_MOST, limit=50)

JUDGED_FROM = 1_000_000
"""The number of records that the targets are about; a smaller store is measured and not judged."""

WRITERS = 2
FAILED_RUNS = 10
PAGE_RUNS = 50
LISTINGS = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """One pair: µs per step in a store that holds only its own run, and in the large one."""

    empty_us: float
    large_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line in a process of its own: seconds, peak memory in bytes, and what it printed as JSON."""

    seconds: float
    peak_rss_bytes: int
    answer: object


def measure(bench: Bench) -> Measured:
    """Return the figures of a store of `large_runs` runs with `large_steps` records of 1 KiB each."""
    plan = bench.plan
    records = plan.large_runs * plan.large_steps
    path = os.path.join(bench.folder, "large.db")
    made_on = write_store(bench, path)
    pairs = [_append(bench, path, number) for number in range(plan.large_pairs)]
    bench.say("large: proofs")
    proofs = json_of_child("auditor", "prove", path, str(plan.proofs))
    bench.say("large: verifying")
    audit = json_of_child("auditor", "verify", path)
    bench.say("large: listing runs")
    listings = _listings(path)
    note = f"{records:,} records in {plan.large_runs:,} runs, written on {made_on}, then moved"
    figures = [
        append_figure(pairs, note),
        *(replace(one, name=f"large: {one.name}", floor=None) for one in _proofs(proofs)),
        _verify_memory("large: verify, peak memory", audit),
        Figure(
            name="large: first page of runs",
            value=statistics.median(listings) * 1e3,
            unit="ms",
            target=PAGE,
            note=f"{PAGE_RUNS} runs, {FAILED_RUNS} of them unfinished; reading only, median of {LISTINGS}",
        ),
        *_forgetting(bench, path),
    ]
    if records < JUDGED_FROM:
        figures = [replace(figure, enough=False) for figure in figures]
    return Measured(figures=figures, raw={"appended": [asdict(pair) for pair in pairs], "audit": audit})


def append_figure(pairs: Sequence[Appended], note: str) -> Figure:
    """Return the time of a step in the large store beside that in an empty one: the median of the pairs' ratios."""
    return Figure(
        name="large: append",
        value=statistics.median(pair.large_us for pair in pairs),
        unit="µs/step",
        floor=statistics.median(pair.empty_us for pair in pairs),
        ratio=statistics.median(pair.large_us / pair.empty_us for pair in pairs),
        target=APPEND,
        note=f"floor: the same in an empty store, {len(pairs)} pairs; {note}",
    )


def _proofs(answer: dict[str, Any]) -> list[Figure]:
    return proof_figures(answer["leaves"], answer["seconds"], floor_s=0.0)


def write_store(bench: Bench, path: str) -> str:
    """Write the large store to `path` and return the file system it was written on (in memory, if there is room)."""
    plan = bench.plan
    with cheap_folder(plan.large_runs * plan.large_steps * BYTES_PER_LEAF) as cheap:
        folder = bench.folder if cheap is None else cheap
        made = os.path.join(folder, "made.db")
        create_store(made)
        each = plan.large_runs // WRITERS
        bench.say(f"large: {WRITERS} processes write {each * WRITERS:,} runs of {plan.large_steps:,} steps")
        fillers = [
            subprocess.Popen(
                command("filler", made, str(n * each), str(each), str(plan.large_steps), str(FAILED_RUNS // WRITERS)),
                stdout=subprocess.DEVNULL,
            )
            for n in range(WRITERS)
        ]
        for filler in fillers:
            if filler.wait() != 0:
                raise failed(["", "filler"], filler.returncode)
        shutil.copyfile(made, path)
        return filesystem(folder)


def _append(bench: Bench, path: str, number: int) -> Appended:
    bench.say(f"large: appending, pair {number + 1} of {bench.plan.large_pairs}")
    empty = os.path.join(bench.folder, f"empty-{number}.db")
    create_store(empty)
    order = (empty, path) if number % 2 == 0 else (path, empty)
    taken = {each: _step_us(each, f"appended-{number}", bench.plan.steps) for each in order}
    for suffix in ("", "-wal", "-shm", "-lock"):
        if os.path.exists(empty + suffix):
            os.remove(empty + suffix)
    return Appended(empty_us=taken[empty], large_us=taken[path])


def _step_us(path: str, run_id: str, steps: int) -> float:
    ledger = opened(run_id, path, chain(steps))
    gc.collect()
    started = time.perf_counter()
    ledger.execute()
    seconds = time.perf_counter() - started
    ledger.close()
    return seconds * 1e6 / steps


def _listings(path: str) -> list[float]:
    from agent_run_ledger.ledger.views import list_runs
    from agent_run_ledger.store import open_sqlite

    store = open_sqlite(path, create=False, readonly=True)
    seconds: list[float] = []
    for _ in range(LISTINGS):
        started = time.perf_counter()
        list_runs(store, state=None, before=None, limit=PAGE_RUNS + 1)
        seconds.append(time.perf_counter() - started)
    store.close()
    return seconds


def _forgetting(bench: Bench, path: str) -> Iterator[Figure]:
    """Yield what it costs to erase one run and to prune all that are completed."""
    plan = bench.plan
    reason = ("--reason", "benchmark", "--yes", "--json", "--db", path)
    bench.say("large: erasing a run")
    erased = arl("erase", "run-0", *reason)
    yield Figure(
        name="large: erase a run", value=erased.seconds, unit="s", note=f"{plan.large_steps:,} records, whole command"
    )
    yield _memory("erase", erased)
    bench.say("large: pruning all completed runs")
    pruned = arl("prune", "--completed-before", "0h", *reason)
    yield Figure(
        name="large: prune",
        value=(plan.large_runs - 1) * plan.large_steps / pruned.seconds,
        unit="records/s",
        note=f"{plan.large_runs - 1:,} runs in one command of {pruned.seconds:.0f} s",
    )
    yield _memory("prune", pruned)
    bench.say("large: verifying what is left")
    audit = json_of_child("auditor", "verify", path)
    yield _verify_memory("large: verify after a prune", audit)


def _verify_memory(name: str, audit: dict[str, float]) -> Figure:
    note = f"of the whole process; {audit['leaves']:,.0f} leaves in {audit['seconds']:.1f} s"
    return Figure(name=name, value=audit["peak_rss_bytes"] / 1e6, unit="MB", target=MEMORY, note=note)


def _memory(what: str, ended: Command) -> Figure:
    value = ended.peak_rss_bytes / 1e6
    return Figure(name=f"large: {what}, peak memory", value=value, unit="MB", target=ERASING_MEMORY)


def arl(*arguments: str) -> Command:
    """Run a command of the command line in a process of its own; Unavailable when it fails."""
    line = [sys.executable, "-m", "agent_run_ledger", *arguments]
    started = time.perf_counter()
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        printed = "" if process.stdout is None else process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise failed(line, process.returncode)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Command(seconds=seconds, peak_rss_bytes=peak, answer=json.loads(printed))
