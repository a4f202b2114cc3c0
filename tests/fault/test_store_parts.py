"""The parts of a store beside other processes, threads and failures: what each refuses, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Tampered, Unavailable
from agent_run_ledger.store import SqliteStore, open_sqlite, sqlite_backup, sqlite_shared
from agent_run_ledger.store.fair_lock import FairLock
from agent_run_ledger.store.sqlite_shared import registry
from tests.contract.store_kit import (
    Backend,
    begin,
    begin_in,
    check_file,
    check_log,
    do_step,
    op,
    sqlite_backend,
    start_step,
)
from tests.fault.store_child import Child
from tests.fault.store_disk import Disk, layered
from tests.fault.test_store_forks import in_child

pytestmark = [pytest.mark.fault, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def _nothing(store: SqliteStore) -> None:
    store._shared.writer().transact(op(), lambda tx: None)


def _scrub(store: SqliteStore) -> None:
    store._shared.writer().scrub()


def _compact(store: SqliteStore) -> None:
    store._shared.writer().compact()


def _raises(use: Callable[[], object], kind: type[LedgerError], code: str) -> None:
    with pytest.raises(kind) as caught:
        use()
    assert caught.value.code == code


@contextmanager
def _held(lock: FairLock) -> Iterator[None]:
    """Another thread has the lock."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        assert lock.acquire(0)
        inside.set()
        go_on.wait()
        lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        go_on.set()
        thread.join()


# Processes


def test_everything_that_writes_passes_the_turnstile_or_says_that_it_is_held(backend: Backend) -> None:
    store = backend.open(wait_s=0.05)
    begin(store)
    path = store.location
    files = [Path(path), Path(f"{path}-wal")]
    before = [file.read_bytes() for file in files]
    with Child("turnstile", path) as child:
        assert child.hear() == "inside"
        for use in (_nothing, _scrub, _compact):
            _raises(lambda use=use: use(store), Unavailable, "store_busy")
        assert [file.read_bytes() for file in files] == before
        store.close()
        _raises(lambda: open_sqlite(path, create=False, wait_s=0.05), Unavailable, "store_busy")
    assert check_file(path) == 2


def test_nothing_is_held_between_two_uses(backend: Backend) -> None:
    store = backend.open()
    with Child("free", store.location) as child:
        assert child.hear() == "ready"
        for use in (begin, _nothing, _scrub, _compact, lambda store: store.reader().head()):
            use(store)
            child.say("?")
            assert child.hear() == "free"
    assert check_log(store) == 2


def test_who_gave_up_waiting_is_no_longer_seen_waiting(backend: Backend) -> None:
    store = backend.open(wait_s=0.05)
    with Child("turnstile", store.location) as holder:
        assert holder.hear() == "inside"
        _raises(lambda: _nothing(store), Unavailable, "store_busy")
    with Child("free", store.location) as child:
        assert child.hear() == "ready"
        child.say("?")
        assert child.hear() == "free"
    assert check_log(store) == 1


def test_after_a_scrub_other_programs_are_waited_for_as_before(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    store = backend.open(wait_s=0.05)
    begin(store)
    assert store.scrub()
    with Child("write", store.location) as child:
        assert child.hear() == "writing"
        monkeypatch.setattr("agent_run_ledger.store.sqlite.time.sleep", naps.append)
        _raises(lambda: _nothing(store), Unavailable, "store_busy")
    assert naps
    assert check_log(store) == 2


# Forks


def test_no_part_of_a_store_works_in_a_child(backend: Backend) -> None:
    """A handle refuses first; a part is what a thread of the parent may have had in its hands."""
    store = backend.open()
    begin(store)
    sidecar = store._shared.sidecar()
    for use in (_nothing, _scrub, _compact):
        assert in_child(lambda use=use: use(store)) == "raised Forked"
    assert in_child(lambda: sidecar.lock_run("r")) == "raised Forked"
    assert in_child(lambda: sidecar.is_run_live("r")) == "raised Forked"
    assert check_log(store) == 2


def test_a_child_keeps_no_descriptor_of_its_parents_lock_file(backend: Backend) -> None:
    store = backend.open()

    def of_the_lock_file() -> int:
        open_files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return open_files.count(f"{store.location}-lock")

    assert of_the_lock_file() == 1
    assert in_child(of_the_lock_file) == "returned 0"
    assert check_log(store) == 1


def test_a_child_releases_no_run_of_its_parent(backend: Backend) -> None:
    """It does not even ask for the mutex of the lock file, which a thread may have had when the process forked."""
    store = backend.open()
    lock, sidecar = store.lock_run("r"), store._shared.sidecar()
    assert lock is not None
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with sidecar._mutex:
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        assert in_child(lambda: (signal.alarm(2), lock.release())[1]) == "returned None"
    finally:
        go_on.set()
        thread.join()
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "none"
    lock.release()
    assert check_log(store) == 1


def test_a_child_of_a_fork_that_knew_not_every_file_opens_none(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread stood in the list of files: the one that it was about to write there could have been any."""
    store = backend.open()
    monkeypatch.setattr(sqlite_shared, "FORK_WAIT_S", 0.01)
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with registry._mutex:
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        said = in_child(lambda: open_sqlite(tmp_path / "another.db", create=True).close())
    finally:
        go_on.set()
        thread.join()
    assert said == "raised Forked"
    assert not (tmp_path / "another.db").exists()
    assert check_log(store) == 1


def test_a_child_does_not_open_what_a_thread_of_its_parent_was_opening(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows yet what that thread has opened, so nobody could close it before the fork."""
    store = backend.open()
    identity, path = store._shared.place.identity, store.location
    store.close()
    monkeypatch.setattr(sqlite_shared, "FORK_WAIT_S", 0.01)
    with _held(registry._doors[identity]):
        assert in_child(lambda: open_sqlite(path, create=False)) == "raised Forked"
    assert check_file(path) == 1


def test_a_child_writes_nothing_in_its_parents_transaction(backend: Backend) -> None:
    store = backend.open()
    assert store.transact(op(), lambda tx: in_child(lambda: begin_in(tx, "child's"))) == "raised Forked"
    begin(store)
    assert check_log(store) == 2


def test_a_fork_writes_no_checkpoint(backend: Backend) -> None:
    store = backend.open()
    begin(store)
    wal = Path(f"{store.location}-wal")
    before = (Path(store.location).read_bytes(), wal.read_bytes())
    assert in_child(lambda: None) == "returned None"
    assert (Path(store.location).read_bytes(), wal.read_bytes()) == before
    assert check_log(store) == 2


# Threads


def test_no_part_of_a_store_works_after_it_was_closed(backend: Backend) -> None:
    """Who waited for the lock of a part while another thread closed the store comes in afterwards."""
    store = backend.open()
    begin(store)
    store._shared.writer().close()
    for use in (_nothing, _scrub, _compact):
        _raises(lambda use=use: use(store), Misuse, "store_closed")
    store.close()
    assert check_file(store.location) == 2


def test_each_part_waits_for_its_lock_no_longer_than_it_was_told(backend: Backend, tmp_path: Path) -> None:
    store = backend.open(wait_s=0.02)
    begin(store)
    shared = store._shared
    with _held(shared.writer().lock):
        for use in (_nothing, _scrub, _compact):
            _raises(lambda use=use: use(store), Unavailable, "store_busy")
    with _held(shared.reader.lock):
        _raises(store.reader().head, Unavailable, "store_busy")
    with _held(shared.backup._turn):
        _raises(lambda: store.backup(tmp_path / "copy.db"), Unavailable, "store_busy")
    assert not (tmp_path / "copy.db").exists()
    assert check_log(store) == 2


def test_a_store_that_is_being_opened_is_not_closed_meanwhile(backend: Backend) -> None:
    store = backend.open(wait_s=0.02)
    with _held(registry._doors[store._shared.place.identity]):
        _raises(store.close, Unavailable, "store_busy")
    assert check_log(store) == 1
    store.close()
    assert check_file(store.location) == 1


# Files


def test_a_file_that_was_replaced_is_not_scrubbed(backend: Backend, tmp_path: Path) -> None:
    store = backend.open()
    begin(store)
    path, away = Path(store.location), tmp_path / "away.db"
    path.rename(away)
    path.write_bytes(away.read_bytes())
    before = away.read_bytes()
    _raises(store.scrub, Tampered, "store_replaced")
    assert away.read_bytes() == before
    away.replace(path)
    assert check_log(store) == 2


def test_a_file_is_written_anew_with_syncs(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    store.transact(op(), lambda tx: start_step(tx, row, 1), sync=False)
    assert store.compact()
    connection = store._shared.writer()._connection
    assert connection is not None
    assert connection.pragma("synchronous") == 2
    assert check_log(store) == 3


def test_a_copy_that_is_deleted_while_it_is_written_is_unavailable(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.open()
    monkeypatch.setattr(sqlite_backup, "create_file", lambda _partial: None)
    with pytest.raises(Unavailable, match="was deleted while it was written") as caught:
        store.backup(tmp_path / "copy.db")
    assert caught.value.code == "cannot_open"
    assert check_log(store) == 1


# Failures of SQLite


class _Wrapped:
    """A connection or a cursor of which one statement fails, before it acts or after."""

    def __init__(self, real: Any, begins: str, error: BaseException, *, after: bool = False) -> None:
        self._real, self._begins, self._error, self._after = real, begins, error, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, sql: str, *arguments: Any, **settings: Any) -> Any:
        fails = sql.startswith(self._begins)
        if fails and not self._after:
            raise self._error
        done = self._real.execute(sql, *arguments, **settings)
        if fails:
            raise self._error
        return done


def test_a_scrub_beside_another_checkpoint_is_held_up(backend: Backend) -> None:
    store = backend.open()
    begin(store)
    writer = store._shared.writer()
    cursor = writer._cursor
    writer._cursor = _Wrapped(cursor, "PRAGMA wal_checkpoint", apsw.exception_for(apsw.SQLITE_BUSY))  # type: ignore[assignment]
    assert not store.scrub()
    writer._cursor = cursor
    assert store.scrub()
    assert check_log(store) == 2


def test_a_connection_whose_rollback_fails_is_given_up(backend: Backend) -> None:
    """What it still holds is no longer known: the next transaction begins with a new one."""
    store = backend.open()
    row = begin(store)
    writer = store._shared.writer()
    writer._connection = _Wrapped(writer._connection, "ROLLBACK", apsw.exception_for(apsw.SQLITE_IOERR))  # type: ignore[assignment]

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact(op(), fail)
    assert writer._connection is None
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_an_interrupted_lookup_of_a_commit_keeps_no_lock(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.open()
    row = begin(store)
    writer = store._shared.writer()
    lost = apsw.exception_for(apsw.SQLITE_IOERR)
    writer._cursor = _Wrapped(writer._cursor, "COMMIT", lost, after=True)  # type: ignore[assignment]
    real = writer._open_cursor

    def interrupted() -> object:
        cursor = real()
        asked = "SELECT leaf_index FROM events WHERE op_id"
        return cursor if isinstance(cursor, _Wrapped) else _Wrapped(cursor, asked, KeyboardInterrupt())

    monkeypatch.setattr(writer, "_open_cursor", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do_step(store, row, 1)
    assert writer._connection is None
    monkeypatch.undo()
    with Child("free", store.location) as child:
        assert child.hear() == "ready"
        child.say("?")
        assert child.hear() == "free"
    do_step(store, row, 2)
    assert check_log(store) == 4


@pytest.fixture
def disk() -> Iterator[Disk]:
    with layered() as made:
        yield made


def test_a_commit_that_landed_on_a_full_disk_is_synced_before_it_is_believed(disk: Disk, tmp_path: Path) -> None:
    with sqlite_backend(tmp_path, "full") as backend:
        store = backend.open()
        row = begin(store)
        store.reader().head()  # so that no close writes a checkpoint, with its syncs
        writer = store._shared.writer()
        full = apsw.exception_for(apsw.SQLITE_FULL)
        writer._cursor = _Wrapped(writer._cursor, "COMMIT", full, after=True)  # type: ignore[assignment]
        before = disk.counts["wal", "sync"]
        do_step(store, row, 1)
        assert disk.counts["wal", "sync"] - before == 2
        assert check_log(store) == 3
