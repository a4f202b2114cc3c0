"""A program that is interrupted thousands of times at points that nobody chose, and looks after each what is left."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent_run_ledger.ports import Tx
from agent_run_ledger.store import SqliteStore, open_sqlite
from tests.contract.store_kit import begin, check_log, end_step, op, start_step
from tests.fault.store_child import Child

FULL = 2


class _Interrupted(BaseException):
    pass


class _Storm:
    """One interrupt for each `strike`, after a random part of what `act` usually takes."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._armed = False
        signal.signal(signal.SIGALRM, self._interrupt)

    def strike(self, act: Callable[[], object], usual_s: float) -> bool:
        """Return whether the interrupt came before the end."""
        delay_s = 1e-6 + usual_s * self._chance.random()
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            act()
        except _Interrupted:
            return True
        finally:
            self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    def _interrupt(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            raise _Interrupted


def _act(store: SqliteStore, other: Path, key: int) -> None:
    lock = store.lock_run("r")
    if lock is None:
        raise RuntimeError("a lock of the run was left behind")
    row = store.reader().find_run("r")
    assert row is not None

    def step(tx: Tx, key: int) -> None:
        start_step(tx, row, key)
        end_step(tx, row, key)

    store.transact(op(), lambda tx: step(tx, 2 * key), sync=False)
    store.transact(op(), lambda tx: step(tx, 2 * key + 1))
    lock.release()
    second = open_sqlite(other, create=True)
    second.close()


def _left_behind(store: SqliteStore, helpers: list[Child]) -> list[str]:
    """Ask as another thread, and as other processes."""
    found: list[int] = []

    def look() -> None:
        connection = store._shared.writer()._connection
        found.append(-1 if connection is None else connection.pragma("synchronous"))

    store.transact(op(), lambda tx: look())
    store.reader().head()
    problems = [] if found == [FULL] else [f"a synced commit under PRAGMA synchronous = {found}"]
    for helper in helpers:
        helper.say("?")
    return problems + [said for helper in helpers if (said := helper.hear()) != "free"]


def main(folder: Path, interrupts: int) -> None:
    """Be interrupted so many times, and print what was left behind at any time, and the size of the log."""
    paths = [folder / "log.db", folder / "other.db"]
    for path in paths:
        open_sqlite(path, create=True).close()
    store = open_sqlite(paths[0], create=False, wait_s=10.0)
    begin(store, "r")
    began_s = time.monotonic()
    _act(store, paths[1], 0)
    usual_s = time.monotonic() - began_s
    storm, struck, key = _Storm(7), 0, 0
    with Child("free", paths[0]) as first, Child("free", paths[1]) as second, ThreadPoolExecutor(1) as other_thread:
        for helper in (first, second):
            assert helper.hear() == "ready"
        while struck < interrupts:
            key += 1
            struck += storm.strike(lambda key=key: _act(store, paths[1], key), usual_s)
            for problem in other_thread.submit(_left_behind, store, [first, second]).result():
                print(f"interrupt {struck}: {problem}")
    assert check_log(store) > 2
    store.close()
    print("intact")


if __name__ == "__main__":
    sys.unraisablehook = lambda _: None  # an interrupt inside a destructor is lost; Python says so on stderr
    main(Path(sys.argv[1]), int(sys.argv[2]))
