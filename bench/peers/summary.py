"""Turns raw numbers into the figures of the table: medians with their spread, and ratios within one round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from agent_run_ledger.benchmark.disk import NOISY
from bench.peers.measure import SMALL, SYNC_STEPS, Raw
from bench.peers.roster import FLOOR

Figures = dict[str, Any]


def spread(values: Sequence[float]) -> Figures | None:
    """Return median, lowest, highest and count; None of nothing."""
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "count": len(values)}


def quiet_rounds(raws: dict[str, Raw]) -> dict[str, set[int]]:
    """Return the rounds of each contender in which the disk was quiet just before and just after it.

    Quiet is as in `arl bench`: no slower than NOISY times the quickest sample of the whole run.
    """
    samples = [us for raw in raws.values() for life in raw.speed for us in life["sync_us"]]
    limit = NOISY * min(samples, default=0.0)
    return {name: {life["round"] for life in raw.speed if max(life["sync_us"]) <= limit} for name, raw in raws.items()}


def figures(raws: dict[str, Raw]) -> dict[str, Figures]:
    """Return the figures of each contender.

    Where it had no quiet round together with the floor, all of its rounds count and `quiet` is False.
    """
    quiet = quiet_rounds(raws)
    floor = raws.get(FLOOR.name, Raw())
    return {name: _figures(raw, quiet[name], floor, quiet.get(FLOOR.name, set())) for name, raw in raws.items()}


def _figures(raw: Raw, quiet: set[int], floor: Raw, quiet_floor: set[int]) -> Figures:
    counted = [life for life in raw.speed if life["round"] in quiet] or raw.speed
    return {
        "steps_per_s": spread([life["steps_per_s"] for life in counted]),
        "floor_to_it": spread(_ratios(raw, quiet, floor, quiet_floor)),
        "quiet": bool(quiet & quiet_floor),
        "noisy_rounds": len(raw.speed) - len(quiet),
        "cpu_us_per_step": spread([life["cpu_us_per_step"] for life in counted]),
        "bytes_per_step": spread([life["bytes_per_step"] for life in raw.speed]),
        "syncs_per_step": syncs_per_step(raw),
        "restore_ms": spread([life["restore_ms"] for life in raw.restores]),
        "first_new_step_s": spread([life["process_s"] for life in raw.restores]),
        "kills": after_kills([kill for kill in raw.kills if not kill["body_ms"]]),
        "slow_kills": after_kills([kill for kill in raw.kills if kill["body_ms"]]),
    }


def _ratios(raw: Raw, quiet: set[int], floor: Raw, quiet_floor: set[int]) -> list[float]:
    floors = {life["round"]: life["steps_per_s"] for life in floor.speed}
    lives = {life["round"]: life["steps_per_s"] for life in raw.speed}
    rounds = quiet & quiet_floor or floors.keys() & lives.keys()
    return [floors[number] / lives[number] for number in sorted(rounds)]


def syncs_per_step(raw: Raw) -> float | None:
    """Return the syncs of the steps alone: those of the longer life without those of the shorter one."""
    few, many = raw.syncs.get(str(SMALL)), raw.syncs.get(str(SYNC_STEPS))
    return None if few is None or many is None else (many - few) / (SYNC_STEPS - SMALL)


def after_kills(kills: Sequence[dict[str, Any]]) -> Figures | None:
    """Return what several kills came to; None of none.

    `with_loss`: kills after which finished steps ran again. `most_run_again`: in the worst of them.
    """
    if not kills:
        return None
    again = [kill["run_again"] for kill in kills]
    return {
        "count": len(kills),
        "with_loss": sum(number > 0 for number in again),
        "run_again": sum(again),
        "most_run_again": max(again),
        "killed_body_ran": sorted({kill["killed_body_ran"] for kill in kills}),
        "never_ran": sum(kill["never_ran"] for kill in kills),
        "could_not_go_on": sum(kill["could_not_go_on"] is not None for kill in kills),
    }
