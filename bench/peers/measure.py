"""Measures contenders beside each other: speed in interleaved rounds, kills, restores and syncs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_run_ledger.benchmark.disk import Disk
from bench.peers.lives import Arena, LifeFailed, seen

SMALL = 20
"""Steps of the first life of each contender. It shows that the contender works here, fills the caches with its files,
and its store is taken off the size of the big one, so that tables and indexes of an empty store count for nothing."""

SYNC_STEPS = 120
SLOW_BODY_MS = 50.0
SLOW_STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured: `rounds` lives of `steps` steps; `kills` kills in runs of `kill_steps` steps with bodies
    that take no time and `slow_kills` with bodies of 50 ms; `restores` restarts with `recorded` steps on disk."""

    rounds: int = 5
    steps: int = 1_000
    kills: int = 5
    kill_steps: int = 100
    slow_kills: int = 3
    restores: int = 3
    recorded: int = 900


QUICK = Plan(rounds=1, steps=200, kills=2, kill_steps=40, slow_kills=1, restores=1, recorded=90)


@dataclass(slots=True, kw_only=True)
class Raw:
    """All numbers of one contender, as they were measured. `trouble` says why it was left out from some point on."""

    trouble: str | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    small_bytes: int = 0
    speed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    kills: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    restores: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    syncs: dict[str, int | None] = field(default_factory=dict[str, int | None])


Say = Callable[[str], None]
Part = Callable[[Arena, Raw], None]


def measure(arenas: Sequence[Arena], plan: Plan, folder: Path, say: Say) -> dict[str, Raw]:
    """Return the raw numbers by contender. One that fails is left out from there on; the others go on."""
    raws = {arena.contender.name: Raw() for arena in arenas}

    def each(what: str, part: Part, order: Sequence[Arena] = arenas) -> None:
        for arena in order:
            raw = raws[arena.contender.name]
            if raw.trouble is None:
                say(f"{what}: {arena.contender.title}")
                try:
                    part(arena, raw)
                except LifeFailed as failed:
                    raw.trouble = str(failed)
                    say(f"{arena.contender.title} is left out: {failed}")

    each("first life", _first_life)
    with Disk(str(folder)) as disk:
        for number in range(plan.rounds):
            order = arenas if number % 2 == 0 else arenas[::-1]
            speed = _speed(disk, number, plan.steps)
            each(f"speed, round {number + 1} of {plan.rounds}", speed, order)
    for number in range(plan.kills):
        each(
            f"kill {number + 1} of {plan.kills}", _kill(plan.kill_steps, _at(plan.kill_steps, number, plan.kills), 0.0)
        )
    for number in range(plan.slow_kills):
        kill = _kill(SLOW_STEPS, _at(SLOW_STEPS, number, plan.slow_kills), SLOW_BODY_MS)
        each(f"kill {number + 1} of {plan.slow_kills} with bodies of {SLOW_BODY_MS:.0f} ms", kill)
    each(f"restore of {plan.recorded} steps", _restores(plan))
    each("syncs", _syncs(folder))
    return raws


def _at(steps: int, number: int, of: int) -> int:
    """Return the step in the middle of part `number` of `of` equal parts, never the first: 10, 30, 50, 70, 90."""
    return max(1, steps * (2 * number + 1) // (2 * of))


def _first_life(arena: Arena, raw: Raw) -> None:
    raw.settings = arena.emptied().live(SMALL).answer["settings"]
    raw.small_bytes = arena.settled_bytes()


def _speed(disk: Disk, number: int, steps: int) -> Part:
    def one(arena: Arena, raw: Raw) -> None:
        before_us = disk.sample_us()
        answer = arena.emptied().live(steps).answer
        raw.speed.append(
            {
                "round": number,
                "steps_per_s": steps / answer["seconds"],
                "cpu_us_per_step": answer["cpu_s"] * 1e6 / steps,
                "bytes_per_step": (arena.settled_bytes() - raw.small_bytes) / (steps - SMALL),
                "sync_us": [round(before_us, 1), round(disk.sample_us(), 1)],
            }
        )

    return one


def _kill(steps: int, kill_at: int, body_ms: float) -> Part:
    def one(arena: Arena, raw: Raw) -> None:
        witness = arena.emptied().folder.with_suffix(".witness")
        witness.unlink(missing_ok=True)
        watched = ("--witness", str(witness), "--body-ms", str(body_ms))
        arena.die(steps, kill_at, *watched)
        trouble = None
        try:
            arena.live(steps, "--resume", *watched, after_fault=True)
        except LifeFailed as failed:  # a result, not a failure of the benchmark: it could not go on
            trouble = str(failed)
        what = seen(witness.read_text(encoding="ascii"), steps=steps, kill_at=kill_at)
        raw.kills.append(
            {"steps": steps, "kill_at": kill_at, "body_ms": body_ms, **asdict(what), "could_not_go_on": trouble}
        )

    return one


def _restores(plan: Plan) -> Part:
    def all_of_them(arena: Arena, raw: Raw) -> None:
        if not plan.restores:
            return
        steps = plan.recorded + plan.recorded // 9
        arena.emptied().die(steps, plan.recorded)
        left = arena.folder.with_suffix(".left")
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(arena.folder, left)
        for _ in range(plan.restores):
            shutil.rmtree(arena.folder)
            shutil.copytree(left, arena.folder)  # as the kill left it, the WAL included
            told = arena.live(steps, "--resume", "--until-first-body", after_fault=True)
            raw.restores.append(
                {
                    "first_body": told.answer["first_body"],
                    "restore_ms": told.answer["first_body_s"] * 1e3,
                    "process_s": told.process_s,
                }
            )
        shutil.rmtree(left)

    return all_of_them


def _syncs(folder: Path) -> Part:
    def both(arena: Arena, raw: Raw) -> None:
        for steps in (SMALL, SYNC_STEPS):
            raw.syncs[str(steps)] = arena.emptied().count_syncs(steps, folder / "strace.log")

    return both
