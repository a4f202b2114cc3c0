"""Stories of effects from a seed: some keys, and lives of workers, offices and reconcilers, of whom some are killed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agent_run_ledger.kernel.effects import TargetClass
from agent_run_ledger.testing import KillPoint

TARGET_BEFORE, TARGET_AFTER = "target.before", "target.after"
"""Points of the story's own: the permit is in the worker's hands and nothing was sent; it was sent, nobody knows it."""

FARTHEST = {
    "effect.before": 7,
    "commit.begin": 8,
    "commit.before": 6,
    "commit.wal.write": 30,
    "commit.wal.sync": 6,
    "commit.after": 6,
    "effect.after": 6,
    "file.write": 16,
    "file.sync": 5,
    TARGET_BEFORE: 2,
    TARGET_AFTER: 2,
}
"""The points at which a process can be killed, and up to the how manieth time."""

ROLES = ("worker", "worker", "worker", "office", "reconciler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a life: its role, its name, which nobody else ever has, and where it is to be killed."""

    role: str
    name: str
    kill: KillPoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectStory:
    """Keys with the classes of their receivers, and lives one after the other, each of processes at once."""

    seed: int
    durability: str
    keys: dict[str, TargetClass]
    lives: tuple[tuple[Process, ...], ...]


def effect_story_of(seed: int) -> EffectStory:
    """Return the story of this seed: the same one each time. In the lives that end it nobody is killed."""
    rng = random.Random(f"effects {seed}")
    durability = rng.choice(("full", "full", "extra"))
    keys = {f"key-{number}": rng.choice(list(TargetClass)) for number in range(rng.randint(3, 6))}
    lives = [(Process(role="office", name="1-0", kill=_kill(rng, "office", durability, 0.6)),)]
    for number in range(2, rng.randint(4, 6)):
        roles = ["worker", *rng.choices(ROLES, k=rng.randint(0, 2))]
        lives.append(
            tuple(
                Process(role=role, name=f"{number}-{at}", kill=_kill(rng, role, durability, 0.95))
                for at, role in enumerate(roles)
            )
        )
    for role in ("reconciler", "office", "worker", "reconciler"):
        number = len(lives) + 1
        lives.append((Process(role=role, name=f"{number}-0"),))
    return EffectStory(seed=seed, durability=durability, keys=keys, lives=tuple(lives))


def life_of(name: str) -> int:
    """Return in which life a process of this name lived."""
    return int(name.partition("-")[0])


def _kill(rng: random.Random, role: str, durability: str, chance: float) -> KillPoint | None:
    if rng.random() > chance:
        return None
    others = {"full": ("file.write", "file.sync"), "extra": ("commit.wal.write", "commit.wal.sync")}[durability]
    points = [point for point in FARTHEST if point not in others and (role == "worker" or "target" not in point)]
    point = rng.choice(points)
    return KillPoint(point=point, nth=rng.randint(1, FARTHEST[point]))
