"""The machine's clocks behind `ports.effects.TimeSource`, and the check of what any source says."""

from __future__ import annotations

import os
import time
from typing import Any

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.ports.effects import TimeSource

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


class SystemTime:
    """See ports.effects.TimeSource: Unix time, and CLOCK_BOOTTIME with the id of the machine's start, as on Linux.

    Elsewhere the monotonic clock, and one id for each process: a jump forward is then noticed within a process only.
    """

    def __init__(self) -> None:
        self._boot = _boot_id() or os.urandom(16).hex()

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        wall_ms = time.time_ns() // _NS_PER_MS
        return Sample(wall_ms=wall_ms, uptime_ms=time.clock_gettime_ns(_UPTIME) // _NS_PER_MS, boot=self._boot)


class CheckedTime:
    """A source whose samples are what they have to be; Unavailable("no_time") where it fails or says anything else."""

    def __init__(self, source: TimeSource) -> None:
        self._source = source

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        try:
            said: Any = self._source.sample()
        except Unavailable:  # a server's clock: it says itself what is the matter
            raise
        except Exception as error:
            raise Unavailable(f"the clock cannot be read: {error!r}", code="no_time") from error
        if not isinstance(said, Sample) or not _is_whole(said):
            raise Unavailable(f"the clock says {said!r:.200}, which is no time", code="no_time")
        return said


def _is_whole(said: Sample) -> bool:
    return type(said.wall_ms) is int and type(said.uptime_ms) is int and type(said.boot) is str


def _boot_id() -> str | None:
    """Return the id that Linux draws at each start."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as found:
            return found.read().strip() or None
    except OSError:
        return None
