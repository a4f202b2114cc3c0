"""How much is measured: a full run, a quick one, or any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of all measurements. `*_pairs` counts quiet pairs; up to `at_most_pairs` are tried for them."""

    name: str
    steps: int
    step_pairs: int
    at_most_step_pairs: int
    processes: int
    steps_each: int
    contest_pairs: int
    at_most_contest_pairs: int
    recorded: int
    recorded_many: int
    lives: int
    leaves: int
    proofs: int
    imports: int
    dynamic_calls: int
    dynamic_pairs: int
    calls_each: int
    messages: int
    effect_lives: int
    effect_pairs: int
    effects_each: int
    inbox_actions: int
    large_runs: int
    large_steps: int
    large_pairs: int


FULL = Plan(
    name="full",
    steps=1_000,
    step_pairs=9,
    at_most_step_pairs=27,
    processes=8,
    steps_each=500,
    contest_pairs=5,
    at_most_contest_pairs=12,
    recorded=900,
    recorded_many=10_000,
    lives=9,
    leaves=100_000,
    proofs=5_000,
    imports=15,
    dynamic_calls=1_000,
    dynamic_pairs=5,
    calls_each=100,
    messages=200,
    effect_lives=300,
    effect_pairs=5,
    effects_each=50,
    inbox_actions=1_000_000,
    large_runs=1_000,
    large_steps=1_000,
    large_pairs=9,
)

QUICK = Plan(
    name="quick",
    steps=1_000,
    step_pairs=5,
    at_most_step_pairs=10,
    processes=8,
    steps_each=300,
    contest_pairs=2,
    at_most_contest_pairs=5,
    recorded=900,
    recorded_many=3_000,
    lives=3,
    leaves=10_000,
    proofs=500,
    imports=3,
    dynamic_calls=400,
    dynamic_pairs=2,
    calls_each=30,
    messages=200,
    effect_lives=100,
    effect_pairs=2,
    effects_each=20,
    inbox_actions=10_000,
    large_runs=20,
    large_steps=200,
    large_pairs=2,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a measurement gets: how much to measure, an empty folder of its own, and whom to tell how far it is."""

    plan: Plan
    folder: str
    say: Callable[[str], None]
