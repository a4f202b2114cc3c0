"""The system's clock behind ports.Clock."""

from __future__ import annotations

import time

_NS_PER_MS = 1_000_000


class SystemClock:
    """See ports.Clock. Unix time as the operating system tells it: it may jump, the store only lets it narrow."""

    __slots__ = ()

    def now_ms(self) -> int:
        """See ports.Clock.now_ms."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_s(self) -> float:
        """See ports.Clock.monotonic_s."""
        return time.monotonic()
