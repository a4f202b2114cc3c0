"""Runs that stand still in the middle of a step until a test lets them go on, or do something rude there."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
from pathlib import Path

from agent_run_ledger import Forked, RunLedger, Step
from agent_run_ledger.testing import BodyCounter

RUN_ID = "held"
ENTERED, GO_ON = "entered.gate", "go-on.gate"
PATIENCE_S = 30.0


class Gate:
    """A named pipe. Make it in the test first and keep it: an opening is remembered while anybody holds the gate."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def open(self) -> None:
        """Let one waiter through."""
        os.write(self._descriptor, b"!")

    def wait(self) -> None:
        """Return when the gate was opened; fail after half a minute."""
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE_S)
        if not ready:
            raise TimeoutError("nobody opened the gate")
        os.read(self._descriptor, 1)


def pipeline(workdir: Path, in_the_middle: object = None) -> RunLedger:
    """Return a ledger of three steps; the second one calls `in_the_middle`, if there is such a thing."""
    bodies = BodyCounter(workdir / "bodies.log")
    ledger = RunLedger(RUN_ID, workdir / "ledger.db")

    @ledger.step
    def first(n: int) -> int:
        bodies.ran("first", n)
        return n + 1

    @ledger.step(depends_on=["first"])
    def second(first: int) -> int:
        bodies.ran("second", first)
        if callable(in_the_middle):
            in_the_middle()
        return first * 2

    @ledger.step(depends_on=["second"])
    def third(second: int) -> str:
        bodies.ran("third", second)
        return f"result {second}"

    return ledger


def plain(workdir: Path) -> object:
    """Nothing special happens."""
    with pipeline(workdir) as ledger:
        return ledger.execute(n=1)


def waiting(workdir: Path) -> object:
    """The second step tells that it has begun and waits until it may go on."""
    entered, go_on = Gate(workdir / ENTERED), Gate(workdir / GO_ON)

    def wait() -> None:
        entered.open()
        go_on.wait()

    with pipeline(workdir, wait) as ledger:
        return ledger.execute(n=1)


def forking(workdir: Path) -> object:
    """The second step forks, and the child simply goes on with the run, as a copied stack does."""
    inside: list[int] = []

    def fork() -> None:
        inside.append(os.fork())
        if inside[0]:
            os.waitpid(inside[0], 0)

    ledger = pipeline(workdir, fork)
    try:
        result = ledger.execute(n=1)
    except Forked as error:
        (workdir / "child.json").write_text(json.dumps({"code": error.code, "message": str(error)}))
        os._exit(0)
    ledger.close()
    return result


def forked_other_run(workdir: Path) -> object:
    """The second step forks, and the child tries to start another run on the parent's ledger."""
    box: list[RunLedger] = []

    def fork() -> None:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return
        said = "no error"
        try:
            box[0].bind("another").execute(n=5)
        except Forked as error:
            said = error.code
        (workdir / "child.json").write_text(json.dumps({"code": said}))
        os._exit(0)

    with pipeline(workdir, fork) as ledger:
        box.append(ledger)
        return ledger.execute(n=1)


def terminated(workdir: Path) -> object:
    """In the first life the second step gets a SIGTERM, whose disposition nobody has changed."""

    def terminate() -> None:
        if os.environ["ARL_LIFE"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    with pipeline(workdir, terminate) as ledger:
        return ledger.execute(n=1)


def with_a_stray_sqlite(workdir: Path) -> object:
    """In the first life the second step looks into the ledger with another SQLite library of the same process."""

    def stray() -> None:
        if os.environ["ARL_LIFE"] == "1":
            connection = sqlite3.connect(workdir / "ledger.db")
            connection.execute("SELECT count(*) FROM runs").fetchone()
            connection.close()

    with pipeline(workdir, stray) as ledger:
        return ledger.execute(n=1)


def bulky(workdir: Path) -> object:
    """Eight steps of 128 KiB each that no compression makes smaller; bodies are counted where there is room."""
    bodies = BodyCounter(workdir.parent / "bodies.log")
    with RunLedger(RUN_ID, workdir / "ledger.db", max_parallel=1) as ledger:
        for number in range(8):

            def body(number: int = number) -> bytes:
                bodies.ran(f"step {number}")
                return os.urandom(128 << 10)

            ledger.add(Step(body, name=f"step {number}"))
        return len(ledger.execute())
