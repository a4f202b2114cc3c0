"""`make bench-peers`: makes the environments, measures all contenders in one run, and writes what was asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_run_ledger.benchmark.report import machine
from agent_run_ledger.store.mounts import filesystem
from bench.peers import page
from bench.peers.environments import NotInstalled, environment_python, packages
from bench.peers.lives import Arena
from bench.peers.measure import QUICK, Plan, Raw, measure
from bench.peers.picture import picture
from bench.peers.report import Packages, Report, as_text, assemble, troubles
from bench.peers.roster import LOCKS, ROOT, Contender, chosen

CACHE = ROOT / ".cache"
KEPT = {
    "json": ROOT / "bench" / "results" / "peers.json",
    "svg": ROOT / "bench" / "results" / "peers.svg",
    "page": ROOT / "docs" / "reference" / "peers.md",
}


def main(argv: Sequence[str]) -> int:
    """Run the comparison: tables on stdout, progress on stderr.

    A peer that cannot be installed, or fails, has the reason in its row and the run goes on; the exit code is then 0,
    and 1 with `--strict`. Arguments that make no sense are 2.
    """
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        contenders = chosen(given.only or [])
    except ValueError as wrong:
        parser.error(str(wrong))
    report = compare(contenders, plan_of(given), Path(given.dir))
    print(page.terminal(report))
    _write(report, given)
    return 1 if given.strict and troubles(report) else 0


def compare(contenders: Sequence[Contender], plan: Plan, parent: Path) -> Report:
    """Measure `contenders` in a folder below `parent`, which decides the disk and is removed, and return the report."""
    parent.mkdir(parents=True, exist_ok=True)
    measured_on = machine(filesystem(parent))  # before anything runs: the load is to be that of others
    started = time.monotonic()
    pythons, installed, missing = _environments(contenders)
    with tempfile.TemporaryDirectory(prefix="peers-", dir=parent) as folder:
        place = Path(folder).resolve()
        arenas = [
            Arena(contender=one, python=pythons[one.environment], folder=place / one.name)
            for one in contenders
            if one.environment in pythons
        ]
        measuring = time.monotonic()
        measured = measure(arenas, plan, place, say)
    raws = {one.name: measured.get(one.name) or Raw(trouble=missing.get(one.environment)) for one in contenders}
    say(f"made environments in {measuring - started:.0f} s, measured in {time.monotonic() - measuring:.0f} s")
    return assemble(contenders, raws, installed, plan=plan, machine=measured_on, took_s=time.monotonic() - measuring)


def _environments(
    contenders: Sequence[Contender],
) -> tuple[dict[str | None, str], dict[str | None, Packages], dict[str | None, str]]:
    """Return interpreter and packages of each environment, and the reason for each one that could not be made."""
    pythons: dict[str | None, str] = {None: sys.executable}
    installed: dict[str | None, Packages] = {None: packages(sys.executable)}
    missing: dict[str | None, str] = {}
    for name in dict.fromkeys(one.environment for one in contenders if one.environment is not None):
        say(f"environment of {name}")
        try:
            python = environment_python(name, LOCKS / f"{name}.txt", CACHE / "peers")
            pythons[name], installed[name] = str(python), packages(python)
        except NotInstalled as reason:
            missing[name] = str(reason)
            say(f"{name} is left out: {reason}")
    return pythons, installed, missing


def plan_of(given: argparse.Namespace) -> Plan:
    """Return how much to measure: the usual plan or the quick one, with the counts that were given."""
    counts: Mapping[str, int | None] = {name: getattr(given, name) for name in ("rounds", "steps", "kills", "restores")}
    base = QUICK if given.quick else Plan()
    if given.kills is not None:
        base = replace(base, slow_kills=min(base.slow_kills, given.kills))
    return replace(base, **{name: count for name, count in counts.items() if count is not None})


def say(words: str) -> None:
    """Tell how far it is, on stderr, one line each."""
    print(f"bench-peers: {words}", file=sys.stderr, flush=True)


def _write(report: Report, given: argparse.Namespace) -> None:
    wanted = {kind: getattr(given, kind) or (KEPT[kind] if given.keep else None) for kind in KEPT}
    if wanted["json"]:
        Path(wanted["json"]).write_text(as_text(report), encoding="utf-8")
    if wanted["svg"]:
        Path(wanted["svg"]).write_text(picture(report), encoding="utf-8")
    if wanted["page"]:
        there = Path(wanted["page"])
        there.write_text(page.rewritten(there.read_text(encoding="utf-8"), report), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-peers BENCH_PEERS_ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, two kills: to see that it works")
    parser.add_argument("--rounds", type=_count, metavar="N", help="rounds of speed, interleaved (default: 5)")
    parser.add_argument("--steps", type=_steps, metavar="N", help="steps of a timed life (default: 1,000)")
    parser.add_argument("--kills", type=_count, metavar="N", help="kills with bodies that take no time (default: 5)")
    parser.add_argument("--restores", type=_count, metavar="N", help="restarts that are timed (default: 3)")
    parser.add_argument("--only", action="append", metavar="NAME", help="one contender or environment; may be repeated")
    parser.add_argument("--keep", action="store_true", help="write all three files where the project keeps them")
    for kind, path in KEPT.items():
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"write this one file, as {path.relative_to(ROOT)}")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a contender was not measured")
    parser.add_argument("--dir", default=str(CACHE / "bench"), help="where the stores go (default: .cache/bench)")
    return parser


def _count(text: str) -> int:
    return _at_least(0, text)


def _steps(text: str) -> int:
    return _at_least(40, text)


def _at_least(least: int, text: str) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is less than {least}")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
