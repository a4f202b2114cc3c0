"""A child process that audits a log, by verifying all of it or proving single leaves, and tells how long it took."""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Sequence

from agent_run_ledger.errors import Tampered
from agent_run_ledger.store import open_sqlite

SEED = 20


def verify(path: str) -> dict[str, float]:
    """Verify the whole log; Tampered if it is not intact. Returns size, seconds, and peak memory in bytes."""
    from agent_run_ledger.ledger.verify import verify_log

    store = open_sqlite(path, create=False)
    started = time.perf_counter()
    report = verify_log(store.reader(), log_id=store.log_id)
    seconds = time.perf_counter() - started
    if not report.ok:
        raise Tampered(f"the benchmark's own log is not intact: {report.problems[0].text}")
    return {"leaves": report.leaves, "seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}


def peak_rss_bytes() -> int:
    """Return the largest resident size that this program has had.

    On Linux from /proc, because getrusage(2) there also counts what the parent had when it made this process.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def prove(path: str, count: int) -> dict[str, object]:
    """Prove `count` random leaves, the same ones in every run. Returns the size and all times in seconds.

    Every proof is checked against the root, outside the time; Tampered for one that does not hold.
    """
    from agent_run_ledger.kernel.merkle import leaf_hash, root, verify_inclusion
    from agent_run_ledger.ledger.proofs import inclusion_proof

    reader = open_sqlite(path, create=False).reader()
    head = reader.head()
    expected = root(head.size, head.frontier)
    choose = random.Random(SEED)
    seconds: list[float] = []
    for _ in range(count):
        index = choose.randrange(head.size)
        started = time.perf_counter()
        proof = inclusion_proof(reader, index, head.size)
        seconds.append(time.perf_counter() - started)
        leaf = next(leaf_hash(event.envelope) for event in reader.events(first=index, stop=index + 1))
        if not verify_inclusion(leaf, index, head.size, proof, expected):
            raise Tampered(f"the proof of leaf {index} does not hold")
    return {"leaves": head.size, "seconds": seconds}


def main(arguments: Sequence[str]) -> None:
    """Print the outcome as JSON: verify PATH, or prove PATH COUNT."""
    kind, path = arguments[0], arguments[1]
    print(json.dumps(verify(path) if kind == "verify" else prove(path, int(arguments[2]))))


if __name__ == "__main__":
    main(sys.argv[1:])
