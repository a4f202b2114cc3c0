"""`make bench-server`: starts a cluster of its own, measures, prints the table, and writes what was asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent_run_ledger.benchmark.command import say
from agent_run_ledger.benchmark.report import Report, machine
from agent_run_ledger.store.mounts import filesystem
from bench.server.measure import FULL, QUICK, measure
from tests.services.postgres import MISSING, Cluster, find_bin, running


def main(argv: Sequence[str]) -> int:
    """Measure and return 0; 5 where there is no server to start. A missed target is a result, not a failure."""
    parser = argparse.ArgumentParser(prog="make bench-server", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the numbers that count, about four minutes")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    given = parser.parse_args(argv)
    if find_bin() is None:
        print(MISSING, file=sys.stderr)
        return 5
    measured_on = machine(filesystem(Path.cwd()))
    with running(in_memory=False) as cluster:

        @contextmanager
        def place() -> Iterator[str]:
            name = cluster.new_database()
            try:
                yield cluster.url(name)
            finally:
                cluster.drop(name)

        measured = measure(FULL if given.full else QUICK, place, say)
        version = version_of(cluster)
    report = Report(
        plan="full" if given.full else "quick",
        machine={**measured_on, "postgresql": version},
        figures=measured.figures,
        raw=measured.raw,
    )
    print(report.as_table())
    if given.json is not None:
        Path(given.json).write_bytes(report.as_json())
    return 0


def version_of(cluster: Cluster) -> str:
    """Return the server's version in words."""
    return str(cluster.run("SHOW server_version")[0][0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
