"""Other processes for tests of the store: each role waits for a line on stdin where a test has to say when."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw

from agent_run_ledger import probes
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.store import open_sqlite

ROOT = Path(__file__).resolve().parent.parent.parent


class Child:
    """A running role. Use as a context manager: it never outlives its test."""

    def __init__(self, role: str, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.fault.store_child", role, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hear(self) -> str:
        """The next line that the child prints; what it died of where it prints none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise AssertionError(f"the child ended with {self._process.returncode}: {errors[-2000:]}")
        return line.strip()

    def say(self, line: str = "go") -> None:
        """Let the child go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait for the end; the exit code (negative: the signal) and what was printed since the last line heard."""
        printed, errors = self._process.communicate(timeout=120)
        if self._process.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(errors[-2000:])
        return self._process.returncode, printed

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def _told(line: str) -> None:
    print(line, flush=True)
    sys.stdin.readline()


def work(path: str, run_id: str, count: str, point: str = "", nth: str = "0", sync: str = "yes") -> None:
    """Commit `count` steps of a run; die at the nth time that `point` is reached."""
    from tests.contract.store_kit import ENTROPY, begin, end_step, op, start_step

    reached = 0

    def die(name: str) -> None:
        nonlocal reached
        reached += name == point
        if name == point and reached == int(nth):
            os.kill(os.getpid(), signal.SIGKILL)

    store = open_sqlite(path, create=True, clock=SystemClock(), entropy=ENTROPY)
    row = begin(store, run_id)
    _told("ready")
    probes.install(die)
    for key in range(int(count)):

        def both(tx: object, key: int = key) -> None:
            start_step(tx, row, key)  # type: ignore[arg-type]
            end_step(tx, row, key)  # type: ignore[arg-type]

        store.transact(op(), both, sync=sync == "yes")
        print(key, flush=True)
    store.close()


def inside(path: str) -> None:
    """Stand inside a transaction until told otherwise."""
    from tests.contract.store_kit import begin_in, op

    store = open_sqlite(path, create=False)

    def wait(tx: object) -> None:
        begin_in(tx, "inside")  # type: ignore[arg-type]
        _told("inside")

    store.transact(op(), wait)
    print("committed", flush=True)


def lock(path: str, run_id: str) -> None:
    """Be a run's live attempt."""
    store = open_sqlite(path, create=False)
    lock = store.lock_run(run_id)
    _told("none" if lock is None else "locked")


def watch(path: str, run_id: str) -> None:
    """Ask all the time whether a run is live."""
    store = open_sqlite(path, create=False, readonly=True)
    print("watching", flush=True)
    while True:
        store.is_run_live(run_id)


def turnstile(path: str) -> None:
    """Stand in the turnstile of a store."""
    file = os.open(path + "-lock", os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    _told("inside")


def free(path: str) -> None:
    """Say at each line whether another process could take every lock of a store and commit."""
    print("ready", flush=True)
    file = os.open(path + "-lock", os.O_RDWR)
    connection = apsw.Connection(path)
    for _ in sys.stdin:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_UN)
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
            print("free", flush=True)
        except (OSError, apsw.BusyError) as error:
            print(repr(error), flush=True)


def create(path: str) -> None:
    """Create or open a store and say which it is."""
    _told("ready")
    try:
        store = open_sqlite(path, create=True)
    except LedgerError as error:
        print(f"failed {error}", flush=True)
        return
    print(store.log_id.hex(), flush=True)
    store.close()


def die_creating(path: str, nth: str) -> None:
    """Die before the nth act of the disk while a store is created."""
    from tests.fault.store_disk import layered

    acts = 0

    def die(_kind: str, _name: str) -> None:
        nonlocal acts
        acts += 1
        if acts == int(nth):
            os.kill(os.getpid(), signal.SIGKILL)

    with layered() as disk:
        disk.before = die
        open_sqlite(path, create=True)
        print("created", flush=True)


def back_up(path: str, destination: str, where: str, nth: str) -> None:
    """Make a backup and die in it: at the nth step, or "marked", "checked", before the name ("whole"), or "named"."""
    from agent_run_ledger.store import sqlite_backup

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def after(act: Callable[..., object]) -> Callable[..., None]:
        return lambda *arguments: die(act(*arguments))

    steps = 0

    def step(_done: int, _total: int) -> None:
        nonlocal steps
        steps += 1
        if where == "step" and steps == int(nth):
            die()

    sqlite_backup.STEP_PAGES = 8
    if where == "marked":
        sqlite_backup.SqliteBackup._mark = after(sqlite_backup.SqliteBackup._mark)  # type: ignore[assignment]
    if where in ("whole", "named"):
        sqlite_backup.give_name = die if where == "whole" else after(sqlite_backup.give_name)
    store = open_sqlite(path, create=False)
    _told("ready")
    store.backup(destination, progress=step, check=die if where == "checked" else None)
    print("made", flush=True)


def read(path: str) -> None:
    """Keep a read transaction open, as any other program may."""
    connection = apsw.Connection(path)
    connection.execute("begin")
    connection.execute("select count(*) from events").fetchall()
    _told("reading")


def write(path: str) -> None:
    """Hold SQLite's write lock as any other program may, which knows nothing of ours."""
    connection = apsw.Connection(path)
    connection.execute("begin immediate")
    _told("writing")
    connection.execute("rollback")


def hold_open(path: str) -> None:
    """Keep the store open and idle."""
    store = open_sqlite(path, create=False)
    store.reader().head()
    _told("open")


if __name__ == "__main__":
    known = (work, inside, lock, watch, turnstile, free, create, die_creating, back_up, read, write, hold_open)
    roles = {role.__name__: role for role in known}
    roles[sys.argv[1]](*sys.argv[2:])
