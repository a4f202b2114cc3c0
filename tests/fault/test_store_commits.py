"""What becomes of a commit whose disk fails: it did not land, it landed, or nobody can say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from agent_run_ledger.errors import Misuse, Unavailable, Uncertain
from agent_run_ledger.ports import RunRow
from agent_run_ledger.store import SqliteStore
from tests.contract.store_kit import Backend, begin, check_log, do_step, end_step, op, sqlite_backend, start_step
from tests.fault.store_child import Child
from tests.fault.store_disk import Disk, failing, failing_once, layered

pytestmark = pytest.mark.fault

FULL, EXTRA = "full", "extra"


@pytest.fixture
def disk() -> Iterator[Disk]:
    with layered() as made:
        yield made


@pytest.fixture
def full(disk: Disk, tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, FULL) as backend:
        yield backend
        disk.heal()


@pytest.fixture
def extra(disk: Disk, tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, EXTRA) as backend:
        yield backend
        disk.heal()


def _as_after_a_power_cut(store: SqliteStore, folder: Path) -> Path:
    """Copy the files as they lie on the disk, without the shared memory that only living processes have."""
    target = folder / "after.db"
    for suffix in ("", "-wal", "-journal"):
        source = Path(store.location + suffix)
        if source.exists():
            shutil.copyfile(source, f"{target}{suffix}")
    return target


def _ops(store: SqliteStore) -> set[bytes]:
    return {event.op_id for event in store.reader().events(first=0, stop=1_000)}


# Not landed


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("reader_open", [False, True])
def test_a_failed_sync_means_nothing_changed_also_after_a_power_cut(
    full: Backend, disk: Disk, tmp_path: Path, when: str, reader_open: bool
) -> None:
    """The frames of the failed commit lie in the WAL, complete: nobody may find them there later."""
    store = full.open()
    row = begin(store)
    if reader_open:
        store.reader().head()
    lost = op()
    setattr(disk, when, failing_once("wal", "sync"))
    with pytest.raises(Unavailable):
        do_step(store, row, 1, op_id=lost)
    disk.heal()
    copy = _as_after_a_power_cut(store, tmp_path)
    assert lost not in _ops(store)
    with sqlite_backend(tmp_path, FULL) as other:
        after = other.open(copy.stem, create=False)
        assert lost not in _ops(after)
        assert check_log(after) == 2
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_with_another_process_on_the_file_nothing_changed_either(full: Backend, disk: Disk, tmp_path: Path) -> None:
    store = full.open()
    row = begin(store)
    with Child("hold_open", store.location) as child:
        assert child.hear() == "open"
        lost = op()
        disk.before = failing_once("wal", "sync")
        with pytest.raises(Unavailable):
            do_step(store, row, 1, op_id=lost)
        copy = _as_after_a_power_cut(store, tmp_path)
        with sqlite_backend(tmp_path, FULL) as other:
            assert lost not in _ops(other.open(copy.stem, create=False))
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_a_failed_write_of_a_frame_means_nothing_changed(full: Backend, disk: Disk) -> None:
    store = full.open()
    row = begin(store)
    disk.before = failing_once("wal", "write", apsw.SQLITE_IOERR_WRITE)
    with pytest.raises(Unavailable):
        do_step(store, row, 1)
    do_step(store, row, 1)
    assert check_log(store) == 3


@pytest.mark.parametrize(("kind", "act"), [("journal", "sync"), ("db", "write"), ("db", "sync")])
def test_with_a_rollback_journal_a_failure_before_its_deletion_rolls_back(
    extra: Backend, disk: Disk, kind: str, act: str
) -> None:
    store = extra.open()
    row = begin(store)
    lost = op()
    disk.before = failing_once(kind, act)
    with pytest.raises(Unavailable):
        do_step(store, row, 1, op_id=lost)
    disk.heal()
    assert lost not in _ops(store)
    do_step(store, row, 1)
    assert check_log(store) == 3


# Landed, the reply was lost


def test_with_a_rollback_journal_a_failure_after_its_deletion_has_landed(extra: Backend, disk: Disk) -> None:
    store = extra.open()
    row = begin(store)
    op_id = op()
    disk.after = failing_once("journal", "delete", apsw.SQLITE_IOERR_DELETE)
    place = do_step(store, row, 1, op_id=op_id)
    disk.heal()
    assert op_id in _ops(store)
    assert store.reader().record(place).record.name == "step1"
    assert check_log(store) == 3


class _LosesReplies:
    """A cursor whose commits land and are not heard of."""

    def __init__(self, cursor: apsw.Cursor, error: Callable[[], Exception]) -> None:
        self._cursor, self._error = cursor, error
        self.connection = cursor.connection

    def execute(self, sql: str, *arguments: object, **settings: object) -> apsw.Cursor:
        done = self._cursor.execute(sql, *arguments, **settings)  # type: ignore[arg-type]
        if sql == "COMMIT":
            raise self._error()
        return done


@pytest.mark.parametrize(
    "error", [lambda: apsw.exception_for(apsw.SQLITE_IOERR), lambda: apsw.exception_for(apsw.SQLITE_FULL), MemoryError]
)
@pytest.mark.parametrize("durability", [FULL, EXTRA])
def test_a_commit_that_landed_is_found_and_its_value_returned(
    tmp_path: Path, durability: str, error: Callable[[], Exception]
) -> None:
    with sqlite_backend(tmp_path, durability) as backend:
        store = backend.open()
        row = begin(store)
        writer = store._shared.writer()
        writer._cursor = _LosesReplies(writer._cursor, error)  # type: ignore[assignment,arg-type]
        place = do_step(store, row, 1)
        assert store.reader().record(place).record.name == "step1"
        assert check_log(store) == 3
        do_step(store, row, 2)
        assert check_log(store) == 4


# Interrupted


class _Interrupted:
    """A cursor at which a signal arrives: before the statement, or after it."""

    def __init__(self, cursor: apsw.Cursor, at: str, after: bool) -> None:
        self._cursor, self._at, self._after = cursor, at, after
        self.connection = cursor.connection

    def execute(self, sql: str, *arguments: object, **settings: object) -> apsw.Cursor:
        here = self._at and sql.startswith(self._at)
        if here and not self._after:
            self._at = ""
            raise KeyboardInterrupt
        done = self._cursor.execute(sql, *arguments, **settings)  # type: ignore[arg-type]
        if here:
            self._at = ""
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", ["BEGIN", "INSERT INTO events", "COMMIT"])
@pytest.mark.parametrize("durability", [FULL, EXTRA])
def test_an_interrupt_at_any_statement_leaves_a_store_that_works(
    tmp_path: Path, durability: str, at: str, after: bool
) -> None:
    with sqlite_backend(tmp_path, durability) as backend:
        store = backend.open(wait_s=1.0)
        row = begin(store)
        writer = store._shared.writer()
        writer._cursor = _Interrupted(writer._cursor, at, after)  # type: ignore[assignment,arg-type]
        with pytest.raises(KeyboardInterrupt):
            do_step(store, row, 1)
        landed = at == "COMMIT" and after
        with Child("work", store.location, "other", 0) as child:
            assert child.hear() == "ready", "a lock was left behind"
        do_step(store, row, 2)
        assert check_log(store) == 2 + landed + 1 + 1


# Nobody can say


@pytest.mark.parametrize("durability", [FULL, EXTRA])
def test_a_disk_that_stays_broken_leaves_the_outcome_uncertain(disk: Disk, tmp_path: Path, durability: str) -> None:
    with sqlite_backend(tmp_path, durability) as backend:
        store = backend.open()
        row = begin(store)
        op_id = op()
        disk.before = failing("wal" if durability == FULL else "journal", "sync")
        with pytest.raises(Uncertain) as caught:
            do_step(store, row, 1, op_id=op_id)
        assert caught.value.code == "commit_unknown"
        assert op_id.hex() in str(caught.value)
        assert isinstance(caught.value.__cause__, apsw.IOError)
        disk.heal()
        size = check_log(store)
        assert (size == 3) is (op_id in _ops(store))
        do_step(store, row, 2)
        assert check_log(store) == size + 1


def test_a_file_that_is_gone_leaves_the_outcome_uncertain(full: Backend, disk: Disk) -> None:
    store = full.open()
    row = begin(store)

    def lose_file(kind: str, act: str) -> None:
        if (kind, act) == ("wal", "sync"):
            Path(store.location).rename(store.location + ".gone")
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

    disk.before = lose_file
    with pytest.raises(Uncertain):
        do_step(store, row, 1)


# Room


def test_a_disk_that_is_full_at_the_commit_changes_nothing(full: Backend, disk: Disk) -> None:
    store = full.open()
    row = begin(store)
    disk.before = failing("wal", "write", apsw.SQLITE_FULL)
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            do_step(store, row, 1)
        assert caught.value.code == "disk_full"
        assert store.reader().head().size == 2
    disk.heal()
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_a_disk_that_is_full_with_a_rollback_journal_changes_nothing(extra: Backend, disk: Disk) -> None:
    store = extra.open()
    row = begin(store)
    disk.before = failing("journal", "write", apsw.SQLITE_FULL)
    with pytest.raises(Unavailable) as caught:
        do_step(store, row, 1)
    assert caught.value.code == "disk_full"
    disk.heal()
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_a_database_that_may_not_grow_is_full(full: Backend) -> None:
    store = full.open()
    row = begin(store)
    connection = store._shared.writer()._connection
    assert connection is not None
    connection.pragma("max_page_count", connection.pragma("page_count") + 10)
    with pytest.raises(Unavailable) as caught:
        do_step(store, row, 1, payload=bytes(100_000))
    assert caught.value.code == "disk_full"
    connection.pragma("max_page_count", 1_000_000)
    do_step(store, row, 1, payload=bytes(100_000))
    assert check_log(store) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "arl-test", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no permission to mount")
    yield folder
    left_open = subprocess.run(["umount", folder], check=False).returncode != 0
    if left_open:
        subprocess.run(["umount", "--lazy", folder], check=True)
    assert not left_open, "a descriptor was left open"


@pytest.mark.parametrize("durability", [FULL, EXTRA])
def test_a_file_system_that_fills_up_loses_nothing_that_was_recorded(small_disk: Path, durability: str) -> None:
    with sqlite_backend(small_disk, durability) as backend:
        store = backend.open()
        row = begin(store)
        recorded: list[int] = []

        def fill() -> None:
            for key in range(2_000):
                recorded.append(do_step(store, row, key))

        with pytest.raises(Unavailable) as caught:
            fill()
        assert caught.value.code == "disk_full"
        assert len(recorded) > 10
        assert check_log(store) == 2 + len(recorded)
        store.close()
        again = backend.open(create=False)
        assert check_log(again) == 2 + len(recorded)
        again.close()


def test_a_file_system_without_any_room_gives_no_store(small_disk: Path) -> None:
    filler = small_disk / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4_096))

    with pytest.raises(OSError, match="No space"):
        fill()
    with sqlite_backend(small_disk, FULL) as backend:
        with pytest.raises(Unavailable) as caught:
            backend.open()
        assert caught.value.code == "disk_full"
        filler.unlink()
        assert check_log(backend.open()) == 1


# Others


def test_a_reader_in_the_way_of_a_rollback_journal_commit_ends_in_unavailable(tmp_path: Path) -> None:
    with sqlite_backend(tmp_path, EXTRA) as backend:
        store = backend.open(wait_s=0.05)
        row = begin(store)
        with Child("read", store.location) as child:
            assert child.hear() == "reading"
            with pytest.raises(Unavailable) as caught:
                do_step(store, row, 1)
            assert caught.value.code == "store_busy"
        do_step(store, row, 1)
        assert check_log(store) == 3


# Syncs


def _counted(disk: Disk, store: SqliteStore, row: RunRow, first: int, *, sync: bool) -> int:
    before = disk.counts["wal", "sync"]

    def write(key: int) -> None:
        store.transact(op(), lambda tx: (start_step(tx, row, key), end_step(tx, row, key)), sync=sync)

    for key in range(first, first + 10):
        write(key)
    return disk.counts["wal", "sync"] - before


def test_a_transaction_costs_one_sync_and_an_unsynced_one_none(full: Backend, disk: Disk) -> None:
    store = full.open()
    row = begin(store)
    creation = disk.counts["db", "sync"]
    assert _counted(disk, store, row, 0, sync=True) == 10
    assert _counted(disk, store, row, 100, sync=False) == 0
    assert _counted(disk, store, row, 200, sync=True) == 10
    assert disk.counts["db", "sync"] == creation, "a checkpoint came between: count again with fewer steps"
    assert check_log(store) == 32


def test_an_unsynced_transaction_is_synced_with_the_next_synced_one(full: Backend, disk: Disk, tmp_path: Path) -> None:
    """What is on the disk after the sync is what a power cut leaves; the copy holds both."""
    store = full.open()
    row = begin(store)
    synced: list[Path] = []

    def copy(kind: str, act: str) -> None:
        if (kind, act) == ("wal", "sync") and not synced:
            synced.append(_as_after_a_power_cut(store, tmp_path))

    _counted(disk, store, row, 0, sync=False)
    disk.after = copy
    do_step(store, row, 50)
    disk.heal()
    with sqlite_backend(tmp_path, FULL) as other:
        assert check_log(other.open(synced[0].stem, create=False)) == 13


def test_the_lab_mode_syncs_journal_and_file(extra: Backend, disk: Disk) -> None:
    store = extra.open()
    row = begin(store)
    disk.counts.clear()
    do_step(store, row, 1)
    assert disk.counts["journal", "sync"] >= 1
    assert disk.counts["db", "sync"] == 1
    assert disk.counts["journal", "delete"] == 1


def test_a_store_that_is_open_keeps_its_durability(tmp_path: Path) -> None:
    with sqlite_backend(tmp_path, FULL) as full, sqlite_backend(tmp_path, EXTRA) as extra:
        full.open()
        with pytest.raises(Misuse) as caught:
            extra.open()
        assert caught.value.code == "settings_differ"
