"""A lock of this process's threads, at which nobody is overtaken who waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast


class FairLock:
    """The one who holds the queue is the next: who releases and asks again comes after it.

    threading.Lock lets a thread that does so win against sleepers for seconds. Behind the first, the queue is a lock
    of the platform, which on Linux wakes them in the order they came.

    An interrupt (a signal handler that raises) can come after any call and must not leave the lock taken. So it is
    made of locks written in C, and who acquires it writes, with nothing in between:

        try:
            if not lock.acquire(timeout_s): ...
            ...
        finally:
            try:
                lock.release()
            except RuntimeError:
                pass
    """

    __slots__ = ("_queue", "_turn", "is_mine", "release")

    def __init__(self) -> None:
        self._queue = threading.RLock()
        self._turn = threading.RLock()
        self.release: Callable[[], None] = self._turn.release
        """Give the lock up, in one call that no interrupt can divide. RuntimeError when the caller does not hold it."""
        self.is_mine: Callable[[], bool] = cast(Any, self._turn)._is_owned
        """Return whether the calling thread holds the lock."""

    def acquire(self, timeout_s: float) -> bool:
        """Take the lock and return True, or return False after `timeout_s` seconds without it."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if not self._queue.acquire(timeout=max(0.0, timeout_s)):
                return False
            return self._turn.acquire(timeout=max(0.0, deadline_s - time.monotonic()))
        finally:
            try:  # noqa: SIM105 - entering suppress() would be a call before it
                self._queue.release()
            except RuntimeError:
                pass
