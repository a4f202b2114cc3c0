"""The small command of the kit: `python -m agent_run_ledger.testing crash|power SCENARIO` and `... check LEDGER`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.testing.crash import CrashCheckFailed, Summary, crash_everywhere
from agent_run_ledger.testing.harness import DEFAULT_TIMEOUT_S, LifeTimeout
from agent_run_ledger.testing.ledger_check import LedgerBroken, check_ledger
from agent_run_ledger.testing.points import ALL
from agent_run_ledger.testing.power_cut import TORN_PER_CUT, PowerCheckFailed, cut_power_everywhere

HOLDS, BROKEN = 0, 6


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0 everything holds, 6 something does not, 2 a wrong scenario or call.

    What was found goes to stdout (JSON with --json), the progress bar and errors to stderr.
    """
    given = _parser().parse_args(arguments)
    try:
        found = {"check": _check, "crash": _crash, "power": _power}[given.command](given)
    except (CrashCheckFailed, PowerCheckFailed, LedgerBroken, LifeTimeout) as error:
        print(error, file=sys.stderr)
        return BROKEN
    except LedgerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(found)
    return HOLDS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent_run_ledger.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    crash = commands.add_parser("crash", help="kill a scenario at every point, let it go on, and check what is left")
    crash.add_argument("scenario", help="module:function or file.py:function; the function takes a directory")
    crash.add_argument(
        "--point", action="append", metavar="NAME", help=f"only this point; may be repeated ({', '.join(ALL)})"
    )
    crash.add_argument("--most-per-point", type=int, metavar="N", help="at most N kills per point, evenly spread")
    crash.add_argument("--at-once", type=int, default=1, metavar="N", help="lives that run at the same time")
    crash.add_argument("--server", metavar="URL", help="postgresql://…: each ledger is a new database there")
    crash.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S, metavar="SECONDS", help="per life")
    power = commands.add_parser("power", help="cut the power at every act of the disk, go on from each image, check")
    power.add_argument("scenario", help="as for crash; it runs in this process")
    power.add_argument("--torn", type=int, default=TORN_PER_CUT, metavar="N", help="torn images per cut (%(default)s)")
    power.add_argument("--seed", type=int, default=0, metavar="N", help="which of them (%(default)s)")
    check = commands.add_parser("check", help="re-read a whole ledger and say every contradiction")
    check.add_argument("ledger", help="path of the SQLite file, or postgresql://…")
    for command in (crash, power, check):
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _check(given: argparse.Namespace) -> str:
    report = check_ledger(given.ledger)
    if given.json:
        return json.dumps(dataclasses.asdict(report))
    return f"{report.path}: leaves {report.leaves}, runs {report.runs}, results {report.results}: everything fits"


def _crash(given: argparse.Namespace) -> str:
    with _progress("lives") as progress:
        summary = crash_everywhere(
            given.scenario,
            points=given.point or ALL,
            most_per_point=given.most_per_point,
            at_once=given.at_once,
            timeout_s=given.timeout,
            progress=progress,
            server=given.server,
        )
    if given.json:
        return json.dumps({**dataclasses.asdict(summary), "total": summary.total})
    return _told(summary)


def _power(given: argparse.Namespace) -> str:
    with _progress("acts") as progress:
        summary = cut_power_everywhere(given.scenario, torn_per_cut=given.torn, seed=given.seed, progress=progress)
    if given.json:
        return json.dumps(dataclasses.asdict(summary))
    return (
        f"{given.scenario}: power cut at {summary.cuts} places, {summary.images} images, "
        f"{summary.distinct} different ones opened, everything holds"
    )


def _told(summary: Summary) -> str:
    lines = [
        f"{point:18} {summary.kills.get(point, 0):5} kills of {summary.reached[point]:5}" for point in summary.kills
    ]
    return "\n".join((*lines, f"{summary.scenario}: killed {summary.total} times, everything holds"))


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None] | None]:
    """Show a bar where somebody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, cases: bar.update(task, completed=done, total=cases)


if __name__ == "__main__":
    sys.exit(main())
