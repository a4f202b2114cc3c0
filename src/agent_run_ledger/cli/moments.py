"""Moments as people name them: an ISO date or time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from agent_run_ledger.errors import Misuse

_AGO = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_HOUR_MS = 3_600_000


def parse_moment(text: str, now_ms: int) -> int:
    """Return Unix milliseconds of an ISO 8601 date or time (UTC unless it says), or of 12h, 30d, 8w ago.

    Misuse for anything else, and for a moment that is still to come.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now_ms - int(ago[1]) * _HOURS[ago[2]] * _HOUR_MS
    try:
        read = datetime.fromisoformat(text.strip())
        moment_ms = round((read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        hint = "give a date (2026-01-31), a time (2026-01-31T12:00Z), or how long ago (12h, 30d, 8w)"
        raise Misuse(f"{text!r} is no moment", code="usage", hint=hint) from error
    if moment_ms > now_ms:
        raise Misuse(f"{text!r} is still to come", code="usage", hint="0h is now")
    return moment_ms
