"""The plainest clock and randomness, for who opens a store without handing in any."""

from __future__ import annotations

import os
import time

_NS_PER_MS = 1_000_000


class AmbientClock:
    """See ports.Clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """See ports.Clock.now_ms."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_s(self) -> float:
        """See ports.Clock.monotonic_s."""
        return time.monotonic()


class AmbientEntropy:
    """See ports.Entropy, but its UUIDs of one millisecond are in no order: the store itself makes one or two, ever."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        """See ports.Entropy.token."""
        return os.urandom(size)

    def uuid7(self) -> bytes:
        """Return 48 bits of Unix milliseconds, version 7, variant 2 and 74 random bits (RFC 9562, 5.7)."""
        milliseconds = (time.time_ns() // _NS_PER_MS).to_bytes(6, "big")
        rest = bytearray(os.urandom(10))
        rest[0] = 0x70 | rest[0] & 0x0F
        rest[2] = 0x80 | rest[2] & 0x3F
        return milliseconds + bytes(rest)

    def fraction(self) -> float:
        """See ports.Entropy.fraction."""
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)
