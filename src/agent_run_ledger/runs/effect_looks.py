"""When a call of an effect asks its target about a doubt: at once, and then ever more seldom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from agent_run_ledger.ports.effect_steps import EffectMember

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 15.0
"""After a look the next one comes after one second, then after two, four and so on, and at most this much later."""


class Looks:
    """The looks of one call. A target is asked about each doubt at once, and again where a drain came on record."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._doubt: tuple[bytes, bytes | None] | None = None
        self._pause_s = FIRST_PAUSE_S
        self._next_s = 0.0
        self._just_looked = False

    def enough(self, last: EffectMember) -> bool:
        """Return whether the target was asked about this doubt, and the next look is not yet due."""
        doubt = last.action_id, last.drain
        if self._just_looked:  # what the look itself put on record is no news
            self._doubt, self._just_looked = doubt, False
        if doubt != self._doubt:
            self._pause_s = FIRST_PAUSE_S
            return False
        return self._now_s() < self._next_s

    def note(self) -> None:
        """Note that the target was asked."""
        self._just_looked = True
        self._next_s = self._now_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
