"""The campaign's command: `python -m tests.campaign` plays agents and effects, and kills pipelines."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count, repeat
from pathlib import Path
from typing import Any

from tests.campaign.effects import STORIES, Effects, play_all
from tests.campaign.figures import figures_of, table_of, with_table
from tests.campaign.playing import CampaignFailed, Told, play
from tests.simulation.__main__ import PROGRAMS, Simulated, simulate

KILLS = 600
MOST_FAILURES = 5


def main(arguments: list[str] | None = None) -> int:
    """Play, say how it goes on stderr, print the table, and return 0; 1 when something did not hold.

    Agents and effects come first: their processes are forked, which is done before a store is opened in this one.
    """
    given = _parser().parse_args(arguments)
    if given.again is not None:
        return _again(given)
    agents: Simulated | None = None
    effects: Effects | None = None
    if given.seed is None and given.agents:
        agents = simulate(range(given.first_seed, given.first_seed + given.agents), below=given.dir)
    if given.seed is None and given.effects:
        effects = play_all(range(given.first_seed, given.first_seed + given.effects), below=given.dir)
    told, failed, seeds = Told(), 0, []
    began_s = time.monotonic()
    wanted = repeat(given.seed, given.times) if given.seed is not None else count(given.first_seed)
    more = (lambda: True) if given.seed is not None else (lambda: sum(told.kills.values()) < given.kills)
    for seed, one in _played(wanted, more, at_once=given.at_once, below=given.dir):
        seeds.append(seed)
        if isinstance(one, CampaignFailed):
            failed += 1
            sys.stderr.write(f"\n{one}\n")
            if failed >= MOST_FAILURES:
                break
        else:
            told.add(one)
        _show(told, failed, given.kills if given.seed is None else None, time.monotonic() - began_s)
    sys.stderr.write("\n")
    failed += sum(0 if part is None else len(part.failures) for part in (agents, effects))
    figures = figures_of(
        told,
        seeds=(min(seeds), max(seeds)),
        failures=failed,
        duration_s=time.monotonic() - began_s,
        agents={} if agents is None else agents.figures,
        effects={} if effects is None else effects.figures,
    )
    return _written(given, figures, failed)


def _again(given: argparse.Namespace) -> int:
    """Play one part anew, and put its figures into the result file that is there."""
    figures: dict[str, Any] = json.loads(given.json.read_text(encoding="utf-8"))
    count, play_part = {"agents": (given.agents, simulate), "effects": (given.effects, play_all)}[given.again]
    part = play_part(range(given.first_seed, given.first_seed + count), below=given.dir)
    figures[given.again] = part.figures
    return _written(given, figures, len(part.failures))


def _written(given: argparse.Namespace, figures: dict[str, Any], failed: int) -> int:
    """Print the table, write the files unless something failed, and return the exit code."""
    print(table_of(figures), end="")
    if given.json is not None and not failed:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        if given.page is not None:
            given.page.write_text(with_table(given.page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help=f"until N are killed [{KILLS}]")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the seed of the first story [1]")
    parser.add_argument("--seed", type=int, metavar="N", help="only the story of this seed")
    parser.add_argument("--agents", type=int, default=PROGRAMS, metavar="N", help=f"agent programs [{PROGRAMS}]")
    parser.add_argument("--effects", type=int, default=STORIES, metavar="N", help=f"stories of effects [{STORIES}]")
    parser.add_argument(
        "--again", choices=("agents", "effects"), metavar="PART", help="only this part, into the file of --json"
    )
    parser.add_argument("--times", type=int, default=1, metavar="N", help="that story N times [1]")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="stories at the same time [1]")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where stores are made: this disk is used")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, if nothing failed")
    parser.add_argument("--page", type=Path, metavar="FILE", help="and their table into this page")
    return parser


def _played(
    seeds: Iterable[int], more: Callable[[], bool], *, at_once: int, below: Path | None
) -> Iterator[tuple[int, Told | CampaignFailed]]:
    """Yield each seed with what happened, in the order in which the stories end, for as long as more is wanted."""

    def one(seed: int) -> tuple[int, Told | CampaignFailed]:
        try:
            return seed, play(seed, below=below)
        except CampaignFailed as error:
            return seed, error

    waiting = iter(seeds)
    with ThreadPoolExecutor(at_once) as pool:
        running: set[Future[tuple[int, Told | CampaignFailed]]] = set()
        while True:
            while len(running) < at_once and more() and (seed := next(waiting, None)) is not None:
                running.add(pool.submit(one, seed))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _show(told: Told, failed: int, wanted: int | None, seconds: float) -> None:
    """Say how far it is: on one line where somebody looks, else a line for each story."""
    kills = sum(told.kills.values())
    of = "" if wanted is None else f" of {wanted}"
    line = f"{kills}{of} kills, {told.counts['stories']} stories, {told.counts['bodies']} bodies"
    line += f", {failed} failures, {seconds:.0f} s"
    sys.stderr.write(f"\r{line}  " if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
