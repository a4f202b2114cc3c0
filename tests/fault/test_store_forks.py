"""What a forked child may do with its parent's store: nothing, and open it anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Forked
from agent_run_ledger.ports import Tx
from agent_run_ledger.store import SqliteStore, StoreThread, open_sqlite
from tests.contract.store_kit import Backend, begin, begin_in, check_log, do_step, op, sqlite_backend
from tests.fault.store_child import Child

pytestmark = [pytest.mark.fault, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with sqlite_backend(tmp_path, "full") as made:
        yield made


def in_child(act: Callable[[], object]) -> str:
    """Fork, run `act` in the child and return what it returned or raised, as text. A child that hangs is ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            said = f"returned {act()}"
        except BaseException as error:
            said = f"raised {type(error).__name__}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


USES: list[Callable[[SqliteStore], object]] = [
    lambda store: begin(store, "child"),
    lambda store: store.reader(),
    lambda store: store.lock_run("x"),
    lambda store: store.stats(),
    lambda store: store.grant_authority(),
    lambda store: store.authority,
]


@pytest.mark.parametrize("use", USES)
def test_every_use_in_a_child_is_refused_and_the_parent_goes_on(
    backend: Backend, use: Callable[[SqliteStore], object]
) -> None:
    store = backend.open()
    begin(store)
    assert in_child(lambda: use(store)) == "raised Forked"
    begin(store, "after")
    assert check_log(store) == 3


def test_a_reader_that_the_parent_had_is_refused_too(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    reader = store.reader()
    records = reader.leaf_records(first=0, stop=5)
    assert in_child(reader.head) == "raised Forked"
    assert in_child(lambda: next(records)) == "raised Forked"
    assert next(records).run_row_id == row.row_id
    assert reader.head().size == 2


def test_closing_and_releasing_in_a_child_touches_nothing_of_the_parents(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    lock = store.lock_run("r")
    assert lock is not None

    def clean_up() -> None:
        lock.release()
        store.close()

    assert in_child(clean_up) == "returned None"
    with Child("lock", store.location, "r") as child:
        assert child.hear() == "none", "the parent's attempt lock survived"
    do_step(store, row, 1)
    lock.release()
    assert check_log(store) == 3


def test_a_child_can_open_the_store_anew_and_both_write(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)

    def work() -> int:
        own = open_sqlite(store.location, create=False)
        mine = begin(own, "child")
        for key in range(20):
            do_step(own, mine, key)
        size = own.reader().head().size
        own.close()
        return size

    assert in_child(work) == "returned 23"
    for key in range(20):
        do_step(store, row, key)
    assert check_log(store) == 43
    store.close()
    assert check_log(backend.open(create=False)) == 43


def test_a_child_that_outlives_its_parent_keeps_the_wal_alive(backend: Backend, tmp_path: Path) -> None:
    """The parent closes as if it were the last; what the child commits afterwards must still be in the file."""
    store = backend.open()
    begin(store)
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own = open_sqlite(store.location, create=False)
            mine = begin(own, "child")
            os.write(from_child, b"1")
            os.read(to_child, 1)
            for key in range(10):
                do_step(own, mine, key)
            os._exit(0)  # without closing: what is committed is in the file all the same
        except BaseException:
            os._exit(1)
    os.read(to_parent, 1)
    store.close()
    with Child("hold_open", tmp_path / "log.db") as other:
        assert other.hear() == "open"
        os.write(from_parent, b"1")
        assert os.waitpid(pid, 0)[1] == 0
    for each in (to_child, from_parent, to_parent, from_child):
        os.close(each)
    assert check_log(backend.open(create=False)) == 13


def test_a_fork_inside_a_transaction_leaves_the_parent_whole_and_the_child_without_the_file(backend: Backend) -> None:
    store = backend.open()

    def forking(tx: object) -> str:
        return in_child(lambda: open_sqlite(store.location, create=False))

    assert store.transact(op(), forking) == "raised Forked"
    begin(store)
    assert check_log(store) == 2


@pytest.mark.parametrize("use_tx", [False, True])
@pytest.mark.parametrize("durability", ["full", "extra"])
def test_a_child_that_comes_back_out_of_its_parents_transaction_commits_nothing(
    tmp_path: Path, use_tx: bool, durability: str
) -> None:
    """The child returns from fn as if nothing had happened, or goes on writing with the parent's Tx."""
    with sqlite_backend(tmp_path, durability) as made:
        store = made.open()
        reading, writing = os.pipe()

        def forking(tx: Tx) -> int:
            begin_in(tx, "r")
            pid = os.fork()
            if pid == 0 and use_tx:
                begin_in(tx, "child's")
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
            return pid

        pid = -1
        try:
            pid = store.transact(op(), forking)
        except Forked:
            os.write(writing, b"Forked")
            os._exit(0)
        finally:
            if pid == 0:
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "Forked"
        assert store.reader().find_run("child's") is None
        assert check_log(store) == 2


@pytest.mark.parametrize("durability", ["full", "extra"])
def test_a_child_of_a_fork_inside_a_transaction_ends_without_closing_the_parents_connection(
    tmp_path: Path, durability: str
) -> None:
    """The child ends through the interpreter's ordinary way out, which runs destructors: one would roll back."""
    script = """
        import os, sys
        from tests.contract.store_kit import begin, begin_in, check_log, op
        from agent_run_ledger.store import open_sqlite
        store = open_sqlite(sys.argv[1], create=True, durability=sys.argv[2])
        begin(store)
        def fork(tx):
            begin_in(tx, "kept")
            before = sorted(os.listdir())
            if os.fork() == 0:
                raise SystemExit(0)
            assert os.wait()[1] == 0
            assert sorted(os.listdir()) == before, "the journal of the transaction is gone"
        store.transact(op(), fork)
        begin(store, "after")
        print(check_log(store))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), tmp_path / "log.db", durability]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.stdout, done.returncode) == ("4\n", 0), done.stderr


def test_a_fork_waits_for_the_transaction_of_another_thread(backend: Backend) -> None:
    store = backend.open()
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: object) -> None:
        inside.set()
        go_on.wait()

    thread = threading.Thread(target=lambda: store.transact(op(), slow))
    thread.start()
    inside.wait()
    timer = threading.Thread(target=go_on.set)
    timer.start()
    assert in_child(lambda: open_sqlite(store.location, create=False).close()) == "returned None"
    thread.join()
    timer.join()
    begin(store)
    assert check_log(store) == 2


def test_many_forks_while_threads_write_lose_nothing(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    failed: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for key in range(first, first + 40):
                do_step(store, row, key)
                store.reader().head()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1_000)]
    for thread in threads:
        thread.start()
    answers = {in_child(store.reader) for _ in range(15)}
    for thread in threads:
        thread.join()
    assert failed == []
    assert answers == {"raised Forked"}
    assert check_log(store) == 82


def test_the_thread_for_async_callers_is_the_parents_alone() -> None:
    thread = StoreThread()

    async def call() -> int:
        return await thread.call(lambda: 1)

    def use() -> int:
        import asyncio

        return asyncio.run(call())

    assert use() == 1
    assert in_child(use) == "raised Forked"
    assert use() == 1
    thread.close()


def test_a_child_makes_ids_of_its_own() -> None:
    entropy = SystemEntropy()
    before = entropy.uuid7()
    child = in_child(lambda: entropy.uuid7().hex()).removeprefix("returned ")
    after = entropy.uuid7().hex()
    assert len({before.hex(), child, after}) == 3
    assert child[:22] != after[:22], "the counters part at the fork, not only the random tails"


def test_forked_is_misuse_that_names_the_store(backend: Backend) -> None:
    store = backend.open()

    def use() -> str:
        with pytest.raises(Forked) as caught:
            begin(store)
        return f"{caught.value.exit_code} {store.location in str(caught.value)}"

    assert in_child(use) == "returned 2 True"
