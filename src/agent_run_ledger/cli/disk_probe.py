"""How long the disk below a folder takes to confirm one small write."""

from __future__ import annotations

import os
import statistics
import tempfile
import time

TRIES = 20
_BLOCK = b"\0" * 4096


def sync_median_us(folder: str) -> float:
    """Return the median of 20 timed write-and-sync calls on a file of its own in `folder`, in microseconds.

    The file is removed. OSError where none can be made.
    """
    descriptor, path = tempfile.mkstemp(prefix=".arl-doctor-", dir=folder)
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        taken_us: list[float] = []
        for _ in range(TRIES):
            os.pwrite(descriptor, _BLOCK, 0)
            began_ns = time.perf_counter_ns()
            sync(descriptor)
            taken_us.append((time.perf_counter_ns() - began_ns) / 1000)
        return statistics.median(taken_us)
    finally:
        os.close(descriptor)
        os.unlink(path)
