"""How fast a log grows, from the times in a few of its envelopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import orjson

from agent_run_ledger.errors import Tampered
from agent_run_ledger.ports import Reader

DAY_MS = 86_400_000
PROJECTED_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Leaves of the last 1, 7 and 30 days, and how many there will be in 30 days if it goes on like that.

    `next_30_days` is None for a log that is younger than a day.
    """

    last_day: int
    last_7_days: int
    last_30_days: int
    next_30_days: float | None


def growth_of(reader: Reader, now_ms: int) -> Growth:
    """Return how the log grew until `now_ms`. Tampered where an envelope that is needed is missing or says no time.

    Times of leaves never fall, so that some twenty envelopes for each of the three figures are enough.
    """
    size = reader.head().size
    last_day, week, month = (leaves_since(reader, size, now_ms - days * DAY_MS) for days in (1, 7, PROJECTED_DAYS))
    age_ms = now_ms - _time_of(reader, 0) if size else 0
    seen_ms = min(age_ms, PROJECTED_DAYS * DAY_MS)
    ahead = month * PROJECTED_DAYS * DAY_MS / seen_ms if seen_ms >= DAY_MS else None
    return Growth(last_day=last_day, last_7_days=week, last_30_days=month, next_30_days=ahead)


def leaves_since(reader: Reader, size: int, time_ms: int) -> int:
    """Return how many of the first `size` leaves have a time of `time_ms` (Unix milliseconds) or later."""
    first, stop = 0, size
    while first < stop:
        middle = (first + stop) // 2
        if _time_of(reader, middle) < time_ms:
            first = middle + 1
        else:
            stop = middle
    return size - first


def _time_of(reader: Reader, index: int) -> int:
    for event in reader.events(first=index, stop=index + 1):
        try:
            time_ms = cast("dict[str, object]", orjson.loads(event.envelope))["time_ms"]
        except (ValueError, LookupError, TypeError) as error:
            raise _unreadable(index) from error
        if isinstance(time_ms, int):
            return time_ms
    raise _unreadable(index)


def _unreadable(index: int) -> Tampered:
    return Tampered(f"leaf {index} is missing or says no time", code="corrupt", hint="run `arl verify`")
