"""Measures the audit of a large log: how fast it is verified, in how much memory, and what one proof costs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.children import json_of_child
from agent_run_ledger.benchmark.figures import Figure, Measured, Sense, Target
from agent_run_ledger.benchmark.floor import Floor
from agent_run_ledger.benchmark.plan import Bench
from agent_run_ledger.benchmark.work import chain, result
from agent_run_ledger.store.mounts import filesystem

SPEED = Target(sense=Sense.AT_LEAST, limit=40_000)
MEMORY = Target(sense=Sense.AT_MOST, limit=200)
PROOF = Target(sense=Sense.AT_MOST, limit=1)

MEMORY_FOLDER = "/dev/shm"
STEPS_PER_RUN = 1_000
BYTES_PER_LEAF = 4_096
ROWS_PER_PROOF = 3
AUDITS = 3
SLICE = "x" * 8_160


def measure(bench: Bench) -> Measured:
    """Return the figures of an audit of `leaves` leaves with 1 KiB results each."""
    plan = bench.plan
    path = os.path.join(bench.folder, "log.db")
    made_on = write_log(bench, path, plan.leaves)
    bench.say(f"verify: {plan.leaves:,} leaves")
    audits = [json_of_child("auditor", "verify", path) for _ in range(AUDITS)]
    floor = os.path.join(bench.folder, "floor.db")
    _write_floor(floor, plan.leaves)
    bench.say(f"verify: {plan.proofs:,} proofs")
    proofs = json_of_child("auditor", "prove", path, str(plan.proofs))
    leaves, seconds = audits[0]["leaves"], [one["seconds"] for one in audits]
    peak_bytes = max(one["peak_rss_bytes"] for one in audits)
    figures = [
        *verify_figures(
            leaves, seconds, peak_bytes, floor_per_s=plan.leaves / _read_and_hash_s(floor), made_on=made_on
        ),
        *proof_figures(proofs["leaves"], proofs["seconds"], floor_s=_read_slices_s(bench.folder, plan.proofs)),
    ]
    return Measured(figures=figures, raw={"verify_seconds": seconds, "peak_rss_bytes": peak_bytes})


def verify_figures(
    leaves: int, seconds: Sequence[float], peak_bytes: int, *, floor_per_s: float, made_on: str
) -> list[Figure]:
    """Return speed and memory of a verification."""
    return [
        Figure(
            name="verify: leaves per second",
            value=leaves / statistics.median(seconds),
            unit="leaves/s",
            floor=floor_per_s,
            target=SPEED,
            note=f"{leaves:,} leaves, median of {len(seconds)} new processes; floor: read and hash as many bare rows; "
            f"the log was written on {made_on}",
        ),
        Figure(
            name="verify: peak memory", value=peak_bytes / 1e6, unit="MB", target=MEMORY, note="of the whole process"
        ),
    ]


def proof_figures(leaves: int, seconds: Sequence[float], *, floor_s: float) -> list[Figure]:
    """Return the median and the 99th percentile of the time of one inclusion proof."""
    in_order = sorted(seconds)
    p99 = in_order[min(len(in_order) - 1, len(in_order) * 99 // 100)]
    note = f"{len(in_order):,} random leaves of {leaves:,}; floor: read {ROWS_PER_PROOF} rows of 8 KiB by key"
    return [
        Figure(name=f"proof: {name}", value=value * 1e3, unit="ms", floor=floor_s * 1e3, target=PROOF, note=note)
        for name, value in (("median", statistics.median(in_order)), ("99th percentile", p99))
    ]


def write_log(bench: Bench, path: str, leaves: int) -> str:
    """Write a log of at least `leaves` leaves to `path`, and return the file system it was written on.

    Each leaf is a transaction, so it is written where a sync costs nothing, if there is room, and then moved.
    """
    with cheap_folder(leaves * BYTES_PER_LEAF) as cheap:
        folder = bench.folder if cheap is None else cheap
        made = os.path.join(folder, "made.db")
        with RunLedger("none", made, steps=chain(min(STEPS_PER_RUN, leaves))) as ledger:
            written, number = 0, 0
            while written < leaves:
                bench.say(f"verify: writing the log, {written:,} of {leaves:,} leaves")
                ledger.bind(f"run-{number}").execute()
                written, number = written + min(STEPS_PER_RUN, leaves) + 1, number + 1
        shutil.copyfile(made, path)
        return filesystem(folder)


@contextmanager
def cheap_folder(size: int) -> Generator[str | None]:
    """A new folder in memory with room for `size` bytes, or None where there is none."""
    try:
        roomy = shutil.disk_usage(MEMORY_FOLDER).free > size and os.access(MEMORY_FOLDER, os.W_OK)
    except OSError:
        roomy = False
    if not roomy:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="arl-bench-", dir=MEMORY_FOLDER) as folder:
        yield folder


def _write_floor(path: str, rows: int) -> None:
    floor = Floor(path)
    floor.put_together(rows, lambda i: json.dumps(result(i)))
    floor.close()


def _read_and_hash_s(path: str) -> float:
    floor = Floor(path)
    started = time.perf_counter()
    for text in floor.texts():
        hashlib.sha256(text.encode()).digest()
    seconds = time.perf_counter() - started
    floor.close()
    return seconds


def _read_slices_s(folder: str, count: int) -> float:
    floor = Floor(os.path.join(folder, "slices.db"))
    floor.put_together(1_000, lambda _: SLICE)
    choose = random.Random(0)
    taken: list[float] = []
    for _ in range(count):
        keys = [choose.randrange(1_000) for _ in range(ROWS_PER_PROOF)]
        started = time.perf_counter()
        for key in keys:
            floor.text(key)
        taken.append(time.perf_counter() - started)
    floor.close()
    return statistics.median(taken)
