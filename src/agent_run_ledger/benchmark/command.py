"""The command: chooses what to measure and how much, runs it in a folder of its own, and writes the report."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent_run_ledger.benchmark import (
    dynamic,
    effect_steps,
    effects,
    importing,
    large,
    processes,
    restore,
    sequential,
    verifying,
)
from agent_run_ledger.benchmark.figures import Figure, Measured
from agent_run_ledger.benchmark.plan import FULL, QUICK, Bench, Plan
from agent_run_ledger.benchmark.report import Report, machine
from agent_run_ledger.benchmark.svg import picture
from agent_run_ledger.store.mounts import filesystem

MEASUREMENTS: Mapping[str, Callable[[Bench], Measured]] = {
    "sequential": sequential.measure,
    "processes": processes.measure,
    "restore": restore.measure,
    "dynamic": dynamic.measure,
    "effects": effects.measure,
    "effect_steps": effect_steps.measure,
    "verify": verifying.measure,
    "import": importing.measure,
    "large": large.measure,
}
ONLY_WHEN_NAMED = frozenset({"large"})
"""What takes a quarter of an hour by itself."""

_HELP = """\
Every figure is a ratio to a floor that is measured in the same run, in alternation with it. The floor of a step is one
row committed to a bare SQLite file (WAL, synchronous=FULL). Let nothing else run beside it."""


def run(argv: Sequence[str]) -> int:
    """Measure, print the table on stdout and progress on stderr, write the files asked for, return 0.

    A missed target is a result, not a failure: it is in the table and in the JSON, not in the exit code.
    """
    chosen = _parser().parse_args(argv)
    plan = FULL if chosen.full else QUICK
    parent = Path(".cache", "bench") if chosen.dir is None else Path(chosen.dir)
    parent.mkdir(parents=True, exist_ok=True)
    report = measure_all(
        plan, parent, only=chosen.only or [name for name in MEASUREMENTS if name not in ONLY_WHEN_NAMED]
    )
    print(report.as_table())
    if chosen.json is not None:
        Path(chosen.json).write_bytes(report.as_json())
    if chosen.svg is not None:
        machine_said = ", ".join(f"{key} {value}" for key, value in report.machine.items())
        Path(chosen.svg).write_text(
            picture(report.figures, caption=f"{plan.name} run: {machine_said}"), encoding="utf-8"
        )
    return 0


def measure_all(plan: Plan, parent: Path, *, only: Sequence[str]) -> Report:
    """Run the measurements in `only`, in the order of MEASUREMENTS, each in a folder below `parent` that is removed."""
    measured_on = machine(filesystem(parent))  # before anything runs: the load is to be that of others
    figures: list[Figure] = []
    raw: dict[str, object] = {}
    for name, measure in MEASUREMENTS.items():
        if name not in only:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parent) as folder:
            measured = measure(Bench(plan=plan, folder=folder, say=say))
        figures.extend(measured.figures)
        raw[name] = {**measured.raw, "took_s": round(time.monotonic() - started, 1)}
    return Report(plan=plan.name, machine=measured_on, figures=figures, raw=raw)


def say(words: str) -> None:
    """Tell how far the benchmark is, on stderr: over the same line on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{words[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]}")
    else:
        sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="arl bench", description=_HELP)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="the numbers that count, at most 12 minutes")
    size.add_argument("--quick", action="store_true", help="a first impression in at most a minute (the default)")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    parser.add_argument("--svg", metavar="FILE", help="write the report as a picture")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        choices=list(MEASUREMENTS),
        help=f"one of {', '.join(MEASUREMENTS)}; may be repeated; {', '.join(ONLY_WHEN_NAMED)} runs only when named",
    )
    parser.add_argument("--dir", help="where the temporary stores go (default: .cache/bench here); it decides the disk")
    return parser
