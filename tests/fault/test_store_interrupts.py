"""Signal handlers that raise: whatever they come between, no lock, no transaction and no wrong belief is left."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.errors import Forked
from agent_run_ledger.ports import Tx
from agent_run_ledger.store import SqliteStore
from tests.contract.store_kit import Backend, begin, check_log, do_step, op, quick_folder, sqlite_backend
from tests.fault.store_child import ROOT, Child

pytestmark = pytest.mark.fault

FULL_SYNC, NORMAL_SYNC = 2, 1


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def test_two_thousand_interrupts_leave_nothing_behind() -> None:
    """Where each comes is chance; what must hold afterwards is not: see store_storm."""
    with quick_folder() as folder:
        command = [sys.executable, "-m", "tests.fault.store_storm", str(folder), "2000"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("intact\n", 0), done.stderr


class _InterruptedAfter:
    """A cursor at which a signal arrives when a statement has acted and nobody has noted it."""

    def __init__(self, cursor: apsw.Cursor, ends_with: str) -> None:
        self._cursor, self._ends_with = cursor, ends_with
        self.connection = cursor.connection

    def execute(self, sql: str, *arguments: object, **settings: object) -> apsw.Cursor:
        done = self._cursor.execute(sql, *arguments, **settings)  # type: ignore[arg-type]
        if sql.endswith(self._ends_with):
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize(("sync", "ends_with"), [(False, "NORMAL"), (True, "FULL")])
def test_an_interrupt_at_the_switch_of_syncs_leaves_no_commit_unsynced(
    backend: Backend, sync: bool, ends_with: str
) -> None:
    store = backend.open()
    writer = store._shared.writer()
    store.transact(op(), lambda tx: None, sync=not sync)
    cursor = writer._cursor
    writer._cursor = _InterruptedAfter(cursor, ends_with)  # type: ignore[assignment,arg-type]
    with pytest.raises(KeyboardInterrupt):
        store.transact(op(), lambda tx: None, sync=sync)
    writer._cursor = cursor
    assert _level(store, sync=True) == FULL_SYNC
    assert _level(store, sync=False) == NORMAL_SYNC


def _level(store: SqliteStore, *, sync: bool) -> int:
    def read(_: Tx) -> int:
        connection = store._shared.writer()._connection
        assert connection is not None
        return int(connection.pragma("synchronous"))

    return store.transact(op(), read, sync=sync)


def test_an_interrupted_wait_of_a_rollback_journal_commit_leaves_no_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader is in the way: COMMIT waits in the busy handler, and stays in its transaction when it gives up."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with sqlite_backend(tmp_path, "extra") as made:
        store = made.open()
        row = begin(store)
        with Child("read", store.location) as child:
            assert child.hear() == "reading"
            monkeypatch.setattr("agent_run_ledger.store.sqlite.time.sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                do_step(store, row, 1)
            monkeypatch.undo()
            connection = store._shared.writer()._connection
            assert connection is not None
            assert not connection.in_transaction
            child.say()
            assert child.end()[0] == 0
        do_step(store, row, 2)
        assert check_log(store) == 3


def test_what_was_interrupted_cannot_be_written_to_later(backend: Backend) -> None:
    """A body that catches the interrupt may still have the transaction in its hands."""
    store = backend.open()
    row = begin(store)
    kept: list[Tx] = []

    def interrupted(tx: Tx) -> None:
        kept.append(tx)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.transact(op(), interrupted)
    with pytest.raises(Exception, match="transaction is over"):
        kept[0].clear_in_flight(row.row_id, 0)
    assert check_log(store) == 2


_FORK = """
    import os, sys, threading
    from agent_run_ledger.errors import Forked
    from agent_run_ledger.store import open_sqlite, sqlite_shared
    from agent_run_ledger.store.fair_lock import FairLock
    from tests.contract.store_kit import begin, check_log
    from tests.fault.test_store_forks import in_child

    path, nth = sys.argv[1], int(sys.argv[2])
    store = open_sqlite(path, create=True, wait_s=1.0)
    begin(store)
    store.reader().head()
    acquire, note, taken = FairLock.acquire, sqlite_shared._Forking, 0

    def interrupted_after(lock, timeout_s):
        global taken
        got, taken = acquire(lock, timeout_s), taken + 1
        if taken == nth:
            FairLock.acquire = acquire
            raise KeyboardInterrupt
        return got

    def interrupted_at_once():
        sqlite_shared._Forking = note
        raise KeyboardInterrupt

    if nth:
        FairLock.acquire = interrupted_after
    else:
        sqlite_shared._Forking = interrupted_at_once
    sys.unraisablehook = lambda lost: print("lost", lost.exc_type.__name__)

    def use_anew():
        own = open_sqlite(path, create=False)
        begin(own, "child")
        own.close()

    print(in_child(use_anew))
    assert FairLock.acquire is acquire and sqlite_shared._Forking is note
    thread = threading.Thread(target=lambda: begin(store, "parent"))
    thread.start()
    thread.join()
    store.reader().head()
    open_sqlite(path + "2", create=True).close()
    print(in_child(use_anew), check_log(store))
"""


@pytest.mark.parametrize("nth", range(5))
def test_a_fork_that_was_interrupted_on_its_way_wedges_nobody(tmp_path: Path, nth: int) -> None:
    """The child of one that could not prepare everything must not use the file; the parent goes on, and forks."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_FORK), tmp_path / "log.db", str(nth)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lost, first, then, *more = done.stdout.splitlines()
    assert lost == "lost KeyboardInterrupt"
    assert first == f"raised {Forked.__name__}"
    assert more == []
    assert then == "returned None 4"
