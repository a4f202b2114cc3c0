"""What others do to the files of an open store: a second SQLite library, renaming, links; what is noticed."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import Refused, Tampered, Unavailable
from tests.contract.store_kit import Backend, begin, check_log, do_step, sqlite_backend
from tests.fault.store_child import Child

pytestmark = pytest.mark.fault


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def _stray(path: str) -> None:
    """What a debugger, a notebook or a metrics library would do."""
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM events").fetchall()
    connection.close()


def test_a_stray_that_deleted_the_wal_is_caught_before_the_commit(backend: Backend) -> None:
    """It closed as the last one it knew of, and nobody told it of us: our commits would go into a deleted file."""
    store = backend.open()
    row = begin(store)
    do_step(store, row, 1)
    _stray(store.location)
    assert not Path(store.location + "-wal").exists()
    for key in (2, 3):
        with pytest.raises(Tampered) as caught:
            do_step(store, row, key)
        assert caught.value.code == "stray_sqlite"
    store.close()
    again = backend.open(create=False)
    assert check_log(again) == 3
    do_step(again, row, 2)
    assert check_log(again) == 4


def test_a_stray_is_caught_also_when_another_process_has_made_a_new_wal(backend: Backend) -> None:
    """Closing our connection then must not write its old pages over the new ones."""
    store = backend.open()
    row = begin(store)
    do_step(store, row, 1)
    _stray(store.location)
    with Child("work", store.location, "other", 5) as child:
        assert child.hear() == "ready"
        child.say()
        assert child.end()[0] == 0
    with pytest.raises(Tampered) as caught:
        do_step(store, row, 2)
    assert caught.value.code == "stray_sqlite"
    store.close()
    again = backend.open(create=False)
    assert check_log(again) == 3 + 1 + 5


def test_a_store_that_is_closed_after_a_stray_without_another_commit_writes_nothing_old(backend: Backend) -> None:
    """Nobody asked the tripwire in between: close must ask it itself."""
    store = backend.open()
    row = begin(store)
    do_step(store, row, 1)
    _stray(store.location)
    with Child("work", store.location, "other", 5) as child:
        assert child.hear() == "ready"
        child.say()
        assert child.end()[0] == 0
    store.close()
    assert check_log(backend.open(create=False)) == 3 + 1 + 5


def test_closing_after_a_stray_does_not_delete_the_wal_of_somebody_else(backend: Backend) -> None:
    """The other process died and left its commits in a new WAL; ours went into one that no longer has a name."""
    store = backend.open()
    row = begin(store)
    do_step(store, row, 1)
    _stray(store.location)
    with Child("work", store.location, "other", 9, "commit.after", 5) as child:
        assert child.hear() == "ready"
        child.say()
        assert child.end()[0] == -9
    store.close()
    assert check_log(backend.open(create=False)) == 3 + 1 + 5


def test_limit_a_stray_beside_another_process_takes_our_locks_unnoticed(backend: Backend) -> None:
    """A limit, shown: with somebody else on the file the stray deletes nothing, so the tripwire sees nothing.

    What was committed is still right; but until we open anew, nothing keeps others from taking us for gone.
    """
    store = backend.open()
    row = begin(store)
    with Child("hold_open", store.location) as child:
        assert child.hear() == "open"
        _stray(store.location)
        do_step(store, row, 1)
        child.say()
        assert child.end()[0] == 0
    assert not Path(store.location + "-wal").exists(), "the other one closed as if it were the last"
    with pytest.raises(Tampered):
        do_step(store, row, 2)
    store.close()
    assert check_log(backend.open(create=False)) == 3


def test_a_file_that_was_replaced_is_not_opened_again_as_if_it_were_the_same(backend: Backend, tmp_path: Path) -> None:
    store = backend.open()
    begin(store)
    other = backend.open("other")
    begin(other)
    other.close()
    store._shared.writer().let_go()
    (tmp_path / "other.db").replace(tmp_path / "log.db")
    with pytest.raises(Tampered) as caught:
        begin(store, "lost")
    assert caught.value.code == "store_replaced"


# Renamed, deleted, replaced


def _move_away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _replace_by_a_copy(path: Path) -> None:
    """What an editor or a tool for syncing folders does: the name leads to other bytes, which look the same."""
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    _move_away(path)
    copy.rename(path)


@pytest.mark.parametrize("act", [_move_away, Path.unlink, _replace_by_a_copy])
@pytest.mark.parametrize("durability", ["full", "extra"])
def test_nothing_is_committed_into_a_file_that_lost_its_name(
    tmp_path: Path, act: Callable[[Path], object], durability: str
) -> None:
    """Its commits would lie in a -wal file beside a name where nobody finds them, or in a file without a name."""
    with sqlite_backend(tmp_path, durability) as backend:
        store = backend.open()
        row = begin(store)
        do_step(store, row, 1)
        act(tmp_path / "log.db")
        for _ in range(2):
            with pytest.raises(Tampered, match="renamed, deleted or replaced") as caught:
                do_step(store, row, 2)
            assert caught.value.code == "store_replaced"
        if durability == "full":
            assert f"{store.location}-wal" in caught.value.hint


@pytest.mark.parametrize("killed", [False, True])
def test_a_file_that_is_brought_back_has_every_commit(tmp_path: Path, killed: bool) -> None:
    path, away = tmp_path / "log.db", tmp_path / "moved.db"
    with Child("work", path, "r", 20_000) as child:
        assert child.hear() == "ready"
        child.say()
        for key in range(4):
            assert child.hear() == str(key)
        path.rename(away)
        if killed:
            child.kill()
        else:
            with pytest.raises(AssertionError, match="renamed, deleted or replaced"):
                child.end()
    assert Path(f"{path}-wal").exists()
    with sqlite_backend(tmp_path, "full") as backend, pytest.raises(Refused) as caught:
        backend.open()
    assert caught.value.code == "commits_left"
    assert Path(f"{path}-wal").exists(), "SQLite deletes it with an empty file"
    away.rename(path)
    with sqlite_backend(tmp_path, "full") as backend:
        store = backend.open(create=False)
        row = store.reader().find_run("r")
        assert row is not None
        assert len(store.reader().result_keys(row.row_id)) >= 4
        do_step(store, row, 100)
        check_log(store)


@pytest.mark.parametrize("act", [_move_away, Path.unlink])
def test_a_connection_that_finds_its_name_gone_says_what_happened(
    backend: Backend, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    store = backend.open()
    row = begin(store)
    store._shared.writer().let_go()
    act(tmp_path / "log.db")
    for use in (lambda: do_step(store, row, 1), lambda: store._shared.guarded.head()):
        with pytest.raises(Tampered) as caught:
            use()
        assert caught.value.code == "store_replaced"


# Two names


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_with_two_names_is_not_opened_under_either(backend: Backend, tmp_path: Path, readonly: bool) -> None:
    begin(backend.open())
    backend.open().close()
    os.link(tmp_path / "log.db", tmp_path / "second.db")
    for name in ("log", "second"):
        with pytest.raises(Refused) as caught:
            backend.open(name, create=False, readonly=readonly)
        assert caught.value.code == "hard_linked"
    assert not (tmp_path / "second.db-wal").exists()
    (tmp_path / "second.db").unlink()
    assert check_log(backend.open(create=False)) == 2


def test_who_has_the_file_open_goes_on_when_it_gets_a_second_name(backend: Backend, tmp_path: Path) -> None:
    """A tool for backups may do that; what is open is used under the one name."""
    store = backend.open()
    row = begin(store)
    os.link(tmp_path / "log.db", tmp_path / "second.db")
    do_step(store, row, 1)
    store._shared.writer().let_go()
    do_step(store, row, 2)
    assert check_log(store) == 4


# A folder that cannot be looked at


def test_a_wal_file_that_cannot_be_looked_at_ends_the_commit_in_unavailable(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.open()
    row = begin(store)
    look = os.stat

    def blind(path: object, **settings: object) -> os.stat_result:
        if str(path).endswith("-wal"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return look(path, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("agent_run_ledger.store.sqlite.os.stat", blind)
    with pytest.raises(Unavailable) as caught:
        do_step(store, row, 1)
    assert caught.value.code == "cannot_open"
    store.close()
    monkeypatch.undo()
    again = backend.open(create=False)
    do_step(again, row, 1)
    assert check_log(again) == 3
