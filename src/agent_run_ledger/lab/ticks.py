"""The lab's clock: integer ticks, which whoever starts a process sets for its whole life."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.kernel.effects.reading import Sample

NOT_BEFORE: Final = 10
DISPATCH_BEFORE: Final = 20
"""The window of the lab's one approval, in ticks: `NOT_BEFORE <= now < DISPATCH_BEFORE`."""


class Ticks:
    """See ports.effects.TimeSource. It stands still, and validates no real time: the lab says what time it is."""

    def __init__(self, tick: int) -> None:
        self._tick = tick

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        return Sample(wall_ms=self._tick, uptime_ms=self._tick, boot="lab")
