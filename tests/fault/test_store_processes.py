"""Many processes on one file, and processes that die: real ones, killed by SIGKILL."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import Refused, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.store import SqliteStore, open_sqlite
from agent_run_ledger.store.sidecar import _WAITING, _YIELD_S
from agent_run_ledger.store.sqlite import identify
from agent_run_ledger.store.sqlite_shared import registry
from tests.contract.store_kit import Backend, begin, check_log, do_step, op, sqlite_backend
from tests.fault.store_child import Child

pytestmark = pytest.mark.fault

POINTS = ("commit.begin", "commit.before", "commit.after")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def _results(store: SqliteStore, run_id: str) -> list[str]:
    row = store.reader().find_run(run_id)
    assert row is not None
    return [key.name for key in store.reader().result_keys(row.row_id)]


# Together


def test_eight_processes_write_one_log(backend: Backend) -> None:
    store = backend.open()
    each = 40
    children = [Child("work", store.location, f"r{i}", each) for i in range(8)]
    try:
        assert [child.hear() for child in children] == ["ready"] * 8
        for child in children:
            child.say()
        ends = [child.end() for child in children]
    finally:
        for child in children:
            child.__exit__()
    assert [code for code, _ in ends] == [0] * 8
    assert check_log(store) == 1 + 8 + 8 * each
    for i in range(8):
        assert _results(store, f"r{i}") == [f"step{key}" for key in range(each)]


def test_processes_and_threads_write_one_log_through_tiles(backend: Backend) -> None:
    store = backend.open()
    with Child("work", store.location, "a", 150) as first, Child("work", store.location, "b", 150) as second:
        for child in (first, second):
            assert child.hear() == "ready"
            child.say()
        row = begin(store, "c")
        for key in range(100):
            do_step(store, row, key)
        assert first.end()[0] == second.end()[0] == 0
    assert check_log(store) == 1 + 3 + 400
    assert store.reader().tile(0, 0) is not None


def test_processes_that_create_one_store_at_once_all_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    children = [Child("create", path) for _ in range(6)]
    try:
        assert [child.hear() for child in children] == ["ready"] * 6
        for child in children:
            child.say()
        ids = [child.end()[1].strip() for child in children]
    finally:
        for child in children:
            child.__exit__()
    store = open_sqlite(path, create=False)
    assert ids == [store.log_id.hex()] * 6
    assert check_log(store) == 1
    store.close()


# Killed


@pytest.mark.parametrize("sync", ["yes", "no"])
@pytest.mark.parametrize("nth", [1, 5])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_process_loses_nothing_it_was_told_and_leaves_nothing_half(
    backend: Backend, tmp_path: Path, point: str, nth: int, sync: str
) -> None:
    path = tmp_path / "log.db"
    with Child("work", path, "r", 20, point, nth, sync) as child:
        assert child.hear() == "ready"
        child.say()
        code, printed = child.end()
    assert code == -9
    told = printed.split()
    store = backend.open(create=False)
    landed = nth if point == "commit.after" else nth - 1
    assert _results(store, "r") == [f"step{key}" for key in range(landed)]
    assert told == [str(key) for key in range(nth - 1)]
    assert check_log(store) == 2 + landed
    row = store.reader().find_run("r")
    assert row is not None
    do_step(store, row, 77)
    assert check_log(store) == 3 + landed


def test_a_process_killed_inside_a_transaction_does_not_block_the_others(backend: Backend) -> None:
    store = backend.open(wait_s=20.0)
    with Child("inside", store.location) as child:
        assert child.hear() == "inside"
        child.kill()
    begin(store)
    assert store.reader().find_run("inside") is None
    assert check_log(store) == 2


def test_a_process_killed_while_it_creates_leaves_what_the_next_one_completes(tmp_path: Path) -> None:
    """Whatever byte was written last: the file is empty, or rolled back to empty, or a store."""
    script = tmp_path / "log.db"
    for nth in range(1, 120):
        with Child("die_creating", script, nth) as child:
            code, printed = child.end()
        if code == 0:
            assert printed.strip() == "created"
            break
        store = open_sqlite(script, create=True)
        assert check_log(store) == 1
        store.close()
        for path in tmp_path.glob("log.db*"):
            path.unlink()
    else:
        raise AssertionError("creation has more acts than this test has tries")
    assert nth > 8


# Stopped


def test_a_stopped_process_inside_a_transaction_ends_in_unavailable_not_in_waiting(backend: Backend) -> None:
    store = backend.open(wait_s=0.2)
    begin(store)
    with Child("inside", store.location) as child:
        assert child.hear() == "inside"
        child.stop()
        with pytest.raises(Unavailable) as caught:
            begin(store, "blocked")
        assert caught.value.code == "store_busy"
        assert len(store.reader().list_runs(state=None, before_row_id=None, limit=9)) == 1
        child.resume()
        child.say()
        assert child.hear() == "committed"
    begin(store, "after")
    assert check_log(store) == 4


def test_a_process_that_is_stopped_while_it_waits_stops_nobody(backend: Backend) -> None:
    store = backend.open(wait_s=60)
    with Child("turnstile", store.location) as holder:
        assert holder.hear() == "inside"
        with Child("work", store.location, "waiting", 0) as waiter:  # not before: it could pass and never wait
            while not store._shared.sidecar()._is_held_elsewhere(_WAITING):
                os.sched_yield()
            waiter.stop()
            holder.kill()
            row = begin(store)
            for key in range(20):
                do_step(store, row, key)
            waiter.resume()
            assert waiter.hear() == "ready"
            waiter.kill()
    assert check_log(store) == 23


def test_who_has_had_its_turn_lets_others_go_first(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a process that commits all the time would pass between two looks of those who wait."""
    naps: list[float] = []
    store = backend.open()
    begin(store)
    monkeypatch.setattr("agent_run_ledger.store.sidecar.time.sleep", naps.append)
    sidecar = store._shared.sidecar()
    with Child("turnstile", store.location) as holder:
        assert holder.hear() == "inside"
        with Child("work", store.location, "waiting", 0) as waiter:  # not before: it could pass and never wait
            while not sidecar._is_held_elsewhere(_WAITING):
                os.sched_yield()
            waiter.stop()
            holder.kill()
            for turn_ends_s, expected in ((float("inf"), []), (0.0, [_YIELD_S])):
                sidecar._turn_ends_s = turn_ends_s
                store.transact(op(), lambda tx: None)
                assert naps == expected
            waiter.resume()
            assert waiter.hear() == "ready"
            waiter.kill()


def test_an_opening_that_waits_keeps_no_other_store_from_being_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_sqlite(path, create=True).close()
    opened: list[SqliteStore] = []
    with Child("turnstile", path) as child:
        assert child.hear() == "inside"
        opening = threading.Thread(target=lambda: opened.append(open_sqlite(path, create=False, wait_s=600)))
        opening.start()
        door = registry._doors[identify(str(path))]  # type: ignore[index]
        while door.acquire(0):
            door.release()
            os.sched_yield()
        open_sqlite(tmp_path / "b.db", create=True, wait_s=1.0).close()
        with pytest.raises(Unavailable, match="being opened or closed") as caught:
            open_sqlite(path, create=False, wait_s=0.01)
        assert caught.value.code == "store_busy"
        assert opened == []
        child.kill()
        opening.join()
    assert check_log(opened[0]) == 1
    opened[0].close()


def test_a_program_that_knows_no_turnstile_is_waited_for_before_anything_is_read(backend: Backend) -> None:
    """The write lock comes first: a transaction that began without it would read a head that is already old."""
    store = backend.open(wait_s=0.1)
    called: list[object] = []
    with Child("write", store.location) as child:
        assert child.hear() == "writing"
        with pytest.raises(Unavailable) as caught:
            store.transact(op(), called.append)
        assert caught.value.code == "store_busy"
        assert called == []
        child.say()
        assert child.end()[0] == 0
    begin(store)
    assert check_log(store) == 2


# The attempt lock


def test_a_run_is_live_in_one_process_and_its_lock_dies_with_it(backend: Backend) -> None:
    store = backend.open()
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "locked"
        assert store.lock_run("r") is None
        other = store.lock_run("other")
        assert other is not None
        child.kill()
    lock = store.lock_run("r")
    assert lock is not None
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "none"
    lock.release()
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "locked"


@pytest.mark.parametrize("can_ask", [True, False])
def test_whether_a_run_is_live_is_known_in_every_process(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, can_ask: bool
) -> None:
    if not can_ask:
        monkeypatch.setattr("agent_run_ledger.store.sidecar._FLOCK", None)
    store = backend.open()
    assert not store.is_run_live("r")
    mine = store.lock_run("mine")
    assert mine is not None
    assert store.is_run_live("mine")
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "locked"
        assert store.is_run_live("r")
        assert not store.is_run_live("other")
        child.kill()
    assert not store.is_run_live("r")
    with Child("lock", store.location, "mine") as child:
        assert child.hear() == "none", "asking gave up a lock of ours"
    mine.release()


def test_who_asks_whether_a_run_is_live_refuses_no_start(backend: Backend) -> None:
    store = backend.open()
    with Child("watch", store.location, "r") as child:
        assert child.hear() == "watching"
        for _ in range(3_000):
            lock = store.lock_run("r")
            assert lock is not None
            lock.release()


def test_a_lock_file_that_is_cut_off_kills_nobody(tmp_path: Path) -> None:
    with Child("work", tmp_path / "log.db", "r", 5) as child:
        assert child.hear() == "ready"
        os.truncate(tmp_path / "log.db-lock", 0)
        child.say()
        assert child.end() == (0, "".join(f"{key}\n" for key in range(5)))
    again = open_sqlite(tmp_path / "log.db", create=False)
    assert check_log(again) == 7
    again.close()


def test_a_file_of_somebody_else_is_no_lock_file(tmp_path: Path) -> None:
    notes = tmp_path / "log.db-lock"
    notes.write_text("my notes\n")
    with pytest.raises(Refused) as caught:
        open_sqlite(tmp_path / "log.db", create=True)
    assert caught.value.code == "foreign_file"
    assert str(notes) in str(caught.value)
    assert notes.read_text() == "my notes\n"


def test_transactions_do_not_disturb_the_locks_of_runs(backend: Backend) -> None:
    """The turnstile and the runs are bytes of one file: passing the one must not give up the others."""
    store = backend.open()
    lock = store.lock_run("r")
    row = begin(store)
    for key in range(5):
        do_step(store, row, key)
    second = backend.open()
    second.close()
    reader = backend.open(create=False, readonly=True)
    assert reader.lock_run("r") is None
    probe = reader.lock_run("x")
    assert probe is not None
    probe.release()
    reader.close()
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "none"
    assert lock is not None
    lock.release()


def test_a_reopened_store_keeps_its_new_locks_when_the_old_one_is_collected(tmp_path: Path) -> None:
    old = open_sqlite(tmp_path / "log.db", create=True)
    old.lock_run("r")
    old.close()
    new = open_sqlite(tmp_path / "log.db", create=False)
    lock = new.lock_run("r")
    assert lock is not None
    del old
    gc.collect()
    with Child("lock", new.location, "r") as child:
        assert child.hear() == "none"
    lock.release()
    new.close()


@pytest.mark.parametrize("replace", [False, True])
def test_a_lock_file_that_somebody_removed_locks_nothing_and_says_so(backend: Backend, replace: bool) -> None:
    store = backend.open()
    row = begin(store)
    first = store.lock_run("r")
    assert first is not None
    os.unlink(store.location + "-lock")
    if replace:
        Path(store.location + "-lock").touch()
    with pytest.raises(Unavailable, match="deleted or replaced") as caught:
        store.lock_run("s")
    assert caught.value.code == "sidecar_replaced"
    do_step(store, row, 1)  # what is safe is the generation, not the lock
    first.release()
    store.close()
    again = backend.open()
    lock = again.lock_run("s")
    assert lock is not None
    assert check_log(again) == 3
    lock.release()


# Reading beside writers


def test_a_reader_sees_whole_transactions_while_another_process_writes(backend: Backend) -> None:
    store = backend.open()
    with Child("work", store.location, "r", 200) as child:
        assert child.hear() == "ready"
        reader = store.reader()
        row = reader.find_run("r")
        assert row is not None
        child.say()
        seen = -1
        while seen < 200:
            found = len(reader.result_keys(row.row_id))
            size = reader.head().size
            assert seen <= found <= size - 2
            assert reader.in_flight(row.row_id) == []
            seen = found
        assert child.end()[0] == 0
    assert len(list(reader.records(row.row_id, kinds=[RecordKind.RESULT]))) == 200
    check_log(store)


def test_an_idle_process_on_the_file_is_no_obstacle(backend: Backend) -> None:
    store = backend.open()
    with Child("hold_open", store.location) as child:
        assert child.hear() == "open"
        row = begin(store)
        do_step(store, row, 1)
        store.transact(op(), lambda tx: tx.find_run("r"))
        store.close()
        child.say()
        assert child.end()[0] == 0
    again = backend.open(create=False)
    assert check_log(again) == 3
