"""What time it is for the effect ledger: a sample beside a high-water mark, which a jump of the clock cannot move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from agent_run_ledger.kernel.effects.action import Now

LEAP_MS: Final = 3_600_000
"""How much further than the time since the machine's start the clock may go before people must confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the clocks, all in milliseconds: Unix time, and the time since the start that `boot` names.

    The second one counts sleep and cannot be set (CLOCK_BOOTTIME).
    """

    wall_ms: int
    uptime_ms: int
    boot: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The time of one decision, whether it can be trusted, and the mark to keep if anything is written."""

    now: Now
    trusted: bool
    mark: Sample


def read_time(mark: Sample | None, sample: Sample) -> Reading:
    """Return the time by a sample and the latest mark that was kept.

    A clock below the mark is not trusted, nor is one that is more than LEAP_MS further ahead of the time since the
    machine's start than it ever was in that start: the mark then stays, so that a jump forward cannot hold the ledger
    up for years, and many small ones cannot add up. After a new start of the machine, or on another one, nothing says
    how long it was off, and only a clock that went back is noticed. Not trusted, the time is the span from the earlier
    to the later of both. A mark's `uptime_ms` is what the time since the start would be had the clock never run ahead.
    """
    if mark is None:
        return Reading(Now(sample.wall_ms, sample.wall_ms), trusted=True, mark=sample)
    back = sample.wall_ms < mark.wall_ms
    since_ms = sample.uptime_ms - mark.uptime_ms
    leapt = sample.boot == mark.boot and sample.wall_ms - mark.wall_ms > since_ms + LEAP_MS
    if back or leapt:
        now = Now(min(sample.wall_ms, mark.wall_ms), max(sample.wall_ms, mark.wall_ms))
        return Reading(now, trusted=False, mark=mark)
    ahead_ms = max(0, sample.wall_ms - mark.wall_ms - since_ms) if sample.boot == mark.boot else 0
    kept = replace(sample, uptime_ms=sample.uptime_ms + ahead_ms) if ahead_ms else sample
    return Reading(Now(sample.wall_ms, sample.wall_ms), trusted=True, mark=kept)
