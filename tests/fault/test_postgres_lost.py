"""What a server that crashes has lost while a process goes on: found, put back on record, and never guessed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from agent_run_ledger import Budget, LedgerError, Reserve, RunLedger, Tampered, codecs
from agent_run_ledger.errors import Superseded, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ports import Tx
from agent_run_ledger.runs.batches import Batch
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.opened_run import SCOPE_KEY
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_failures import is_lost, is_refusal
from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.store.postgres_writer import PostgresWriter
from agent_run_ledger.testing import check_ledger
from tests.contract.budget_kit import Hand
from tests.contract.run_kit import records_of, row_of, store_of
from tests.contract.store_kit import begin, begin_in, check_log, op
from tests.services.servers import Server, eventually, serving

pytestmark = pytest.mark.fault

TIMES = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that writes to its disk what need not be there only when something else has to be."""
    with serving(wal_writer_delay="10s", autovacuum="off") as started:
        yield started


@pytest.fixture
def url(server: Server) -> str:
    return server.url(server.new_database())


@pytest.fixture
def ledger(url: str) -> Iterator[RunLedger]:
    with RunLedger(url=url) as made:
        yield made
    check_ledger(url)


def size(ledger: RunLedger) -> int:
    return store_of(ledger).reader().head().size


def crash(server: Server, ledger: RunLedger, *, takes: int) -> None:
    """The server dies and comes again, without its last leaves."""
    before = size(ledger)
    server.kill()
    server.start()
    assert size(ledger) == before - takes, "the server wrote what it need not have written"


# -- a commit ---------------------------------------------------------------------------------------------------------


def test_a_session_that_is_ended_inside_of_commit_is_no_word_about_the_commit(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM is acted on behind the flush: what the server says last is that it ends the session."""
    url = server.url(server.new_database())
    store = open_postgres(f"{url}?options=-c%20commit_delay%3D100000%20-c%20commit_siblings%3D0", create=True)
    looked, look_for = list[bool](), PostgresWriter._look_for

    def counted(self: PostgresWriter, *arguments: object) -> bool:
        looked.append(look_for(self, *arguments))  # type: ignore[arg-type]
        return looked[-1]

    monkeypatch.setattr(PostgresWriter, "_look_for", counted)
    with psycopg.connect(server.url(), autocommit=True) as other:
        for number in range(TIMES):
            begin(store, f"before {number}")
            connection = store._shared.writer()._connection
            assert connection is not None
            pid = connection.info.backend_pid

            def end(pid: int = pid) -> None:
                asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND query = 'COMMIT' AND state = 'active'"
                eventually(lambda: bool(other.execute(asked, (pid,)).fetchall()))
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))

            thread = threading.Thread(target=end)

            def body(tx: Tx, number: int = number, thread: threading.Thread = thread) -> str:
                begin_in(tx, f"ended {number}")
                thread.start()
                return "value"

            assert store.transact(op(), body) == "value"
            thread.join()
            assert store.reader().find_run(f"ended {number}") is not None
    assert True in looked, "no session was ended inside of its commit"
    assert check_log(store) == 1 + 2 * TIMES
    store.close()


def test_a_commit_is_looked_for_until_its_server_is_there_again(server: Server, url: str) -> None:
    """It had lost a leaf that it need not have kept: that says nothing of the one which is looked for."""
    store = open_postgres(url, create=True, wait_s=30.0)
    begin(store, "kept")
    store.transact(op(), lambda tx: begin_in(tx, "lost"), sync=False)
    assert store.reader().head().size == 3

    said, killed = list[LedgerError](), threading.Event()

    def body(tx: Tx) -> None:
        begin_in(tx, "sent to nobody")
        server.kill()
        killed.set()

    def commit() -> None:
        try:
            store.transact(op(), body)
        except LedgerError as error:
            said.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    assert killed.wait(30)
    time.sleep(0.5)
    server.start()  # not from a thread: what started it must not end before it
    thread.join()
    assert [(type(one), one.code) for one in said] == [(Unavailable, "connection_lost")]
    found = [store.reader().find_run(name) is not None for name in ("kept", "lost", "sent to nobody")]
    assert found == [True, False, False]
    begin(store, "after")
    assert check_log(store) == 3
    store.close()


def test_only_what_the_session_outlives_is_a_refusal(server: Server) -> None:
    """By what the server says: an error of a statement, the end of a session, and a value that it never got."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        said = list[psycopg.Error]()
        asked: list[tuple[str, tuple[object, ...]]] = [
            ("SELECT 1 / 0", ()),
            ("SELECT %s::text", ("a\0b",)),
            ("SELECT pg_terminate_backend(pg_backend_pid())", ()),
            ("SELECT 1", ()),
        ]
        for sql, values in asked:
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(sql, values)
            said.append(caught.value)
    assert said[2].sqlstate == "57P01"
    assert [is_refusal(error) for error in said] == [True, False, False, False]
    assert [is_lost(error) for error in said] == [False, False, True, True]


# -- an attempt -------------------------------------------------------------------------------------------------------


def test_starts_that_a_crash_took_are_put_on_record_with_what_ends_them(server: Server, ledger: RunLedger) -> None:
    """Also in the budgets; and other runs of the process go on as if nothing had been."""
    budgets = {"": Budget(max_calls=10, max_tokens=100)}
    hand = Hand(ledger, "r1", budgets=budgets, dynamic={SCOPE_KEY: bytes(32).hex()})
    (ended, left, kept), _ = hand.begin_all([(name, Reserve(tokens=20)) for name in ("ended", "left", "kept")])
    crash(server, ledger, takes=1)
    hand.end(ended)
    hand.leave(left)
    hand.end(kept)
    hand.end(hand.begin("later"))
    kinds = (RecordKind.RESULT, RecordKind.ABANDONED)
    assert [(one.kind, one.name) for one in records_of(ledger, *kinds)] == [
        (RecordKind.RESULT, "ended"),
        (RecordKind.ABANDONED, "left"),
        (RecordKind.RESULT, "kept"),
        (RecordKind.RESULT, "later"),
    ]
    other = Hand(ledger, "another")
    other.end(other.begin())
    for one in (hand, other):
        one.fail()


def test_starts_that_a_crash_left_are_not_put_there_twice(server: Server, ledger: RunLedger) -> None:
    """What was lost is later than they are."""
    hand = Hand(ledger, "r1")
    kept = hand.begin("kept")
    Hand(ledger, "another").die()  # its START is synced, and all before it
    lost = hand.begin("lost")
    crash(server, ledger, takes=1)
    hand.end(kept)
    hand.end(lost)
    hand.fail()
    assert [one.name for one in records_of(ledger, RecordKind.RESULT)] == ["kept", "lost"]


def test_a_call_whose_start_was_lost_is_no_evidence_in_a_run_that_was_stopped(
    server: Server, ledger: RunLedger
) -> None:
    hand = Hand(ledger, "r1")
    started = hand.begin()
    crash(server, ledger, takes=1)
    decide(ledger._opened.context(), "r1", RunEvent.CANCEL, reason="because", actor="op")
    with pytest.raises(Superseded):
        hand.end(started)
    hand.die()
    assert records_of(ledger, RecordKind.RESULT) == []


def test_an_attempt_whose_recorded_value_was_lost_does_not_go_on_with_it(server: Server, ledger: RunLedger) -> None:
    hand = Hand(ledger, "r1")
    identity = CallIdentity(
        name="run.now", fingerprint=bytes(32), arguments={}, environment={}, version="1", scope=bytes(12)
    )
    value = hand.journal.value(identity, codecs.pack(7, limit_bytes=100), after=0)
    assert hand.journal.commit(Batch(values=[value])).value_ids
    crash(server, ledger, takes=1)
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            hand.begin()
        assert caught.value.code == "recorded_lost"
    hand.die()
    again = Hand(ledger, "r1")
    again.end(again.begin())
    again.fail()
    assert len(records_of(ledger, RecordKind.RESULT)) == 1


# -- readers ----------------------------------------------------------------------------------------------------------


def test_readers_go_with_the_writer_to_another_server(server: Server, url: str) -> None:
    """Those that are free, and those that somebody uses meanwhile: the old server may still answer them."""
    store = open_postgres(url, create=True)
    pool = store._shared.pool
    pid = lambda: pool.use(lambda connection: connection.info.backend_pid)  # noqa: E731

    def move() -> None:
        connection = store._shared.writer()._connection
        assert connection is not None
        server.run(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 5000)")
        store.transact(op(), lambda tx: begin_in(tx, f"r{len(seen)}"))

    seen = [pid()]
    assert pid() == seen[0], "it is kept while nothing happens"
    move()
    seen.append(pid())

    def read(connection: Connection) -> int:
        move()
        return connection.info.backend_pid

    assert pool.use(read) == seen[1]
    seen.append(pid())
    assert len(set(seen)) == 3
    assert check_log(store) == 3
    store.close()


# -- an older copy ----------------------------------------------------------------------------------------------------


def put_back(server: Server, name: str) -> Callable[[], None]:
    """Make a copy of a database, and return what puts it in its place."""
    server.run(f"CREATE DATABASE {name}_copy TEMPLATE {name}")

    def change() -> None:
        server.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        server.run(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'")
        server.run(f"ALTER DATABASE {name} RENAME TO {name}_gone")
        server.run(f"ALTER DATABASE {name}_copy RENAME TO {name}")

    return change


def test_who_finds_an_older_copy_that_was_written_on_writes_nothing_and_is_told_what_to_do(server: Server) -> None:
    name = server.new_database()
    url = server.url(name)
    open_postgres(url, create=True).close()
    change = put_back(server, name)
    with RunLedger(url=url) as mine:
        hand = Hand(mine, "mine")
        started = hand.begin()
        change()
        with RunLedger(url=f"{url}?application_name=other") as theirs:
            other = Hand(theirs, "another")
            for _ in range(3):
                other.end(other.begin())
            before = size(theirs)
            assert row_of(theirs, "another").row_id == hand.attempt.row.row_id
            with pytest.raises(Tampered) as caught:
                hand.end(started)
            assert caught.value.code == "store_replaced"
            assert "start the process again" in (caught.value.hint or "")
            with pytest.raises(LedgerError) as again:
                Hand(mine, "new")
            assert again.value.code == "store_replaced", "it is no better the second time"
            assert size(theirs) == before
            other.fail()
            hand.die()
    check_ledger(url)
