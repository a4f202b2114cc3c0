"""The system's randomness behind ports.Entropy."""

from __future__ import annotations

import os
import threading
import time

_NS_PER_MS = 1_000_000
_COUNTER_BITS = 42
_TAIL_BYTES = 4
_FRACTION_BITS = 53


class SystemEntropy:
    """See ports.Entropy. Safe in threads; all of a process share one counter, a forked child begins its own."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        """See ports.Entropy.token."""
        return os.urandom(size)

    def uuid7(self) -> bytes:
        """See ports.Entropy.uuid7.

        RFC 9562, 6.2, method 1: 48 bits of Unix milliseconds, then a counter of 42 bits (12 in rand_a, 30 in rand_b)
        that starts each millisecond at a random number below 2**41 and goes up by one, then 32 random bits. A clock
        that stands still or goes back leaves the last millisecond in place; a counter that runs over takes the next.
        """
        milliseconds, counter = _ticks.next(time.time_ns() // _NS_PER_MS)
        tail = int.from_bytes(os.urandom(_TAIL_BYTES), "big")
        high = milliseconds << 16 | 0x7 << 12 | counter >> 30
        low = 0b10 << 62 | (counter & 0x3FFF_FFFF) << 32 | tail
        return (high << 64 | low).to_bytes(16, "big")

    def fraction(self) -> float:
        """See ports.Entropy.fraction."""
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << _FRACTION_BITS)


class Ticks:
    """Pairs of a millisecond and a counter, each greater than every one before it."""

    def __init__(self) -> None:
        self._last_ms = -1
        self._counter = 0
        self._mutex = threading.Lock()

    def next(self, now_ms: int) -> tuple[int, int]:
        """Return the pair that follows, at `now_ms` or, where that is over, later."""
        with self._mutex:
            if now_ms > self._last_ms:
                self._begin(now_ms)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._begin(self._last_ms + 1)
            return self._last_ms, self._counter

    def reseed(self) -> None:
        """Part from the parent's in a forked child, where a thread that is not there may have held the mutex."""
        self._mutex = threading.Lock()
        self._begin(self._last_ms + 1)

    def _begin(self, millisecond: int) -> None:
        counter = _random_counter()
        self._last_ms, self._counter = millisecond, counter  # together: an interrupt can come after a call only


def _random_counter() -> int:
    return int.from_bytes(os.urandom(6), "big") >> (48 - _COUNTER_BITS + 1)


_ticks = Ticks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ticks.reseed)
