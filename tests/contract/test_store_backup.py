"""Backups: what is in a copy, what it says of itself, what it may not do, and which names it may have."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import LedgerError, Misuse, NotAdmitted, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.ledger.verify import verify_extends, verify_log
from agent_run_ledger.ports import Reader
from agent_run_ledger.store import BackupReport, SqliteStore, naming, open_sqlite, sqlite_store, stored_durability
from agent_run_ledger.testing import check_ledger
from tests.contract.store_kit import (
    Backend,
    SetClock,
    begin,
    check_file,
    check_log,
    do_step,
    quick_folder,
    sqlite_backend,
    start_step,
)

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"


@pytest.fixture(params=["full", "extra"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with quick_folder() as folder, sqlite_backend(folder, request.param) as made:
        yield made


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies" / "copy.db"


@pytest.fixture(autouse=True)
def _warn_anew() -> None:
    sqlite_store._warned_of_copies.clear()


def _filled(backend: Backend, steps: int = 300, **settings: object) -> SqliteStore:
    store = backend.open(**settings)
    row = begin(store)
    for key in range(steps):
        do_step(store, row, key, payload=b"x" * 500)
    return store


def _last_change(reader: Reader) -> dict[str, object]:
    last = reader.head().size - 1
    (event,) = reader.events(first=last, stop=last + 1)
    (change,) = orjson.loads(event.envelope)["changes"]
    return dict(change)


# What is in it


def test_a_copy_holds_the_whole_log_and_one_leaf_that_says_so(backend: Backend, copy: Path) -> None:
    store = _filled(backend)
    head = store.reader().head()
    made = store.backup(copy)
    assert made == BackupReport(
        destination=str(copy),
        log_id=store.log_id,
        size=head.size,
        root=root(head.size, head.frontier),
        made_at_ms=made.made_at_ms,
        file_bytes=copy.stat().st_size,
    )
    assert store.reader().head() == head, "the source is as it was"
    of_copy = open_sqlite(copy, create=False, readonly=True)
    assert of_copy.reader().head().size == head.size + 1
    change = {"type": "store", "id": store.log_id.hex(), "old": "created", "new": "copy", "generation": 0}
    assert _last_change(of_copy.reader()) == change
    assert verify_extends(of_copy.reader(), made.size, made.root)
    assert verify_extends(store.reader(), made.size, made.root)
    assert of_copy.copied == sqlite_store.Copied(size=made.size, at_ms=made.made_at_ms)
    of_copy.close()
    check_file(copy)


def test_a_copy_is_one_private_file_with_the_journal_of_its_source(backend: Backend, copy: Path) -> None:
    store = _filled(backend)
    old_mask = os.umask(0)
    try:
        store.backup(copy)
    finally:
        os.umask(old_mask)
    assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert copy.stat().st_nlink == 1
    assert f"sqlite-{stored_durability(copy)}" == backend.kind


@pytest.mark.parametrize("leaves", [254, 255, 256, 257])
def test_the_leaf_of_a_copy_completes_the_tile_that_it_completes(backend: Backend, copy: Path, leaves: int) -> None:
    store = _filled(backend, leaves - 2)
    assert store.backup(copy).size == leaves
    of_copy = open_sqlite(copy, create=False, readonly=True)
    assert check_log(of_copy) == leaves + 1
    of_copy.close()


def test_a_store_without_a_run_is_copied_too(backend: Backend, copy: Path) -> None:
    assert backend.open().backup(copy).size == 1
    assert check_ledger(copy).runs == 0


def test_the_leaf_of_a_copy_is_never_older_than_the_one_before_it(backend: Backend, copy: Path) -> None:
    clock = SetClock(5_000)
    store = _filled(backend, 3, clock=clock)
    clock.ms = 1_000
    assert store.backup(copy).made_at_ms == 5_000
    clock.ms = 9_000
    assert store.backup(f"{copy}2").made_at_ms == 9_000
    check_file(copy)


def test_a_read_only_store_can_be_copied(backend: Backend, copy: Path) -> None:
    _filled(backend, 3).close()
    store = backend.open(create=False, readonly=True)
    assert store.backup(copy).size == 5
    check_file(copy)


def test_a_copy_of_a_copy_says_of_what_it_was_made(backend: Backend, copy: Path) -> None:
    first = _filled(backend, 3).backup(copy)
    second_path = copy.with_name("second.db")
    of_copy = open_sqlite(copy, create=False, durability=stored_durability(copy))
    row = begin(of_copy, "more")
    do_step(of_copy, row, 1)
    second = of_copy.backup(second_path)
    of_copy.close()
    assert second.size == first.size + 3
    of_second = open_sqlite(second_path, create=False, readonly=True)
    assert of_second.copied is not None
    assert of_second.copied.size == second.size
    assert _last_change(of_second.reader())["old"] == "copy"
    assert verify_extends(of_second.reader(), first.size, first.root)
    of_second.close()
    check_file(second_path)


# What it says, and what it may not do


def test_a_copy_has_no_authority_and_cannot_get_it(backend: Backend, copy: Path) -> None:
    store = _filled(backend, 3, authority=True)
    store.backup(copy)
    assert store.authority
    for settings in ({"readonly": True}, {"durability": stored_durability(copy)}):
        of_copy = open_sqlite(copy, create=False, **settings)  # type: ignore[arg-type]
        assert of_copy.is_copy
        assert not of_copy.authority
        assert of_copy.reader().meta()["authority"] == 1, "what the source had is still to be read"  # type: ignore[attr-defined]
        with pytest.raises(NotAdmitted, match="only people can admit") as caught:
            of_copy.grant_authority()
        assert caught.value.code == "is_copy"
        of_copy.close()
    assert check_file(copy) == 7
    last = open_sqlite(copy, create=False, readonly=True)
    assert _last_change(last.reader())["old"] == "authority"
    last.close()


def test_a_copy_is_not_opened_with_authority(backend: Backend, copy: Path) -> None:
    _filled(backend, 3, authority=True).backup(copy)
    with pytest.raises(NotAdmitted) as caught:
        open_sqlite(copy, create=False, authority=True, durability=stored_durability(copy))
    assert caught.value.code == "is_copy"
    os.rename(copy, f"{copy}-moved")  # nobody has it open any more
    assert open_sqlite(f"{copy}-moved", create=False, readonly=True).is_copy


def test_runs_go_on_in_a_copy_with_one_warning(tmp_path: Path, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def program(path: Path, dies: bool) -> RunLedger:
        ledger = RunLedger(run_id="r", db_path=path)

        @ledger.step
        def first() -> int:
            ran.append("first")
            return 1

        @ledger.step(depends_on=["first"])
        def second(one: int) -> int:
            ran.append("second")
            if dies:
                raise KeyboardInterrupt
            return one + 1

        return ledger

    with program(tmp_path / "runs.db", dies=True) as ledger, pytest.raises(KeyboardInterrupt):
        ledger.execute()
    store = open_sqlite(tmp_path / "runs.db", create=False)
    store.backup(copy)
    store.close()
    caplog.clear()
    for _ in range(2):
        with program(copy, dies=False) as ledger:
            assert ledger.execute() == 2
    assert ran == ["first", "second", "second"]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{copy} is a copy, made at " in warning.getMessage()
    assert "the original must not run on beside it" in warning.getMessage()
    check_ledger(copy)


def test_looking_at_a_copy_warns_of_nothing(backend: Backend, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    _filled(backend, 3).backup(copy)
    open_sqlite(copy, create=False, readonly=True).close()
    assert caplog.records == []


@pytest.mark.parametrize("value", ["-1", "253402300799001", "'soon'", "NULL"])
def test_a_copy_with_an_impossible_date_is_tampered(small: SqliteStore, copy: Path, value: str) -> None:
    small.backup(copy)
    statement = f"UPDATE OR REPLACE meta SET value = {value} WHERE key = 'copied_at_ms'"
    if value == "NULL":
        statement = "DELETE FROM meta WHERE key = 'copied_at_ms'"
    subprocess.run([sys.executable, EDITOR, copy, statement], check=True)
    with pytest.raises(Tampered) as caught:
        open_sqlite(copy, create=False)
    assert caught.value.code == "corrupt"
    os.rename(copy, f"{copy}-moved")
    of_copy = open_sqlite(f"{copy}-moved", create=False, readonly=True)  # nothing was left open under its first name
    assert of_copy.is_copy
    of_copy.close()


def test_what_a_copy_says_of_itself_must_be_in_its_log(backend: Backend, copy: Path) -> None:
    store = _filled(backend, 3)
    store.backup(copy)
    assert verify_log(store.reader(), is_copy=False).ok
    assert not verify_log(store.reader(), is_copy=True).ok
    of_copy = open_sqlite(copy, create=False, readonly=True)
    assert verify_log(of_copy.reader(), is_copy=True).ok
    report = verify_log(of_copy.reader(), is_copy=False)
    assert [problem.leaf_index for problem in report.problems] == [5]
    of_copy.close()


# The names it may have


def _refused(store: SqliteStore, destination: str | Path, error: type[LedgerError], code: str) -> LedgerError:
    folder = Path(destination).parent
    before = sorted(folder.iterdir()) if folder.is_dir() else None
    with pytest.raises(error) as caught:
        store.backup(destination)
    assert caught.value.code == code
    assert before is None or sorted(folder.iterdir()) == before
    return caught.value


@pytest.fixture
def small() -> Iterator[SqliteStore]:
    with quick_folder() as folder, sqlite_backend(folder, "full") as backend:
        yield _filled(backend, 3)


def test_nothing_is_ever_replaced(small: SqliteStore, copy: Path) -> None:
    copy.write_text("mine")
    _refused(small, copy, Refused, "destination_exists")
    assert copy.read_text() == "mine"
    assert "inside" in _refused(small, copy.parent, Refused, "destination_exists").hint
    assert "the store itself" in _refused(small, small.location, Refused, "destination_exists").message


def test_a_link_is_not_followed(small: SqliteStore, copy: Path) -> None:
    (copy.parent / "dangling.db").symlink_to(copy.parent / "nothing.db")
    said = _refused(small, copy.parent / "dangling.db", Refused, "destination_exists").message
    assert said.endswith("dangling.db exists, and nothing is ever replaced"), "before anything was copied"
    (copy.parent / "source.db").symlink_to(small.location)
    _refused(small, copy.parent / "source.db", Refused, "destination_exists")


@pytest.mark.parametrize("side", ["-wal", "-journal", "-lock"])
def test_a_file_left_beside_the_name_is_not_taken_for_the_copys_own(small: SqliteStore, copy: Path, side: str) -> None:
    Path(f"{copy}{side}").touch()
    assert f"{copy}{side} was left" in _refused(small, copy, Refused, "destination_exists").message


@pytest.mark.parametrize("side", ["-wal", "-shm", "-journal", "-lock"])
def test_a_copy_is_not_named_like_a_file_beside_a_store(small: SqliteStore, copy: Path, side: str) -> None:
    _refused(small, f"{copy}{side}", Refused, "side_file")
    _refused(small, f"{small.location}{side}", Refused, "side_file")


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b", "\udcff.db", "copies/", ".", ".."])
def test_what_names_no_file_is_misuse(small: SqliteStore, path: str) -> None:
    with pytest.raises(Misuse) as caught:
        small.backup(path)
    assert caught.value.code == "bad_path"


def test_a_missing_directory_is_not_made(small: SqliteStore, copy: Path) -> None:
    said = _refused(small, copy.parent / "none" / "copy.db", Unavailable, "cannot_open").message
    assert said.endswith("none is no directory")
    assert not (copy.parent / "none").exists()


def test_a_relative_name_is_one_of_the_current_directory(
    small: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    assert small.backup("here.db").destination == str(copy.parent / "here.db")
    check_file(copy.parent / "here.db")


def test_a_name_that_comes_to_be_meanwhile_is_kept(small: SqliteStore, copy: Path) -> None:
    def check(_: Reader) -> None:
        copy.write_text("theirs")

    with pytest.raises(Refused) as caught:
        small.backup(copy, check=check)
    assert caught.value.code == "destination_exists"
    assert copy.read_text() == "theirs"
    assert list(copy.parent.iterdir()) == [copy]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_without_a_rename_that_replaces_nothing_it_links(
    small: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def cannot(*_: object) -> int:
        import ctypes

        ctypes.set_errno(number)
        return -1

    class Library:
        renameat2 = staticmethod(cannot)

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library)
    small.backup(copy)
    assert list(copy.parent.iterdir()) == [copy]
    assert copy.stat().st_nlink == 1
    check_file(copy)
    copy_again = copy.with_name("again.db")
    with pytest.raises(Refused) as caught:
        small.backup(copy_again, check=lambda _: copy_again.write_text("theirs") and None)
    assert caught.value.code == "destination_exists"
    assert copy_again.read_text() == "theirs"


def test_a_name_that_a_power_cut_may_take_is_uncertain(
    small: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(naming, "make_lasting", fail)
    with pytest.raises(Uncertain) as caught:
        small.backup(copy)
    assert caught.value.code == "name_not_synced"
    check_file(copy)


def test_file_and_directory_are_synced_in_this_order(
    small: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, bool]] = []
    sync = os.fsync

    def watched(fd: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), copy.exists()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    small.backup(copy)
    begun, *rest = synced
    assert begun == (True, False), "the directory, when the file is begun under another name"
    assert rest == [(False, False), (True, True)], "the file before it has its name, the directory after"


# Checked before it has its name


def test_a_copy_that_does_not_pass_gets_no_name(small: SqliteStore, copy: Path) -> None:
    seen: list[int] = []

    def check(reader: Reader) -> None:
        seen.append(reader.head().size)
        assert not copy.exists()
        raise Tampered("not good enough")

    with pytest.raises(Tampered, match="good enough"):
        small.backup(copy, check=check)
    assert seen == [6]
    assert list(copy.parent.iterdir()) == []
    small.backup(copy, check=lambda reader: seen.append(check_size(reader)))
    assert seen == [6, 6]
    assert list(copy.parent.iterdir()) == [copy]


def check_size(reader: Reader) -> int:
    report = verify_log(reader, is_copy=True)
    assert report.ok
    return report.leaves


def test_progress_is_told_and_may_break_off(small: SqliteStore, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_run_ledger.store.sqlite_backup.STEP_PAGES", 4)
    seen: list[tuple[int, int]] = []
    small.backup(copy, progress=lambda done, total: seen.append((done, total)))
    pages = copy.stat().st_size // 4_096
    assert [done for done, _ in seen] == [*range(4, pages, 4), pages]
    assert {total for _, total in seen} == {pages}

    def stop(done: int, _: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    other = copy.with_name("other.db")
    with pytest.raises(KeyboardInterrupt):
        small.backup(other, progress=stop)
    assert list(copy.parent.iterdir()) == [copy]
    small.backup(other)
    check_file(other)


def test_a_backup_inside_a_backup_is_misuse(small: SqliteStore, copy: Path) -> None:
    def again(_: int, __: int) -> None:
        small.backup(copy.with_name("inner.db"))

    with pytest.raises(Misuse) as caught:
        small.backup(copy, progress=again)
    assert caught.value.code == "nested_backup"
    assert list(copy.parent.iterdir()) == []


def test_a_backup_inside_a_transaction_has_what_was_committed_before_it(small: SqliteStore, copy: Path) -> None:
    row = small.reader().find_run("r")
    assert row is not None

    def both(tx: object) -> int:
        start_step(tx, row, 99)  # type: ignore[arg-type]
        return small.backup(copy).size

    assert small.transact(small._shared.place.entropy.uuid7(), both) == 5
    assert check_log(small) == 6
    check_file(copy)
