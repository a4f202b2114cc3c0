"""Backups beside writers, kills, full disks, forks and closings: the copy is of one moment and whole, or it is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import Forked, Misuse, Tampered, Unavailable
from agent_run_ledger.ledger.verify import verify_extends
from agent_run_ledger.store import BackupReport, SqliteStore, open_sqlite, sqlite_backup
from agent_run_ledger.testing import watched_disk
from tests.contract.store_kit import begin, check_file, check_log, do_step, quick_folder, sqlite_backend
from tests.fault.store_child import Child

pytestmark = [pytest.mark.fault, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """A store of some 140 pages, copied 8 pages at a time."""
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 8)
    with quick_folder() as folder, sqlite_backend(folder, "full") as backend:
        yield _filled(backend.open())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def _filled(store: SqliteStore) -> SqliteStore:
    row = begin(store, "filled")
    for key in range(300):
        do_step(store, row, key, payload=b"x" * 900)
    return store


def _is_beginning_of(made: BackupReport, store: SqliteStore) -> bool:
    return verify_extends(store.reader(), made.size, made.root)


def _left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Writers


def test_writers_go_on_and_the_copy_is_of_one_moment(store: SqliteStore, copy: Path) -> None:
    begun, sizes, done = store.reader().head().size, [], []
    row = begin(store, "ours")
    with Child("work", store.location, "one", 400) as one, Child("work", store.location, "two", 400) as two:
        for child in (one, two):
            assert child.hear() == "ready"
            child.say()

        def write(pages: int, _: int) -> None:
            for child in (one, two):
                child.hear()  # it committed another step
            do_step(store, row, pages)
            done.append(pages)
            sizes.append(store.reader().head().size)

        made = store.backup(copy, progress=write)
    assert begun + 3 <= made.size <= sizes[0]
    assert sizes == sorted(set(sizes)), "everybody wrote between all steps"
    assert done == sorted(set(done)), "it never began anew"
    assert _is_beginning_of(made, store)
    assert check_file(copy) == made.size + 1
    assert check_log(store) > made.size + 40


def test_without_a_wal_writers_wait_and_lose_nothing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 16)
    waited: list[str] = []
    with quick_folder() as folder, sqlite_backend(folder, "extra") as backend:
        store = backend.open(wait_s=0.05)
        row = begin(store)

        def write(pages: int, total: int) -> None:
            if pages < total:
                with pytest.raises(Unavailable) as caught:
                    do_step(store, row, 1)
                waited.append(caught.value.code)

        made = store.backup(copy, progress=write)
        do_step(store, row, 1)
        assert (made.size, check_log(store)) == (2, 3)
    assert set(waited) == {"store_busy"}
    assert check_file(copy) == 3


# Death


@pytest.mark.parametrize(
    ("where", "nth"),
    [("step", 1), ("step", 7), ("step", 15), ("marked", 0), ("checked", 0), ("whole", 0), ("named", 0)],
)
def test_a_killed_backup_leaves_no_copy_or_a_whole_one(store: SqliteStore, copy: Path, where: str, nth: int) -> None:
    with (
        Child("work", store.location, "load", 3_000) as writer,
        Child("back_up", store.location, copy, where, nth) as child,
    ):
        for each in (writer, child):
            assert each.hear() == "ready"
            each.say()
        assert child.end() == (-signal.SIGKILL, "")
        writer.hear()
    left = [name for name in _left_in(copy.parent) if name.startswith("copy.db.partial-")]
    if where == "named":
        assert left == []
        assert check_file(copy) > 300
        for path in copy.parent.iterdir():
            path.unlink()
    else:
        assert not copy.exists()
        assert left, "the partial file is named after the copy that it was to be"
        assert len({name[: len("copy.db.partial-") + 8] for name in left}) == 1
    made = store.backup(copy)
    assert _is_beginning_of(made, store)
    assert check_file(copy) == made.size + 1
    check_log(store)


# Disks


@pytest.mark.parametrize("writes", [0, 1, 40, 130, 160])
def test_a_full_disk_leaves_nothing_and_later_it_works(tmp_path: Path, copy: Path, writes: int) -> None:
    with watched_disk() as disk, quick_folder() as folder, sqlite_backend(folder, "full") as backend:
        store = _filled(backend.open())
        disk.full_after_writes = writes
        with pytest.raises(Unavailable) as caught:
            store.backup(copy)
        assert disk.full
        assert caught.value.code == "disk_full"
        assert str(copy) in caught.value.message
        assert _left_in(tmp_path) == []
        disk.full = False
        made = store.backup(copy)
        assert check_log(store) == made.size
    assert check_file(copy) == made.size + 1


def test_no_room_at_the_sync_leaves_nothing(store: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(Unavailable) as caught:
        store.backup(copy)
    assert caught.value.code == "disk_full"
    assert _left_in(copy.parent) == []
    check_log(store)


def test_a_read_only_directory_is_said_to_be_one(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / "ro"
    folder.mkdir()
    bound = subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True, check=False)
    if bound.returncode != 0:
        pytest.skip("no permission to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        with pytest.raises(Unavailable) as caught:
            store.backup(folder / "copy.db")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    assert caught.value.code == "read_only"
    assert _left_in(folder) == []
    check_log(store)


def test_a_source_that_is_broken_is_named(copy: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    with quick_folder() as folder, sqlite_backend(folder, "full") as backend:
        store = _filled(backend.open())
        store.close()
        readonly = backend.open(create=False, readonly=True)
        ((root_page,),) = readonly.query("SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
        readonly.close()
        shutil.copyfile(folder / "log.db", broken)
    with broken.open("r+b") as file:
        file.seek(4_096 * (root_page - 1))
        file.write(bytes(4_096))
    store = open_sqlite(broken, create=False, readonly=True)
    with pytest.raises(Tampered) as caught:
        store.backup(copy)
    store.close()
    assert caught.value.code == "corrupt"
    assert caught.value.message.startswith(f"{broken} is not an intact store")
    assert [name for name in _left_in(tmp_path) if name.startswith("copy")] == []


def test_a_copy_that_is_not_all_in_one_file_is_none(store: SqliteStore, copy: Path) -> None:
    def leave_a_wal(done: int, total: int) -> None:
        if done == total:
            (partial,) = copy.parent.iterdir()
            Path(f"{partial}-wal").write_text("commits")

    with pytest.raises(Unavailable, match="not all in one file") as caught:
        store.backup(copy, progress=leave_a_wal)
    assert caught.value.code == "store_failed"
    assert _left_in(copy.parent) == []
    check_log(store)


def test_what_cannot_be_removed_is_named(store: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(path: str) -> None:
        raise PermissionError(1, "not permitted", path)

    def fail(_: object) -> None:
        monkeypatch.setattr(os, "unlink", cannot)
        raise Unavailable("no")

    with pytest.raises(Unavailable) as caught:
        store.backup(copy, check=fail)
    monkeypatch.undo()
    (left,) = _left_in(copy.parent)
    assert f"delete {copy.parent / left}, which is useless" in caught.value.hint
    check_log(store)


# Forks, closings, threads


def _fork(act: object = None) -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if act is None else act())  # type: ignore[operator]
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_makes_it_begin_anew_and_the_child_may_open_the_store(store: SqliteStore, copy: Path) -> None:
    done, exits = [], []

    def child() -> int:
        own = open_sqlite(store.location, create=False)
        begin(own, "child")
        own.close()
        return 0

    def fork_once(pages: int, _: int) -> None:
        done.append(pages)
        if len(done) == 3:
            forking = threading.Thread(target=lambda: exits.append(_fork(child)))
            forking.start()
            forking.join()

    made = store.backup(copy, progress=fork_once)
    assert exits == [0]
    assert done[:4] == [8, 16, 24, 8]
    assert _left_in(copy.parent) == ["copy.db"]
    assert (made.size, check_log(store)) == (303, 303), "the child's run is in it, as it began after that"
    assert check_file(copy) == 304


def test_a_child_that_goes_on_with_the_backup_is_refused_and_leaves_the_parents_file(
    store: SqliteStore, copy: Path
) -> None:
    parent, child_said = os.getpid(), []

    def fork_here(pages: int, _: int) -> None:
        if pages == 16 and not child_said:
            pid = os.fork()
            if pid != 0:
                child_said.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    verdict = 9
    try:
        made = store.backup(copy, progress=fork_here)
    except Forked:
        verdict = 7 if _left_in(copy.parent) else 8
    finally:
        if os.getpid() != parent:
            os._exit(verdict)
    assert child_said == [7]
    assert check_file(copy) == made.size + 1
    check_log(store)


def test_one_fork_after_another_ends_it(store: SqliteStore, copy: Path) -> None:
    with pytest.raises(Unavailable, match="forked 5 times") as caught:
        store.backup(copy, progress=lambda *_: _fork() and None)
    assert caught.value.code == "interrupted"
    assert _left_in(copy.parent) == []
    check_log(store)


def test_closing_the_store_ends_it(store: SqliteStore, copy: Path) -> None:
    location = store.location
    with pytest.raises(Misuse) as caught:
        store.backup(copy, progress=lambda *_: store.close())
    assert caught.value.code == "store_closed"
    assert _left_in(copy.parent) == []
    assert check_file(location) == 302


def test_another_handle_may_be_closed(store: SqliteStore, copy: Path) -> None:
    other = open_sqlite(store.location, create=False)
    made = store.backup(copy, progress=lambda *_: other.close())
    assert check_file(copy) == made.size + 1
    check_log(store)


def test_two_threads_make_their_backups_one_after_the_other(store: SqliteStore, tmp_path: Path) -> None:
    made: list[BackupReport] = []
    begun = threading.Event()
    names = [tmp_path / "one.db", tmp_path / "two.db"]

    def second() -> None:
        begun.set()
        made.append(store.backup(names[1]))

    other = threading.Thread(target=second)

    def start(pages: int, _: int) -> None:
        if pages == 8:
            other.start()
            begun.wait()
        assert not names[1].exists()

    made.append(store.backup(names[0], progress=start))
    other.join()
    assert sorted(report.destination for report in made) == sorted(map(str, names))
    assert [check_file(name) for name in names] == [303, 303]
    check_log(store)


# Bounds

MEASURED = """
import sys, apsw
from agent_run_ledger.store import open_sqlite
store = open_sqlite(sys.argv[1], create=False, readonly=True)
store.reader().head()
before = apsw.memory_used()
apsw.memory_high_water(True)
store.backup(sys.argv[2])
print(apsw.memory_high_water() - before)
"""


def test_its_memory_does_not_grow_with_the_store(tmp_path: Path, copy: Path) -> None:
    with quick_folder() as folder, sqlite_backend(folder, "full") as backend:
        store = backend.open()
        row = begin(store)
        for key in range(40):
            do_step(store, row, key, payload=bytes(1 << 20))
        location = store.location
        store.close()
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, location, copy], capture_output=True, text=True, check=True
        )
    assert copy.stat().st_size > 40 << 20
    assert 1 << 20 < int(done.stdout) < 12 << 20, "two caches of 4 MB, and it would be 40 without a bound"
    check_file(copy)
