"""A second SQLite library in this process, which breaks its locks: what is noticed and what is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import Tampered
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
