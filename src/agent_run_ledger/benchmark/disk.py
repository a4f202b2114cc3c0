"""How fast the disk syncs, and which pairs of measurements it left in peace."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SYNCS_PER_SAMPLE = 60
NOISY = 1.5
"""A pair is dropped when the median sync just before or just after it took more than this times the quickest median."""

_BLOCK = b"x" * 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Generic[T]):
    """One pair of measurements, and the median sync in µs before and after it."""

    pair: T
    before_us: float
    after_us: float


class Disk:
    """Times fdatasync on a file that is allocated once. Close it, or use it as a context manager."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(os.path.join(folder, "disk-probe"), os.O_RDWR | os.O_CREAT, 0o600)
        self._sync = getattr(os, "fdatasync", os.fsync)
        os.pwrite(self._fd, bytes(len(_BLOCK) * SYNCS_PER_SAMPLE), 0)
        os.fsync(self._fd)

    def sample_us(self) -> float:
        """Return the median time of 60 × (write 4 KiB, fdatasync), in µs."""
        times: list[float] = []
        for i in range(SYNCS_PER_SAMPLE):
            started = time.perf_counter()
            os.pwrite(self._fd, _BLOCK, i * len(_BLOCK))
            self._sync(self._fd)
            times.append(time.perf_counter() - started)
        return statistics.median(times) * 1e6

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Disk:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def quiet(timed: Sequence[Timed[T]]) -> list[Timed[T]]:
    """Return the pairs whose disk was not noisy; see NOISY. The quickest median of the run is the yardstick."""
    if not timed:
        return []
    best = min(min(one.before_us, one.after_us) for one in timed)
    return [one for one in timed if max(one.before_us, one.after_us) <= NOISY * best]


def quiet_pairs(
    measure: Callable[[int], T], sample_us: Callable[[], float], *, wanted: int, at_most: int
) -> tuple[list[Timed[T]], list[Timed[T]]]:
    """Call `measure(0)`, `measure(1)`, ... until `wanted` pairs are quiet or `at_most` were made.

    Returns (the quiet ones, all of them). With no quiet pair at all, which takes a disk that got slower within every
    single pair, the first list is empty.
    """
    timed: list[Timed[T]] = []
    while len(timed) < at_most and len(quiet(timed)) < wanted:
        before_us = sample_us()
        pair = measure(len(timed))
        timed.append(Timed(pair=pair, before_us=before_us, after_us=sample_us()))
    return quiet(timed), timed
