"""The machine's clocks behind `ports.effects.TimeSource`."""

from __future__ import annotations

import os
import time

from agent_run_ledger.kernel.effects.reading import Sample

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


def _boot_id() -> str | None:
    """Return the id that Linux draws at each start."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as found:
            return found.read().strip() or None
    except OSError:
        return None
