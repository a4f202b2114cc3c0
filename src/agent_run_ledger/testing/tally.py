"""The hook in a child: it counts the points that its process reaches and kills the process at one of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping

from agent_run_ledger.testing.points import KillPoint


class Tally:
    """Call it with the name of a point. Safe in threads; what a forked child of the process reaches does not count."""

    def __init__(self, kill_at: KillPoint | None, last_words: Callable[[Mapping[str, int]], None]) -> None:
        """`last_words` is called with the counts right before the kill, which no handler of the process can see."""
        self._kill_at = kill_at
        self._last_words = last_words
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __call__(self, point: str) -> None:
        """Count the point; at the chosen one do not return."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            reached = self._counts[point] = self._counts.get(point, 0) + 1
        if self._kill_at is not None and self._kill_at.point == point and self._kill_at.nth == reached:
            self._last_words(self.counts())
            os.kill(self._pid, signal.SIGKILL)

    def counts(self) -> dict[str, int]:
        """Return how often each point was reached so far."""
        with self._lock:
            return dict(self._counts)
