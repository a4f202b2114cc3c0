"""What opening says of each kind of file that is not an intact store, and what it leaves behind."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.store import SqliteStore, open_sqlite
from agent_run_ledger.store.sqlite import remove_if_unfilled
from agent_run_ledger.store.sqlite_migrations import SCHEMA_VERSION
from tests.contract.store_kit import begin, check_log, do_step, op, start_step

pytestmark = pytest.mark.fault

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a few hundred leaves, closed."""
    path = tmp_path_factory.mktemp("intact") / "log.db"
    store = open_sqlite(path, create=True)
    row = begin(store)
    for key in range(300):
        do_step(store, row, key, payload=bytes([key % 251]) * 700)
    store.transact(op(), lambda tx: start_step(tx, row, 999))
    store.close()
    return path


@pytest.fixture
def copy(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(intact, tmp_path / "log.db"))


def _refused(path: Path, error: type[LedgerError], code: str, **settings: object) -> LedgerError:
    with pytest.raises(error) as caught:
        open_sqlite(path, create=False, **settings).close()  # type: ignore[arg-type]
    assert caught.value.code == code
    assert str(path) in str(caught.value)
    return caught.value


def _edit(path: Path, sql: str) -> None:
    """Change a closed file as another program would: in a process of its own, our locks must not be involved."""
    subprocess.run([sys.executable, EDITOR, path, sql], check=True)


# Missing, foreign, newer


@pytest.mark.parametrize("readonly", [False, True])
def test_a_missing_store_is_never_created_by_opening(tmp_path: Path, readonly: bool) -> None:
    error = _refused(tmp_path / "none.db", Refused, "no_store", readonly=readonly)
    assert "arl init" in error.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("readonly", [False, True])
def test_an_empty_file_is_no_store(tmp_path: Path, readonly: bool) -> None:
    (tmp_path / "empty.db").touch()
    _refused(tmp_path / "empty.db", Refused, "foreign_file", readonly=readonly)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]


def test_an_empty_file_becomes_a_store_when_one_is_to_be_created(tmp_path: Path) -> None:
    """It is what a process leaves that was killed while it created one."""
    (tmp_path / "empty.db").touch()
    store = open_sqlite(tmp_path / "empty.db", create=True)
    assert check_log(store) == 1
    store.close()


@pytest.mark.parametrize("create", [False, True])
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "other.db"
    _edit(path, "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    before = path.read_bytes()
    with pytest.raises(Refused) as caught:
        open_sqlite(path, create=create)
    assert caught.value.code == "foreign_file"
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["other.db"]


def test_another_application_id_is_foreign(copy: Path) -> None:
    _edit(copy, "PRAGMA application_id = 1")
    _refused(copy, Refused, "foreign_file")


@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_schema_is_refused(copy: Path, readonly: bool) -> None:
    _edit(copy, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    assert f"version {SCHEMA_VERSION + 1}" in str(_refused(copy, Refused, "schema_newer", readonly=readonly))


def test_a_schema_version_that_never_was_is_tampering(copy: Path) -> None:
    _edit(copy, "PRAGMA user_version = 0")
    _refused(copy, Tampered, "corrupt")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("DROP TRIGGER events_no_update", "events_no_update"),
        ("DROP INDEX records_result", "records_result"),
        ("CREATE TRIGGER spy AFTER INSERT ON records BEGIN DELETE FROM runs; END", "spy"),
        ("ALTER TABLE runs ADD COLUMN more", "runs"),
        ("DROP TABLE tiles", "tiles"),
    ],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_changed_tables_and_triggers_are_tampering(copy: Path, change: str, name: str, readonly: bool) -> None:
    _edit(copy, change)
    assert name in str(_refused(copy, Tampered, "schema_changed", readonly=readonly))


@pytest.mark.parametrize("kind", ["text", "folder", "link"])
def test_a_store_that_cannot_have_its_lock_file_is_not_begun(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "log.db-lock"
    {"text": lambda: lock.write_text("mine"), "folder": lock.mkdir, "link": lambda: lock.symlink_to("mine")}[kind]()
    with pytest.raises((Refused, Unavailable), match=r"log\.db-lock"):
        open_sqlite(tmp_path / "log.db", create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["log.db-lock"]
    assert kind != "text" or lock.read_text() == "mine"
    lock.rmdir() if kind == "folder" else lock.unlink()
    store = open_sqlite(tmp_path / "log.db", create=True)
    assert check_log(store) == 1
    store.close()


def test_an_empty_file_of_somebody_else_stays_where_its_lock_file_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "log.db").touch()
    (tmp_path / "log.db-lock").write_text("mine")
    with pytest.raises(Refused):
        open_sqlite(tmp_path / "log.db", create=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db", "log.db-lock"]


def test_only_the_empty_file_that_was_made_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.touch()
    identity = (path.stat().st_dev, path.stat().st_ino)
    remove_if_unfilled(str(path), (identity[0], identity[1] + 1))
    assert path.exists()
    path.write_bytes(b"x")
    remove_if_unfilled(str(path), identity)
    assert path.exists()
    os.truncate(path, 0)
    remove_if_unfilled(str(path), identity)
    assert not path.exists()
    remove_if_unfilled(str(path), identity)


# Not a file, not accessible


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    _refused(tmp_path, Refused, "foreign_file")
    with pytest.raises(Refused):
        open_sqlite(tmp_path, create=True)


def test_a_fifo_is_no_store_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    _refused(tmp_path / "fifo", Refused, "foreign_file")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="directory") as caught:
        open_sqlite(tmp_path / "no" / "log.db", create=True)
    assert caught.value.code == "cannot_open"


def test_a_file_in_the_place_of_a_directory_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable) as caught:
        open_sqlite(tmp_path / "file" / "log.db", create=True)
    assert caught.value.code == "cannot_open"


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b", "\udcff.db"])
def test_what_names_no_file_is_misuse(path: str) -> None:
    with pytest.raises(Misuse) as caught:
        open_sqlite(path, create=True)
    assert caught.value.code == "bad_path"


@pytest.fixture
def read_only(intact: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with an intact store on a file system that is mounted read-only: that stops root too."""
    folder = tmp_path / "ro"
    folder.mkdir()
    shutil.copyfile(intact, folder / "log.db")
    bound = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if bound.returncode != 0:
        pytest.skip("no permission to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_read_only_file_system_refuses_writing_and_allows_reading(read_only: Path) -> None:
    _refused(read_only / "log.db", Unavailable, "read_only")
    with pytest.raises(Unavailable) as caught:
        open_sqlite(read_only / "new.db", create=True)
    assert caught.value.code == "read_only"
    store = open_sqlite(read_only / "log.db", create=False, readonly=True)
    assert check_log(store) == 303
    assert [path.name for path in read_only.iterdir()] == ["log.db"]
    with pytest.raises(Unavailable):
        store.lock_run("r")
    store.close()


_AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.errors import LedgerError
try:
    store = open_sqlite(sys.argv[1], create=sys.argv[2] == "create", readonly=sys.argv[2] == "read")
    print("ok", store.reader().head().size)
except LedgerError as error:
    print(type(error).__name__, error.code)
"""


def _as_nobody(path: Path, how: str) -> str:
    if os.getuid() != 0:
        pytest.skip("no permission to drop privileges")
    # The checkout may be closed to others: the modules are read before privileges are dropped.
    script = "import agent_run_ledger.store, agent_run_ledger.store.sqlite_store\n"
    script += "from agent_run_ledger.store.statements import sql_text\n"
    script += "sql_text('sqlite_schema.sql'); sql_text('sqlite_queries.sql'); import warnings\n" + _AS_NOBODY
    done = subprocess.run([sys.executable, "-c", script, path, how], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def reachable(tmp_path: Path) -> Path:
    """A folder that other users can reach: pytest makes its own with mode 0700."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    return tmp_path


def test_permissions_are_explained_to_an_ordinary_user(reachable: Path, intact: Path) -> None:
    ours = reachable / "log.db"
    shutil.copyfile(intact, ours)
    reachable.chmod(0o755)
    ours.chmod(0o600)
    assert _as_nobody(ours, "write") == "Unavailable cannot_open"
    ours.chmod(0o644)
    assert _as_nobody(ours, "write") == "Unavailable read_only"
    assert _as_nobody(reachable / "new.db", "create") == "Unavailable read_only"
    assert _as_nobody(ours, "read") == "ok 303"
    ours.chmod(0o666)
    assert _as_nobody(ours, "write") == "Unavailable read_only", "the directory cannot be written: no -wal, no -lock"
    reachable.chmod(0o777)
    assert _as_nobody(ours, "write") == "ok 303"


# Modes


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_every_file_is_made_for_its_owner_only_under_any_umask(tmp_path: Path, umask: int) -> None:
    script = """
        import os, sys
        os.umask(int(sys.argv[2]))
        from tests.contract.store_kit import begin, do_step
        from agent_run_ledger.store import open_sqlite
        store = open_sqlite(sys.argv[1], create=True)
        row = begin(store)
        do_step(store, row, 1)
        store.reader().head()
        for name in sorted(os.listdir(os.path.dirname(sys.argv[1]))):
            print(name, oct(os.stat(os.path.join(os.path.dirname(sys.argv[1]), name)).st_mode & 0o777))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), tmp_path / "log.db", str(umask)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.split("\n")[:-1] == [f"log.db{name} 0o600" for name in ("", "-lock", "-shm", "-wal")]


# Broken bytes


def _read_everything(path: Path) -> str:
    """Open and read all there is; what it amounts to. Only errors of the tree may come out."""
    try:
        store = open_sqlite(path, create=False)
    except LedgerError as error:
        return f"{type(error).__name__} {error.code}"
    try:
        return _contents(store)
    except LedgerError as error:
        return f"{type(error).__name__} {error.code}"
    except AssertionError:
        return "found by the check"
    finally:
        store.close()


def _contents(store: SqliteStore) -> str:
    check_log(store)
    reader = store._shared.reader
    assert reader.pragma("integrity_check") == "ok"
    runs = reader.list_runs(state=None, before_row_id=None, limit=10)
    for row in runs:
        reader.find_run(row.run_id)
        reader.in_flight(row.row_id)
        for key in reader.result_keys(row.row_id):
            reader.record(key.record_id)
        list(reader.records(row.row_id, kinds=list(RecordKind)))
        row_again = store.transact(op(), lambda tx, row=row: tx.get_run(row.row_id))
        assert row_again == row
    return "intact"


@pytest.mark.parametrize("size", [15, 16, 99, 100, 511, 512, 4_096, 40_960])
def test_random_bytes_are_no_store(tmp_path: Path, size: int) -> None:
    path = tmp_path / "noise.db"
    path.write_bytes(random.Random(size).randbytes(size))
    _refused(path, Tampered, "corrupt")
    assert [each.name for each in tmp_path.iterdir()] == ["noise.db"]


def test_text_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_text("SQLite format 3 is not what this is.\n" * 200)
    _refused(tmp_path / "log.db", Tampered, "corrupt")


def _cuts() -> list[int]:
    edges = [2, 16, 99, 100, 101, 512, 1_024, 4_095, 4_096, 4_097, 8_191, 8_192, 8_193]
    return edges + [4_096 * pages + rest for pages in (5, 17, 50, 90) for rest in (0, 1, 2_048)]


@pytest.mark.parametrize("size", _cuts())
def test_a_truncated_store_is_tampering(copy: Path, size: int) -> None:
    os.truncate(copy, size)
    _refused(copy, Tampered, "corrupt")


def test_a_store_whose_last_byte_is_gone_is_tampering(copy: Path) -> None:
    os.truncate(copy, copy.stat().st_size - 1)
    assert _read_everything(copy) in ("Tampered corrupt", "found by the check")


@pytest.mark.parametrize("create", [False, True])
def test_a_file_of_one_byte_is_not_empty(tmp_path: Path, create: bool) -> None:
    """SQLite itself would begin a database in it."""
    (tmp_path / "log.db").write_bytes(b"x")
    with pytest.raises(Refused) as caught:
        open_sqlite(tmp_path / "log.db", create=create)
    assert caught.value.code == "foreign_file"
    assert (tmp_path / "log.db").read_bytes() == b"x"


def _flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_flipped_bit_in_the_header_gives_an_error_of_the_tree_or_is_harmless(intact: Path, tmp_path: Path) -> None:
    """Which bytes of the header SQLite ignores is its business: nothing that reads differently may pass."""
    seen = set()
    for place in range(100):
        path = Path(shutil.copyfile(intact, tmp_path / f"{place}.db"))
        _flip(path, place, place % 8)
        seen.add(_read_everything(path))
    allowed = {"intact", "found by the check", "Unavailable read_only", "Refused schema_newer", "Refused foreign_file"}
    assert {each for each in seen if not each.startswith("Tampered")} <= allowed
    assert "Tampered corrupt" in seen


def test_a_flipped_bit_anywhere_gives_an_error_of_the_tree_or_is_found(intact: Path, tmp_path: Path) -> None:
    """Free space inside a page belongs to nobody: flips there change nothing that can be read."""
    chance = random.Random(7)
    size = intact.stat().st_size
    seen = []
    for _ in range(150):
        path = Path(shutil.copyfile(intact, tmp_path / "flipped.db"))
        _flip(path, chance.randrange(100, size), chance.randrange(8))
        seen.append(_read_everything(path))
        for left in tmp_path.iterdir():
            left.unlink()
    assert {each.split(" ")[0] for each in seen} <= {"intact", "found", "Tampered", "Misuse", "Refused"}
    assert sum(each != "intact" for each in seen) > 75


def test_zeroed_pages_are_found(intact: Path, tmp_path: Path) -> None:
    pages = intact.stat().st_size // 4_096
    for page in range(1, pages, 7):
        path = Path(shutil.copyfile(intact, tmp_path / "zeroed.db"))
        with path.open("r+b") as file:
            file.seek(4_096 * page)
            file.write(bytes(4_096))
        assert _read_everything(path) != "intact", f"page {page + 1}"
        for left in tmp_path.iterdir():
            left.unlink()


def test_a_torn_wal_loses_only_what_was_never_acknowledged(tmp_path: Path) -> None:
    """A WAL that is cut anywhere opens as some whole number of transactions."""
    store = open_sqlite(tmp_path / "log.db", create=True)
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    database, wal = Path(store.location).read_bytes(), Path(store.location + "-wal").read_bytes()
    sizes = set()
    for at, cut in enumerate(range(0, len(wal), 1_500)):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "log.db").write_bytes(database)
        (folder / "log.db-wal").write_bytes(wal[:cut])
        torn = open_sqlite(folder / "log.db", create=False)
        sizes.add(check_log(torn))
        torn.close()
    assert sizes == {1, 2, 3, 4, 5, 6} | ({7} if len(wal) % 1_500 == 1 else set())
    store.close()


# The driver's exceptions


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("UPDATE runs SET state = CAST(x'ff' AS TEXT)", lambda store: store.reader().find_run("r")),
        ("UPDATE runs SET holder = CAST(x'ff' AS TEXT)", lambda store: store.reader().find_run("r")),
        ("UPDATE runs SET holder = CAST(x'ff' AS TEXT)", lambda store: store.transact(op(), lambda tx: tx.get_run(1))),
        ("UPDATE runs SET state = 'dreaming'", lambda store: store.transact(op(), lambda tx: tx.get_run(1))),
        ("UPDATE records SET kind = 9", lambda store: list(store.reader().leaf_records(first=0, stop=9))),
        ("UPDATE records SET run_row_id = 77", lambda store: list(store.reader().leaf_records(first=0, stop=9))),
        ("DELETE FROM head", lambda store: store.reader().head()),
        ("DELETE FROM head", begin),
        ("UPDATE head SET frontier = x''", lambda store: begin(store, "new")),
        ("UPDATE head SET frontier = x''", lambda store: store.reader().head()),
    ],
)
def test_forged_rows_are_tampering(copy: Path, change: str, read: Callable[[SqliteStore], object]) -> None:
    _edit(copy, f"PRAGMA ignore_check_constraints = 1; {change}")
    store = open_sqlite(copy, create=False)
    with pytest.raises(Tampered):
        read(store)
    store.close()


def test_what_the_driver_raised_stays_as_the_cause(copy: Path) -> None:
    os.truncate(copy, 8_192)
    error = _refused(copy, Tampered, "corrupt")
    assert isinstance(error.__cause__, apsw.CorruptError)


def test_history_cannot_be_changed_by_sql(copy: Path) -> None:
    connection = sqlite3.connect(copy)
    for change in (
        "UPDATE events SET envelope = x'00' WHERE leaf_index = 3",
        "DELETE FROM events WHERE leaf_index = 3",
        "INSERT OR REPLACE INTO events VALUES (3, x'00', x'00')",
        "UPDATE tiles SET root = zeroblob(32)",
        "DELETE FROM tiles",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(change)
    connection.close()
