"""What the breaker has to tell an agent that no result carries, kept until the program asks for it."""

from __future__ import annotations

import threading

from agent_run_ledger.kernel.scopes import enclosing_call


class Nudges:
    """Guarantees: each text is given once, of the records in their order, and only within the body that made the call:
    whoever starts again, and restores the whole body, gets the same ones. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, dict[int, str]] = {}

    def add(self, scope: bytes, record_id: int, text: str) -> None:
        """Keep what is to be told with the record of a call that was made in this scope."""
        with self._lock:
            self._waiting.setdefault(enclosing_call(scope), {})[record_id] = text

    def take(self, scope: bytes) -> str | None:
        """Return the next text for who asks in this scope, None where there is none."""
        with self._lock:
            waiting = self._waiting.get(enclosing_call(scope))
            return waiting.pop(min(waiting)) if waiting else None

    def forget_within(self, scope: bytes) -> None:
        """Let go of what was to be told in the body whose scope this is, and in those within it."""
        with self._lock:
            for inner in [one for one in self._waiting if one.startswith(scope)] if scope else ():
                del self._waiting[inner]
