"""Where time and randomness come from."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Time is never a reason to trust: safety rests on generations."""

    def now_ms(self) -> int:
        """Return Unix time in milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go backwards, for durations and deadlines only."""
        ...


class Entropy(Protocol):
    """Where randomness comes from."""

    def token(self, size: int) -> bytes:
        """Return `size` bytes nobody can guess."""
        ...

    def uuid7(self) -> bytes:
        """Return a new 16-byte UUIDv7 (RFC 9562), greater than every one returned before by this process."""
        ...

    def fraction(self) -> float:
        """Return a number in [0, 1) for jitter; not for secrets."""
        ...
