"""The work at a server: the bare loop, the chained steps of the benchmark, and a child that does one of both."""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent_run_ledger import RunLedger
from agent_run_ledger.benchmark.children import READY
from agent_run_ledger.benchmark.work import Entered, chain, opened, result

KEYS_EACH = 1_000_000
_MARKER = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@cache
def statements() -> Mapping[str, str]:
    """Return the statements of this package's file by name."""
    pieces = _MARKER.split(Path(__file__).with_name("floor.sql").read_text(encoding="utf-8"))
    return {name: text.strip().removesuffix(";") for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def connect(url: str, *, autocommit: bool = True) -> Any:
    """Return a connection; by default each statement is a transaction, which is durable when it ends."""
    import psycopg

    connection = psycopg.connect(url, autocommit=autocommit)
    connection.prepare_threshold = 1
    return connection


class Bare:
    """One table, one connection: a row and its commit, and nothing else.

    `one_trip`: both in one round trip; else as a program writes it that inserts and commits: the driver makes three.
    """

    def __init__(self, url: str, *, create: bool, one_trip: bool = False) -> None:
        self._connection = connect(url, autocommit=one_trip)
        self._one_trip = one_trip
        if create:
            self._connection.execute(statements()["create"])
            self._commit()

    def put_all(self, count: int, *, first_key: int = 0, entered: Entered | None = None) -> None:
        """Commit `count` results as JSON, each durable before the next begins."""
        insert = statements()["insert"]
        for i in range(count):
            if entered is not None:
                entered(i)
            self._connection.execute(insert, (first_key + i, json.dumps(result(i))))
            self._commit()

    def _commit(self) -> None:
        if not self._one_trip:
            self._connection.commit()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def make_store(url: str) -> None:
    """Make a store at a database that is empty."""
    with RunLedger("first", url, steps=chain(1)) as ledger:
        ledger.execute()


def work_of(kind: str, url: str, number: int, steps: int, entered: Entered) -> Callable[[], object]:
    """Open the database and return the work of writer `number`, who tells `entered` of each step that begins."""
    if kind == "floor":
        bare = Bare(url, create=False)
        return lambda: bare.put_all(steps, first_key=number * KEYS_EACH, entered=entered)
    return opened(f"run-{number}", url, chain(steps, entered)).execute


def main(arguments: Sequence[str]) -> None:
    """Set up, say READY, wait for the end of standard input, work, and print times as JSON: KIND URL NUMBER STEPS."""
    moments: list[int] = []
    entered: Entered = lambda _: moments.append(time.monotonic_ns())  # noqa: E731
    work = work_of(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]), entered)
    print(READY, flush=True)
    sys.stdin.read()
    started = time.monotonic()
    work()
    ended = time.monotonic()
    p50_ms = statistics.median(later - earlier for earlier, later in pairwise(moments)) / 1e6
    print(json.dumps({"started_s": started, "ended_s": ended, "step_p50_ms": p50_ms}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
