"""Opening: who shares what, authority, file systems, platforms, read-only stores and people's own SQL."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.store import SqliteStore, open_sqlite, sqlite_stats, sqlite_store, sqlite_version
from agent_run_ledger.store.sqlite import APPLICATION_ID, CHECKPOINT_PAGES, JOURNAL_BYTES
from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION
from agent_run_ledger.store.statements import statements
from tests.contract.store_kit import Backend, begin, check_log, do_step, op, sqlite_backend, start_step


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def _writer(store: SqliteStore) -> apsw.Connection:
    connection = store._shared.writer()._connection
    assert isinstance(connection, apsw.Connection)
    return connection


# Sharing


def test_every_name_of_a_file_is_one_store(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.open()
    (tmp_path / "link.db").symlink_to(tmp_path / "log.db")
    monkeypatch.chdir(tmp_path)
    for path in ("log.db", "./log.db", tmp_path / "link.db", str(tmp_path / "log.db")):
        other = open_sqlite(path, create=False)
        assert other._shared is store._shared
        assert other.location == str(tmp_path / "log.db")
        other.close()
    assert check_log(store) == 1


def test_the_last_handle_closes_and_folds_the_wal_into_the_file(backend: Backend, tmp_path: Path) -> None:
    first, second = backend.open(), backend.open(create=False, readonly=True)
    begin(first)
    second.reader().head()
    first.close()
    assert (tmp_path / "log.db-wal").exists()
    second.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db", "log.db-lock"]


def test_a_part_that_fails_to_close_keeps_no_other_open(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock file is the last: while it is open, runs of this process are live everywhere."""
    store = backend.open()
    begin(store)
    lock = store.lock_run("r")
    assert lock is not None
    shared = store._shared
    for name in ("reader", "guarded"):

        def fail(name: str = name) -> None:
            raise OSError(name)

        monkeypatch.setattr(getattr(shared, name), "close", fail)
    with pytest.raises(OSError, match="reader"):
        store.close()
    store.close()
    assert shared.writer()._connection is None
    again = backend.open(create=False)
    assert again._shared is not shared
    assert again.lock_run("r") is not None
    assert check_log(again) == 2


def test_a_store_cannot_be_closed_inside_its_own_transaction(backend: Backend) -> None:
    store = backend.open()

    def close(tx: object) -> None:
        store.close()

    with pytest.raises(Misuse) as caught:
        store.transact(bytes(16), close)
    assert caught.value.code == "nested_transaction"
    begin(store)
    assert check_log(store) == 2


# Pragmas


@pytest.mark.parametrize(("durability", "journal", "level"), [("full", "wal", 2), ("extra", "delete", 3)])
def test_the_pragmas_are_set(tmp_path: Path, durability: str, journal: str, level: int) -> None:
    with sqlite_backend(tmp_path, durability) as made:
        connection = _writer(made.open())
        wanted = {
            "journal_mode": journal,
            "synchronous": level,
            "application_id": APPLICATION_ID,
            "user_version": SCHEMA_VERSION,
            "secure_delete": 1,
            "foreign_keys": 1,
            "trusted_schema": 0,
            "cache_size": -16_000,
            "journal_size_limit": JOURNAL_BYTES,
            "page_size": 4_096,
            "encoding": "UTF-8",
        }
        assert {name: connection.pragma(name) for name in wanted} == wanted
        assert connection.pragma("wal_autocheckpoint") == CHECKPOINT_PAGES
        assert connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


@pytest.mark.parametrize(("durability", "journal", "level"), [("full", "wal", 2), ("extra", "delete", 3)])
def test_a_store_says_what_its_writing_connection_has_now(
    tmp_path: Path, durability: str, journal: str, level: int
) -> None:
    with sqlite_backend(tmp_path, durability) as made:
        store = made.open()
        assert store.journal() == (journal, level)
        _writer(store).pragma("synchronous", 1)
        assert store.journal() == (journal, 1)


def test_the_application_id_spells_arl1() -> None:
    assert APPLICATION_ID.to_bytes(4, "big") == b"arl1"


def test_full_durability_comes_back_after_an_unsynced_transaction(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    store.transact(op(), lambda tx: start_step(tx, row, 1), sync=False)
    seen: list[int] = []
    store.transact(op(), lambda tx: seen.append(_writer(store).pragma("synchronous")))
    assert seen == [2]


def test_a_store_goes_from_one_durability_to_the_other_when_nobody_has_it_open(tmp_path: Path) -> None:
    for durability in ("full", "extra", "full"):
        with sqlite_backend(tmp_path, durability) as made:
            store = made.open()
            begin(store, f"{durability} {store.reader().head().size}")
            check_log(store)


@pytest.mark.parametrize("settings", [{"durability": "none"}, {"readonly": True}])
def test_settings_that_make_no_sense_are_misuse(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(Misuse) as caught:
        open_sqlite(tmp_path / "log.db", create=True, **settings)  # type: ignore[arg-type]
    assert caught.value.code == "bad_settings"
    assert list(tmp_path.iterdir()) == []


# Authority


def test_a_store_has_no_authority_until_it_is_granted_with_a_leaf(backend: Backend) -> None:
    store = backend.open()
    other = backend.open()
    assert not store.authority
    assert store.grant_authority()
    assert store.authority
    assert other.authority
    assert not other.grant_authority()
    assert check_log(store) == 2
    (event,) = store.reader().events(first=1, stop=2)
    assert b'"new":"authority","old":"runs_only","type":"store"' in event.envelope
    store.close()
    other.close()
    assert backend.open(create=False).authority


def test_who_asks_for_authority_gets_it_in_a_new_store_only(backend: Backend) -> None:
    new = backend.open("new", authority=True)
    assert new.authority
    backend.open("old").close()
    with pytest.raises(Refused) as caught:
        backend.open("old", authority=True)
    assert caught.value.code == "no_authority"
    assert not backend.open("old").authority
    new.close()
    assert backend.open("new", create=False, authority=True).authority


def test_a_new_store_is_no_copy(backend: Backend) -> None:
    store = backend.open()
    assert not store.is_copy
    assert store.created_at_ms > 1_700_000_000_000


# File systems and platforms


def _on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "filesystem", lambda path: kind)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "virtiofs", "fuse.sshfs"])
def test_effects_are_refused_on_a_network_file_system(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _on(kind, monkeypatch)
    with pytest.raises(Refused, match=kind) as caught:
        backend.open(authority=True)
    assert caught.value.code == "network_filesystem"
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(UserWarning, match=kind):
        store = backend.open()
    with pytest.raises(Refused):
        store.grant_authority()
    assert not store.authority


def test_runs_are_warned_once_per_store(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    _on("nfs", monkeypatch)
    with pytest.warns(UserWarning, match="nfs") as caught:
        backend.open()
    assert caught[0].filename == str(Path(__file__).parent / "store_kit.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.open()


def test_windows_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(Misuse) as caught:
        open_sqlite(tmp_path / "log.db", create=True)
    assert caught.value.code == "unsupported_platform"


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "sqlite_version", lambda: "3.51.2")
    with pytest.raises(Misuse) as caught:
        open_sqlite(tmp_path / "log.db", create=True)
    assert caught.value.code == "sqlite_too_old"
    assert tuple(map(int, sqlite_version().split("."))) >= (3, 51, 3)


# Read-only


@pytest.fixture
def readonly(backend: Backend) -> SqliteStore:
    store = backend.open()
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    return backend.open(create=False, readonly=True)


def test_a_read_only_store_reads_and_refuses_to_write(readonly: SqliteStore) -> None:
    assert check_log(readonly) == 7
    for write in (begin, SqliteStore.grant_authority):
        with pytest.raises(Misuse) as caught:
            write(readonly)
        assert caught.value.code == "readonly_store"


def test_a_read_only_store_alone_writes_no_rows(backend: Backend, tmp_path: Path) -> None:
    backend.open().close()
    before = (tmp_path / "log.db").read_bytes()
    store = backend.open(create=False, readonly=True)
    assert check_log(store) == 1
    with pytest.raises(Misuse):
        begin(store)
    store.close()
    assert (tmp_path / "log.db").read_bytes() == before


def test_a_read_only_store_can_ask_whether_a_run_is_live(backend: Backend, readonly: SqliteStore) -> None:
    store = backend.open()
    lock = store.lock_run("r")
    assert lock is not None
    assert readonly.is_run_live("r")
    assert readonly.lock_run("r") is None
    lock.release()
    assert not readonly.is_run_live("r")
    mine = readonly.lock_run("r")
    assert mine is not None
    mine.release()


def test_people_can_ask_in_sql(readonly: SqliteStore) -> None:
    answer = readonly.query("SELECT name, occurrence AS n, NULL, 1.5, salt FROM records WHERE kind = 2 ORDER BY 1")
    assert answer.columns == ("name", "n", "NULL", "1.5", "salt")
    rows = list(answer)
    assert [row[:4] for row in rows] == [(f"step{key}", 0, None, 1.5) for key in range(5)]
    assert isinstance(rows[0][4], bytes)
    empty = readonly.query("SELECT run_id FROM runs WHERE 0")
    assert (empty.columns, list(empty)) == (("run_id",), [])
    assert list(readonly.query("WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 3000) "
                               "SELECT count(*), max(i) FROM n")) == [(3_000, 3_000)]  # fmt: skip
    assert (
        len(list(readonly.query("SELECT a.leaf_index FROM events a, events b, events c, events d, events e"))) == 7**5
    )


def test_an_answer_may_be_left_half_read(backend: Backend, readonly: SqliteStore) -> None:
    answer = iter(readonly.query("SELECT a.leaf_index FROM events a, events b, events c, events d"))
    next(answer)
    begin(backend.open(), "meanwhile")
    assert readonly.reader().find_run("meanwhile") is not None
    assert len(list(answer)) == 7**4 - 1, "one statement sees one state"
    assert list(readonly.query("SELECT count(*) FROM runs")) == [(2,)]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM events",
        "UPDATE runs SET state = 'completed'",
        "INSERT INTO meta VALUES ('a', 1)",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "DROP TABLE runs",
        "PRAGMA user_version = 7",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "ATTACH 'x.db' AS x",
        "BEGIN",
        "SAVEPOINT s",
        "VACUUM",
        "VACUUM INTO 'copy.db'",
        "ANALYZE",
        "REINDEX",
        "SELECT 1; DELETE FROM runs",
        "WITH x AS (SELECT 1) DELETE FROM runs",
        "EXPLAIN SELECT 1; DROP TABLE runs",
    ],
)
def test_everything_but_reading_is_refused(readonly: SqliteStore, tmp_path: Path, sql: str) -> None:
    files = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(Refused) as caught:
        list(readonly.query(sql))
    assert caught.value.code in ("not_a_read", "bad_sql")
    assert check_log(readonly) == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == files


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT nothing FROM runs", "SELECT ?", "SELECT load_extension('x')"])
def test_what_sqlite_does_not_understand_is_refused_in_its_words(readonly: SqliteStore, sql: str) -> None:
    with pytest.raises(Refused) as caught:
        list(readonly.query(sql))
    assert caught.value.code in ("bad_sql", "not_a_read")


def test_text_that_is_none_is_refused(readonly: SqliteStore) -> None:
    with pytest.raises(Refused, match="hex"):
        list(readonly.query("SELECT CAST(x'ff' AS TEXT)"))


def test_queries_need_a_read_only_store(backend: Backend) -> None:
    with pytest.raises(Misuse) as caught:
        backend.open().query("SELECT 1")
    assert caught.value.code == "not_readonly"


# Figures


def test_kinds_are_not_looked_up_where_that_would_be_long(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.open()
    begin(store, "one")
    do_step(store, begin(store, "two"), 1)
    monkeypatch.setattr(sqlite_stats, "MOST_LOOKED_UP", 1)
    assert store.stats().records_by_kind == {"result": 1, "other": 2}
    assert check_log(store) == 4


def test_figures_are_had_without_reading_records_or_leaves(backend: Backend) -> None:
    """What a statement does is in its plan: a scan of a table of that size would take minutes."""
    store = backend.open()
    begin(store)
    store.close()
    readonly = backend.open(create=False, readonly=True)
    q = statements("sqlite_queries.sql")
    names = ("count_indexed", "count_in_flight", "count_states", "count_kinds", "select_oldest_kept")
    plans = {name: [str(row[3]) for row in readonly.query(f"EXPLAIN QUERY PLAN {q[name]}")] for name in names}
    assert plans["count_indexed"][0].startswith("SCAN dbstat VIRTUAL TABLE")
    assert plans["count_in_flight"] == ["SCAN in_flight"]
    assert plans["count_states"][0] == "SCAN runs"
    assert plans["count_kinds"][0] == "SCAN records USING INDEX records_other"
    assert plans["select_oldest_kept"] == ["SCAN runs", "SEARCH records USING INTEGER PRIMARY KEY (rowid=?)"]


def test_sizes_add_up_to_the_file(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    for key in range(20):
        do_step(store, row, key, payload=bytes(5_000))
    sizes = {one.name: one for one in store.sizes()}
    pages = store.stats().pages
    assert sum(one.page_bytes for one in sizes.values()) == pages * 4_096
    assert next(iter(sizes)) == "records"
    assert sizes["records"].page_bytes > 20 * 5_000
    assert 0 < sizes["records"].unused_bytes < sizes["records"].page_bytes
    assert {"events", "sqlite_autoindex_events_1", "records_result", "runs"} <= sizes.keys()
    assert check_log(store) == 22


def test_the_figures_for_doctor(backend: Backend, tmp_path: Path) -> None:
    store = backend.open()
    row = begin(store)
    for key in range(3):
        do_step(store, row, key)
    stats = store.stats()
    assert (stats.runs, stats.records, stats.leaves, stats.tiles, stats.in_flight) == (1, 4, 5, 0, 0)
    assert (stats.journal_mode, stats.page_bytes, stats.schema_version) == ("wal", 4_096, SCHEMA_VERSION)
    assert stats.application_id == APPLICATION_ID
    assert stats.location == str(tmp_path / "log.db")
    assert stats.database_bytes == (tmp_path / "log.db").stat().st_size
    assert stats.wal_bytes == (tmp_path / "log.db-wal").stat().st_size > 0
    assert stats.sqlite_version == sqlite_version()
    assert stats.records_by_kind == {"result": 3, "start": 1}
    assert stats.runs_by_state == {"running": 1}
    assert stats.oldest_kept is None
    store.close()
    assert backend.open(create=False, readonly=True).stats().leaves == 5
