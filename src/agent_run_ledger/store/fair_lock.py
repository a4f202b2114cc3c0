"""A lock that serves the threads of this process in the order they came."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """First come, first served: a released lock is handed to the oldest waiter, so nobody can overtake.

    threading.Lock lets a thread that releases and asks again win against sleepers for seconds.
    """

    __slots__ = ("_mutex", "_owner", "_waiters")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: int | None = None
        self._waiters: deque[tuple[int, threading.Lock]] = deque()

    def acquire(self, timeout_s: float) -> bool:
        """Take the lock and return True, or return False after `timeout_s` seconds without it."""
        me, turn = threading.get_ident(), None
        try:
            with self._mutex:
                if self._owner is None:
                    self._owner = me
                    return True
                turn = threading.Lock()
                turn.acquire()
                self._waiters.append((me, turn))
            return turn.acquire(timeout=timeout_s) or not self._leave_queue(me, turn)
        except BaseException:  # a signal's exception at any point must not leave the lock with nobody
            if (turn is None or not self._leave_queue(me, turn)) and self.is_mine():
                self.release()
            raise

    def release(self) -> None:
        """Hand the lock to the oldest waiter, or leave it free."""
        with self._mutex:
            if self._waiters:
                self._owner, turn = self._waiters.popleft()
                turn.release()
            else:
                self._owner = None

    def is_mine(self) -> bool:
        """Return whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def _leave_queue(self, me: int, turn: threading.Lock) -> bool:
        """Stop waiting and return True; False when the lock was handed over in the meantime."""
        with self._mutex:
            if (me, turn) in self._waiters:
                self._waiters.remove((me, turn))
                return True
            return False
