"""Choosing the next runs of a queue: the oldest first, none in hand, live elsewhere, or to be left for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Final

from agent_run_ledger.ledger.run_queue import RunQueue
from agent_run_ledger.ports import RunRow

PAGE: Final = 64
LOOKED_AT: Final = 200
"""How many suspended runs one look goes through; the next one goes on from there."""
LOOK_S: Final = 1.0
"""How far apart looks at suspended runs are."""
ELSEWHERE_S: Final = 1.0
"""For how long a run that is live elsewhere is passed over."""
FIRST_S: Final = 1.0
MOST_S: Final = 60.0
"""A run that could not be carried out is passed over for FIRST_S, twice as long each time, at most MOST_S."""


class Picker:
    """Remembers only what saves it questions: a worker that starts anew picks the same runs.

    `pick` and `is_idle` are for one thread, the others for any.
    """

    def __init__(self, queue: RunQueue, monotonic_s: Callable[[], float], *, pending_ms: int) -> None:
        self._queue = queue
        self._now_s = monotonic_s
        self._pending_ms = pending_ms
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        self._refused: set[str] = set()
        self._looked_s = float("-inf")
        self._cursor = 0

    def pick(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return at most `room` runs to take now."""
        self._forget()
        found: list[RunRow] = []
        for row in self._candidates(in_hand):
            if len(found) >= room:
                break
            found.append(row)
        if len(found) < room:
            taken = {*in_hand, *(row.run_id for row in found)}
            found += self._awake(room - len(found), taken)
        return found

    def ended(self, run_id: str, *, elsewhere: bool = False) -> None:
        """Note that a run was carried out as far as it goes, or that somebody else has it."""
        with self._lock:
            self._tries.pop(run_id, None)
            self._refused.discard(run_id)
            if elsewhere:
                self._until_s[run_id] = self._now_s() + ELSEWHERE_S

    def failed(self, run_id: str, *, refused: bool) -> float:
        """Note that a run could not be carried out and stands where it was; return for how long it is left, seconds.

        `refused`: it cannot be as it is, by this program.
        """
        with self._lock:
            tries = self._tries[run_id] = self._tries.get(run_id, 0) + 1
            left_s = min(MOST_S, FIRST_S * float(1 << min(tries - 1, 10)))
            self._until_s[run_id] = self._now_s() + left_s
            (self._refused.add if refused else self._refused.discard)(run_id)
            return left_s

    def is_idle(self) -> bool:
        """Return whether nothing is left to be begun or gone on with, but what this program was refused."""
        after = 0
        while page := self._queue.queued(after_row_id=after, limit=PAGE):
            with self._lock:
                if any(row.run_id not in self._refused for row in page):
                    return False
            after = page[-1].row_id
        return True

    def _candidates(self, in_hand: Collection[str]) -> Iterator[RunRow]:
        after = 0
        while page := self._queue.queued(after_row_id=after, limit=PAGE):
            for row in page:
                if row.run_id in in_hand or self._is_left(row.run_id):
                    continue
                if self._queue.is_live(row.run_id):
                    self.ended(row.run_id, elsewhere=True)
                    continue
                yield row
            after = page[-1].row_id

    def _awake(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return suspended runs for which something may be new, from where the last look ended."""
        if self._now_s() - self._looked_s < LOOK_S:
            return []
        self._looked_s = self._now_s()
        page = self._queue.waiting(after_row_id=self._cursor, limit=LOOKED_AT)
        found: list[RunRow] = []
        for row in page:
            if len(found) >= room:
                return found
            self._cursor = row.row_id
            passed_over = row.run_id in in_hand or self._is_left(row.run_id)
            if not passed_over and self._queue.may_go_on(row, pending_ms=self._pending_ms):
                found.append(row)
        if len(page) < LOOKED_AT:
            self._cursor = 0
        return found

    def _is_left(self, run_id: str) -> bool:
        with self._lock:
            return run_id in self._until_s

    def _forget(self) -> None:
        now_s = self._now_s()
        with self._lock:
            for run_id in [run_id for run_id, until_s in self._until_s.items() if until_s <= now_s]:
                del self._until_s[run_id]
