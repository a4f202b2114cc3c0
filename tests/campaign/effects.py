"""The effects' part of the campaign, also alone: `python -m tests.campaign.effects` plays random stories of effects."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.campaign.effect_playing import EffectsFailed, play_effects, warm_effects
from tests.campaign.effect_stories import FARTHEST

STORIES = 240
MOST_FAILURES = 5
_ENDS, _KILLS = "end ", "kills "


@dataclass(slots=True, kw_only=True)
class Effects:
    """What was played: the seeds, the counts, and the failures as people read them."""

    seeds: tuple[int, int]
    told: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list[str])
    duration_s: float = 0.0

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(count for name, count in self.told.items() if name.startswith(_KILLS))

    @property
    def figures(self) -> dict[str, Any]:
        """Its part of the campaign's result file."""
        told = self.told
        names = ("lives", "processes", "actions", "transitions", "claims", "permits", "effects", "doubts", "refused")
        return {
            "stories": told["stories"],
            "seeds": list(self.seeds),
            "kills": self.kills,
            "kills_by_point": {point: told[_KILLS + point] for point in FARTHEST},
            "not_reached": told["not_reached"],
            **{name: told[name] for name in names},
            "ends": {name.removeprefix(_ENDS): told[name] for name in sorted(told) if name.startswith(_ENDS)},
            "failures": len(self.failures),
            "duration_s": round(self.duration_s),
        }


def play_all(seeds: range, *, at_once: int = 2, below: Path | None = None) -> Effects:
    """Play the stories of these seeds in `at_once` processes. This process must not have opened a store."""
    played = Effects(seeds=(seeds[0], seeds[-1]))
    began_s = time.monotonic()
    warm_effects()
    with multiprocessing.get_context("fork").Pool(at_once) as pool:
        for done, told in enumerate(pool.imap_unordered(partial(_one, below=below), seeds), 1):
            if isinstance(told, str):
                played.failures.append(told)
                sys.stderr.write(f"\n{told}\n")
                if len(played.failures) >= MOST_FAILURES:
                    pool.terminate()
                    break
            else:
                played.told += told
            if done % 20 == 0 or done == len(seeds):
                _show(played, done, len(seeds), time.monotonic() - began_s)
    sys.stderr.write("\n")
    played.duration_s = time.monotonic() - began_s
    return played


def main(arguments: list[str] | None = None) -> int:
    """Play, print the figures, and return 0; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.effects", description=__doc__)
    parser.add_argument("--stories", type=int, default=STORIES, metavar="N", help=f"how many [{STORIES}]")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the seed of the first one [1]")
    parser.add_argument("--seed", type=int, metavar="N", help="only the story of this seed")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="that story N times [1]")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="stories at the same time [2]")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where stores are made")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        for _ in range(given.times):
            print(json.dumps(play_effects(given.seed, below=given.dir)))
        return 0
    seeds = range(given.first_seed, given.first_seed + given.stories)
    played = play_all(seeds, at_once=given.at_once, below=given.dir)
    print(json.dumps(played.figures, indent=2))
    return 1 if played.failures else 0


def _one(seed: int, *, below: Path | None) -> Counter[str] | str:
    try:
        return play_effects(seed, below=below)
    except EffectsFailed as error:
        return str(error)


def _show(played: Effects, done: int, wanted: int, seconds: float) -> None:
    line = f"{done} of {wanted} stories of effects, {played.kills} kills, {played.told['effects']} effects, "
    line += f"{len(played.failures)} failures, {seconds:.0f} s"
    sys.stderr.write(f"\r{line}  " if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
