"""Scenarios in which something is wrong on purpose, so that tests see the harness find it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from agent_run_ledger import RunLedger, probes
from agent_run_ledger.runs import journal, recorded
from agent_run_ledger.testing import BodyCounter


def two_steps(workdir: Path, run_id: str = "two") -> object:
    """Two steps, nothing wrong."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger(run_id) as ledger:

        @ledger.step
        def one(n: int) -> int:
            bodies.ran("one", n)
            return n + 1

        @ledger.step(depends_on=["one"])
        def two(one: int) -> int:
            bodies.ran("two", one)
            return one * 2

        return ledger.execute(n=1)


def one_step(workdir: Path) -> object:
    """One step, nothing wrong, as small as it gets."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("one") as ledger:

        @ledger.step
        def only() -> str:
            bodies.ran("only")
            return "done"

        return ledger.execute()


def forgetful(workdir: Path) -> object:
    """Every life begins another run, so it pays again for what was recorded."""
    return two_steps(workdir, f"run of life {os.environ['ARL_LIFE']}")


def amnesic(workdir: Path) -> object:
    """The engine finds no record."""
    recorded.Recorded.take = lambda *_: None  # type: ignore[method-assign]
    return two_steps(workdir)


def unmarked(workdir: Path) -> object:
    """The engine runs bodies whose start it has not committed."""
    commit = journal.Journal.commit

    def without_starts(self: journal.Journal, batch: journal.Batch) -> journal.Written:
        starts, batch.starts = batch.starts, []
        written = journal.Written(state=self._row.state, reason="", record_ids=())
        if not batch.empty:
            written = commit(self, batch)
        batch.starts = starts
        return written

    journal.Journal.commit = without_starts  # type: ignore[method-assign]
    return two_steps(workdir)


def inconstant(workdir: Path) -> object:
    """Another life, another result."""
    two_steps(workdir)
    return os.environ["ARL_LIFE"]


def fails(_: Path) -> object:
    """Raises."""
    raise ValueError("no luck today")


def not_json(_: Path) -> object:
    """Returns what is no JSON."""
    return {1, 2}


def says(_: Path) -> object:
    """Prints on both streams."""
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return None


def exits_early(_: Path) -> object:
    """Leaves without a word."""
    os._exit(3)


def hangs(_: Path) -> object:
    """Never ends."""
    signal.pause()
    return None


def leaves_a_process(_: Path) -> object:
    """Starts a process and ends without it."""
    left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    return left.pid


def own_points(_: Path) -> object:
    """Reaches a point of its own, in the process and in a forked child of it."""
    for _turn in range(3):
        probes.reach("mine.before")
    pid = os.fork()
    if pid == 0:
        for _turn in range(5):
            probes.reach("mine.before")
        os._exit(0)
    os.waitpid(pid, 0)
    return "here"


def sometimes(workdir: Path) -> object:
    """Reaches its point twice in the first directory it ever sees, and once in all others."""
    seen = workdir.parent / "seen"
    two_steps(workdir)
    probes.reach("mine.sometimes")
    if not seen.exists():
        probes.reach("mine.sometimes")
    seen.touch()
    return None
