"""The same run by DBOS, with its system database on the same server: each in a process of its own, in turns."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_run_ledger.benchmark.children import race
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from bench.peers.environments import NotInstalled, environment_python, packages
from bench.peers.lives import Arena, LifeFailed
from bench.peers.roster import LOCKS, ROOT, ROSTER
from bench.server.work import Bare, make_store

BESIDE = Target(sense=Sense.AT_LEAST, limit=4, of_ratio=True)
KINDS = ("floor", "product", "dbos")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One life of one contender: its speed, and the median time from one body to the next."""

    steps_per_s: float
    step_p50_ms: float


def beside_dbos(steps: int, pairs: int, place: Callable[[], Any], say: Callable[[str], None]) -> Measured:
    """Return the figures of both, or none and the reason where DBOS is not there or fails: that is no failure of ours.

    DBOS runs as its documentation has it for production: PostgreSQL, LISTEN/NOTIFY, its own pool; logging is off. Its
    commits are synced like everybody's: the server's settings, which its own connection is asked for, say so.
    """
    say("server: the environment of DBOS")
    try:
        python = environment_python("dbos", LOCKS / "dbos.txt", ROOT / ".cache" / "peers")
        version = packages(python)["dbos"][0]
        turns, settings = _turns(python, steps, pairs, place, say)
    except (NotInstalled, LifeFailed) as reason:
        say(f"server: DBOS is left out: {reason}")
        return Measured(figures=[], raw={"dbos": {"left_out": str(reason)}})
    raw = {"version": version, "settings": settings, "turns": [_as_json(turn) for turn in turns]}
    return Measured(figures=figures_of(turns, steps, version), raw={"dbos": raw})


def figures_of(turns: Sequence[Mapping[str, Turn]], steps: int, version: str) -> list[Figure]:
    """Return the figures of turns, each of which has one life of each kind. A ratio is taken within a turn."""

    def middle(number: Callable[[Mapping[str, Turn]], float]) -> float:
        return statistics.median(number(turn) for turn in turns)

    name = f"DBOS {version}"
    speed = Figure(
        name="server: one worker beside DBOS",
        value=middle(lambda turn: turn["product"].steps_per_s),
        unit="steps/s",
        floor=middle(lambda turn: turn["dbos"].steps_per_s),
        ratio=middle(lambda turn: turn["product"].steps_per_s / turn["dbos"].steps_per_s),
        target=BESIDE,
        note=f"median of {len(turns)} turns of {steps:,}; floor: the same run by {name} on the same server",
    )
    beside_floor = Figure(
        name="server: DBOS beside the bare loop",
        value=speed.floor or 0.0,
        unit="steps/s",
        floor=middle(lambda turn: turn["floor"].steps_per_s),
        ratio=middle(lambda turn: turn["dbos"].steps_per_s / turn["floor"].steps_per_s),
        note=f"{name} in the same turns; floor: insert, then commit",
    )
    median = Figure(
        name="server: median step beside DBOS",
        value=middle(lambda turn: turn["product"].step_p50_ms),
        unit="ms",
        floor=middle(lambda turn: turn["dbos"].step_p50_ms),
        ratio=middle(lambda turn: turn["product"].step_p50_ms / turn["dbos"].step_p50_ms),
        note=f"from one body to the next; floor: {name}; "
        f"the bare loop takes {middle(lambda turn: turn['floor'].step_p50_ms):.2f} ms",
    )
    return [speed, beside_floor, median]


def _turns(
    python: Path, steps: int, pairs: int, place: Callable[[], Any], say: Callable[[str], None]
) -> tuple[list[dict[str, Turn]], object]:
    turns: list[dict[str, Turn]] = []
    settings: object = None
    for number in range(pairs):
        say(f"server: beside DBOS, turn {number + 1} of {pairs}")
        turn: dict[str, Turn] = {}
        for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
            with place() as url:
                if kind == "dbos":
                    turn[kind], settings = _dbos(python, steps, url)
                else:
                    turn[kind] = _ours(kind, steps, url)
        turns.append(turn)
    return turns, settings


def _ours(kind: str, steps: int, url: str) -> Turn:
    if kind == "floor":
        Bare(url, create=True).close()
    else:
        make_store(url)
    answer = race([[sys.executable, "-m", "bench.server.work", kind, url, "0", str(steps)]])[0]
    if "error" in answer:
        raise LifeFailed(f"the {kind} ended with {answer['error']}")
    return Turn(steps_per_s=steps / (answer["ended_s"] - answer["started_s"]), step_p50_ms=answer["step_p50_ms"])


def _dbos(python: Path, steps: int, url: str) -> tuple[Turn, object]:
    contender = replace(next(one for one in ROSTER if one.environment == "dbos"), option=url)
    with tempfile.TemporaryDirectory(prefix="dbos-") as folder:
        answer = Arena(contender=contender, python=str(python), folder=Path(folder)).live(steps).answer
    return Turn(steps_per_s=steps / answer["seconds"], step_p50_ms=answer["step_p50_ms"]), answer["settings"]


def _as_json(turn: Mapping[str, Turn]) -> dict[str, object]:
    return {kind: {"steps_per_s": one.steps_per_s, "step_p50_ms": one.step_p50_ms} for kind, one in turn.items()}
