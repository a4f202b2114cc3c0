"""The simulation's command: `python -m tests.simulation` plays random agent programs against the reference model."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.generator import Story, story_of
from tests.simulation.lives import Breaks, warm
from tests.simulation.playing import StoryFailed, Told, play
from tests.simulation.shrinking import shrunk
from tests.simulation.twins import TWINS

PROGRAMS = 2_000
MOST_FAILURES = 5
SHRINK_S = 60.0


@dataclass(slots=True, kw_only=True)
class Simulated:
    """What a simulation did: the seeds, the counts, and the failures as people read them."""

    seeds: tuple[int, int]
    told: Told = field(default_factory=Told)
    failures: list[str] = field(default_factory=list[str])
    duration_s: float = 0.0

    @property
    def figures(self) -> dict[str, Any]:
        """Its part of the campaign's result file."""
        counts = self.told.counts
        return {
            "programs": counts["programs"],
            "seeds": list(self.seeds),
            "lives": counts["lives"],
            "kills": sum(self.told.kills.values()),
            "kills_by_point": dict(sorted(self.told.kills.items())),
            "not_reached": counts["not_reached"],
            "bodies": counts["bodies"],
            "restored": counts["restored"],
            "outcomes_unknown": counts["unknown"],
            "lives_of_changed_programs": counts["changed_lives"],
            "divergences": counts["diverged"],
            "ends": dict(sorted(self.told.ends.items())),
            "failures": len(self.failures),
            "duration_s": round(self.duration_s),
        }


def simulate(
    seeds: range,
    *,
    at_once: int = 2,
    below: Path | None = None,
    shrink_s: float = SHRINK_S,
    twin: str | None = None,
) -> Simulated:
    """Play the stories of these seeds in `at_once` processes. This process must not have opened a store.

    `twin` makes the library wrong in each life.
    """
    simulated = Simulated(seeds=(seeds[0], seeds[-1]))
    began_s = time.monotonic()
    warm()
    one = partial(_one, below=below, twin=twin)
    with multiprocessing.get_context("fork").Pool(at_once) as pool:
        for done, (seed, told) in enumerate(pool.imap_unordered(one, seeds, chunksize=4), 1):
            if isinstance(told, str):
                simulated.failures.append(failure_of(seed, told, below=below, shrink_s=shrink_s, twin=twin))
                sys.stderr.write(f"\n{simulated.failures[-1]}\n")
                if len(simulated.failures) >= MOST_FAILURES:
                    pool.terminate()
                    break
            else:
                simulated.told.add(told)
            if done % 20 == 0 or done == len(seeds):
                _show(simulated, done, len(seeds), time.monotonic() - began_s)
    sys.stderr.write("\n")
    simulated.duration_s = time.monotonic() - began_s
    return simulated


def failure_of(seed: int, words: str, *, below: Path | None, shrink_s: float, twin: str | None) -> str:
    """Say what failed, with the seed, the smallest program found that fails too, and how to play it alone."""

    def fails(story: Story) -> bool:
        return any(_fails(story, below, twin) is not None for _ in range(2))

    small = shrunk(story_of(seed), fails, seconds=shrink_s)
    lives = ", ".join(f"{'changed ' * life.changed}{life.line or life.point or 'not killed'}" for life in small.lives)
    changed = "" if small.changed is None else f"changed to:\n{small.changed.text}"
    return (
        f"seed {seed}: {words}\n"
        f"the smallest story found that fails ({_fails(small, below, twin) or 'not always'}); lives: {lives}\n"
        f"{small.program.text}{changed}"
        f"again, alone: .venv/bin/python -m tests.simulation --seed {seed}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Play, and return 0; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--programs", type=int, default=PROGRAMS, metavar="N", help=f"how many [{PROGRAMS}]")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the seed of the first one [1]")
    parser.add_argument("--seed", type=int, metavar="N", help="only the program of this seed")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="programs at the same time [2]")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where stores are made")
    parser.add_argument("--shrink-s", type=float, default=SHRINK_S, metavar="S", help="time to shrink a failure")
    parser.add_argument("--twin", choices=TWINS, metavar="NAME", help="with a ledger that is wrong in this way")
    given = parser.parse_args(arguments)
    first, count = (given.first_seed, given.programs) if given.seed is None else (given.seed, 1)
    if given.seed is not None:
        print(story_of(given.seed).program.text)
    simulated = simulate(
        range(first, first + count), at_once=given.at_once, below=given.dir, shrink_s=given.shrink_s, twin=given.twin
    )
    print(json.dumps(simulated.figures, indent=2))
    return 1 if simulated.failures else 0


def _one(seed: int, *, below: Path | None, twin: str | None) -> tuple[int, Told | str]:
    try:
        return seed, play(story_of(seed), below=below, twin=_breaks(twin))
    except StoryFailed as error:
        return seed, str(error)


def _fails(story: Story, below: Path | None, twin: str | None) -> str | None:
    try:
        play(story, below=below, twin=_breaks(twin))
    except StoryFailed as error:
        return str(error)
    return None


def _breaks(twin: str | None) -> Breaks | None:
    return None if twin is None else TWINS[twin].breaks


def _show(simulated: Simulated, done: int, wanted: int, seconds: float) -> None:
    line = f"{done} of {wanted} programs, {sum(simulated.told.kills.values())} kills, "
    line += f"{simulated.told.counts['bodies']} bodies, {len(simulated.failures)} failures, {seconds:.0f} s"
    sys.stderr.write(f"\r{line}  " if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
