"""The opener, asked directly: what it makes, what it looks at twice, what it believes, how long it waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.store import open_sqlite, sqlite, stored_durability
from agent_run_ledger.store.sqlite import Durability, Place, busy_handler, create_file, identify
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION
from tests.contract.store_kit import Backend, begin, check_file, check_log, sqlite_backend

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


@pytest.fixture
def closed(backend: Backend, tmp_path: Path) -> Path:
    """A store with one run that nobody has open."""
    store = backend.open()
    begin(store)
    store.close()
    return tmp_path / "log.db"


def _place(path: Path, wait_s: float = 1.0) -> Place:
    identity = identify(str(path))
    assert identity is not None
    return Place(
        location=str(path), identity=identity, durability=Durability.FULL, wait_s=wait_s, entropy=SystemEntropy()
    )


# Making a file


def test_a_file_that_is_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"kept")
    path.chmod(0o640)
    assert not create_file(str(path))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"kept", 0o640)
    path.unlink()
    assert create_file(str(path))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o600)


@pytest.mark.parametrize("side", ["-wal", "-journal"])
def test_only_a_journal_with_bytes_in_it_is_taken_for_commits(backend: Backend, tmp_path: Path, side: str) -> None:
    left = tmp_path / f"log.db{side}"
    left.write_bytes(b"x")
    with pytest.raises(Refused) as caught:
        backend.open()
    assert caught.value.code == "commits_left"
    assert str(left) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [left.name]
    left.write_bytes(b"")
    assert check_log(backend.open()) == 1


# What is there


def test_who_reads_an_empty_file_is_told_that_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    for look in (lambda: open_sqlite(path, create=False, readonly=True), lambda: stored_durability(path)):
        with pytest.raises(Refused, match="it is empty") as caught:
            look()
        assert caught.value.code == "foreign_file"


def test_only_a_store_has_a_durability(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    subprocess.run([sys.executable, EDITOR, path, "CREATE TABLE t (a)"], check=True)
    with pytest.raises(Refused, match="another program"):
        stored_durability(path)


def test_a_file_that_took_the_name_meanwhile_is_not_read(backend: Backend, closed: Path, tmp_path: Path) -> None:
    """It is as good a store as the other, so nothing but its identity tells."""
    place = _place(closed)
    backend.open("other").close()
    closed.rename(tmp_path / "away.db")
    (tmp_path / "other.db").rename(closed)
    for connect in (sqlite.connect_reader, lambda place: sqlite.connect_writer(place, create=False)):
        with pytest.raises(Tampered) as caught:
            connect(place)
        assert caught.value.code == "store_replaced"
    assert check_file(tmp_path / "away.db") == 2


def test_a_store_is_read_without_locks_only_where_nobody_can_write(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks a reader sees no -wal file, and pages that change under it."""
    place, may_write = _place(closed), True

    def refuse(*_: object) -> Connection:
        raise apsw.exception_for(apsw.SQLITE_CANTOPEN)

    def access(_path: str, mode: int) -> bool:
        return may_write or mode == os.R_OK

    monkeypatch.setattr(sqlite, "_connected", refuse)
    monkeypatch.setattr(sqlite.os, "access", access)
    _refused(place, "cannot_open")
    may_write = False
    wal = Path(f"{closed}-wal")
    wal.write_bytes(b"")
    _refused(place, "read_only")
    wal.unlink()
    connection = sqlite.connect_reader(place)
    assert connection.pragma("page_count") > 0
    connection.close()


def _refused(place: Place, code: str) -> None:
    with pytest.raises(Unavailable) as caught:
        sqlite.connect_reader(place)
    assert caught.value.code == code


def test_a_connection_that_cannot_write_is_no_writer(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite opens a write-protected file for reading when it was asked for writing, and says nothing."""
    real = sqlite.connect
    monkeypatch.setattr(sqlite, "connect", lambda name, _flags: real(name, apsw.SQLITE_OPEN_READONLY))
    with pytest.raises(Unavailable, match="write-protected") as caught:
        sqlite.connect_writer(_place(closed), create=False)
    assert caught.value.code == "read_only"


# Pragmas


def test_the_pragmas_of_a_reader_are_set(backend: Backend) -> None:
    begin(store := backend.open())
    for reader in (store._shared.reader, store._shared.guarded):
        reader.head()
        connection = reader._connection
        assert isinstance(connection, apsw.Connection)
        connection.authorizer = None
        wanted = {"query_only": 1, "trusted_schema": 0, "cache_size": -sqlite.READER_CACHE_KIB}
        assert {name: connection.pragma(name) for name in wanted} == wanted
        assert connection.readonly("main")


def test_a_file_that_does_not_take_the_pragmas_is_refused(closed: Path) -> None:
    """What has no file can have no WAL either: PRAGMA journal_mode answers with what it stayed at."""
    with pytest.raises(Unavailable, match="journal_mode stayed memory") as caught:
        sqlite._set_pragmas(apsw.Connection(":memory:"), _place(closed))
    assert caught.value.code == "cannot_open"


# The second to come


def test_the_second_of_two_creators_finds_the_store_of_the_first(closed: Path) -> None:
    connection = sqlite.connect_writer(_place(closed), create=True)

    def fill(_: Connection) -> None:
        raise AssertionError("the store was there already")

    sqlite._create_schema(connection, fill, 5)
    assert not connection.in_transaction
    connection.close()
    assert check_file(closed) == 2


def test_the_second_of_two_upgraders_changes_nothing(closed: Path) -> None:
    connection = sqlite.connect_writer(_place(closed), create=False)
    before = connection.execute("SELECT * FROM migrations").fetchall()
    assert sqlite._upgrade(connection, _place(closed), 5) == SCHEMA_VERSION
    assert connection.execute("SELECT * FROM migrations").fetchall() == before
    connection.close()
    assert check_file(closed) == 2


# Waiting


def test_a_wait_for_another_program_is_bounded_and_counted_anew_each_time(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, naps = 1_000.0, list[float]()
    monkeypatch.setattr(sqlite.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(sqlite.time, "sleep", naps.append)
    wait = busy_handler(_place(closed, wait_s=3.0))
    for began_s in (1_000.0, 5_000.0):
        now_s = began_s
        assert wait(0)
        now_s = began_s + 2.9
        assert wait(1)
        now_s = began_s + 3.0
        assert not wait(2)
    assert len(naps) == 4
    assert all(0.0002 <= nap_s <= 0.002 for nap_s in naps)


# Where opening ends


def test_a_store_that_is_refused_stays_not_open(backend: Backend, tmp_path: Path) -> None:
    """A handle that nobody got could not be closed by anybody: its durability would stay the file's."""
    backend.open().close()
    with pytest.raises(Refused):
        backend.open(authority=True)
    with sqlite_backend(tmp_path, "extra") as other:
        assert check_log(other.open(create=False)) == 1


def test_who_only_looks_need_not_know_the_durability(backend: Backend, tmp_path: Path) -> None:
    begin(backend.open())
    looking = open_sqlite(tmp_path / "log.db", create=False, readonly=True, durability="extra")
    assert check_log(looking) == 2
    looking.close()


def test_a_file_that_is_deleted_while_it_is_opened_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_run_ledger.store.sqlite_shared.identify", lambda _location: None)
    with pytest.raises(Unavailable, match="deleted while it was opened") as caught:
        open_sqlite(tmp_path / "log.db", create=True)
    assert caught.value.code == "cannot_open"


def test_a_store_without_a_line_of_meta_is_tampered(closed: Path) -> None:
    subprocess.run([sys.executable, EDITOR, closed, "DELETE FROM meta WHERE key = 'is_copy'"], check=True)
    with pytest.raises(Tampered, match="is_copy") as caught:
        open_sqlite(closed, create=False)
    assert caught.value.code == "corrupt"


def test_an_opening_that_failed_leaves_no_descriptor_behind(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: object, _log_id: bytes) -> None:
        raise OSError("the lock file cannot be written")

    before = len(os.listdir("/proc/self/fd"))
    kept = list[LedgerError]()
    monkeypatch.setattr("agent_run_ledger.store.sidecar.Sidecar.note_log_id", fail)
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            open_sqlite(closed, create=False)
        kept.append(caught.value)  # with its traceback, so that nothing is closed by being forgotten
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    assert check_file(closed) == 2


def test_a_store_that_is_opened_while_it_is_being_opened_is_misuse(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second descriptor of the lock file would take every lock away when it is closed."""

    def open_inside(*_: object) -> None:
        open_sqlite(closed, create=False)

    monkeypatch.setattr("agent_run_ledger.store.sidecar.Sidecar.note_log_id", open_inside)
    with pytest.raises(Misuse) as caught:
        open_sqlite(closed, create=False)
    assert caught.value.code == "nested_transaction"
    monkeypatch.undo()
    assert check_file(closed) == 2
