"""The system's randomness behind ports.Entropy."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

_NS_PER_MS = 1_000_000
_COUNTER_BITS = 42
_TAIL_BYTES = 4
_FRACTION_BITS = 53


def _wall_clock_ms() -> int:
    return time.time_ns() // _NS_PER_MS


class SystemEntropy:
    """See ports.Entropy. Safe in threads; a forked child starts a counter of its own."""

    __slots__ = ("__weakref__", "_counter", "_last_ms", "_lock", "_now_ms")

    def __init__(self, *, now_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._last_ms = -1
        self._counter = 0
        self._lock = threading.Lock()
        _alive.add(self)

    def token(self, size: int) -> bytes:
        """See ports.Entropy.token."""
        return os.urandom(size)

    def uuid7(self) -> bytes:
        """See ports.Entropy.uuid7.

        RFC 9562, 6.2, method 1: 48 bits of Unix milliseconds, then a counter of 42 bits (12 in rand_a, 30 in rand_b)
        that starts each millisecond at a random number below 2**41 and goes up by one, then 32 random bits. A clock
        that stands still or goes back leaves the last millisecond in place; a counter that runs over takes the next.
        """
        with self._lock:
            now_ms = self._now_ms()
            if now_ms > self._last_ms:
                self._last_ms = now_ms
                self._counter = _random_counter()
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._last_ms += 1
                    self._counter = _random_counter()
            milliseconds, counter = self._last_ms, self._counter
        tail = int.from_bytes(os.urandom(_TAIL_BYTES), "big")
        high = milliseconds << 16 | 0x7 << 12 | counter >> 30
        low = 0b10 << 62 | (counter & 0x3FFF_FFFF) << 32 | tail
        return (high << 64 | low).to_bytes(16, "big")

    def fraction(self) -> float:
        """See ports.Entropy.fraction."""
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << _FRACTION_BITS)

    def reseed(self) -> None:
        """Start a counter of its own: called in a forked child."""
        # The lock may have been held by a thread that does not exist in the child, and the counter is the parent's.
        self._lock = threading.Lock()
        self._last_ms += 1
        self._counter = _random_counter()


_alive: weakref.WeakSet[SystemEntropy] = weakref.WeakSet()


def _random_counter() -> int:
    return int.from_bytes(os.urandom(6), "big") >> (48 - _COUNTER_BITS + 1)


def _reseed_all() -> None:
    for entropy in list(_alive):
        entropy.reseed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reseed_all)
