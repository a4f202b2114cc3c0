"""What becomes of a transaction when the connection, the server or a standby fails: said, and never guessed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from agent_run_ledger.errors import LedgerError, Misuse, Refused, Tampered, Unavailable, Uncertain
from agent_run_ledger.ports import Question, Tx
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.store.postgres_wire import Batch
from agent_run_ledger.store.postgres_writer import PostgresWriter
from tests.contract.run_kit import until
from tests.contract.store_kit import (
    Backend,
    begin,
    begin_in,
    check_log,
    do_step,
    end_step,
    op,
    postgres_backend,
    start_step,
)
from tests.services.postgres import Cluster
from tests.services.relay import Relay, relay

pytestmark = pytest.mark.fault

COMMITS = b"COMMIT"


@pytest.fixture
def backend(postgres: Cluster) -> Iterator[Backend]:
    with postgres_backend(postgres) as made:
        yield made


@pytest.fixture
def store(backend: Backend) -> PostgresStore:
    return backend.open()  # type: ignore[return-value]


@pytest.fixture
def path(postgres: Cluster) -> Iterator[Relay]:
    with relay(postgres.port) as made:
        yield made


@pytest.fixture
def remote(postgres: Cluster, path: Relay) -> Iterator[PostgresStore]:
    """A store that is reached through the relay."""
    database = postgres.new_database()
    url = postgres.url(database).replace(f":{postgres.port}/", f":{path.port}/")
    opened = open_postgres(url, create=True, wait_s=2.0)
    yield opened
    opened.close()
    postgres.drop(database)


def _pid(store: PostgresStore) -> int:
    connection = store._shared.writer()._connection
    assert connection is not None
    return connection.info.backend_pid


def _database(store: PostgresStore) -> str:
    return store.location.rsplit("/", 1)[1]


def test_a_backend_that_is_ended_inside_of_a_transaction_leaves_nothing(
    postgres: Cluster, store: PostgresStore
) -> None:
    row = begin(store)

    def body(tx: Tx) -> None:
        begin_in(tx, "lost")
        postgres.run(f"SELECT pg_terminate_backend({_pid(store)})")
        until(lambda: not postgres.run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {_pid(store)}"))
        begin_in(tx, "lost too")

    with pytest.raises(Unavailable) as caught:
        store.transact(op(), body)
    assert caught.value.code == "connection_lost"
    assert store.reader().find_run("lost") is None
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_what_ends_a_transaction_is_all_that_is_heard_of_it(
    postgres: Cluster, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """What the driver logs is on the stderr of a program that has no logging: answers that nobody waited for."""

    def refused(tx: Tx) -> None:
        tx.write_later("INSERT INTO nowhere VALUES (1)", ())  # type: ignore[attr-defined]
        raise Refused("the program's own", code="own")  # unless the answer was quicker

    def ended(tx: Tx) -> None:
        postgres.run(f"SELECT pg_terminate_backend({_pid(store)}, 5000)")
        begin_in(tx, "lost")

    for body, codes in ((refused, ("own", "schema_changed")), (ended, ("connection_lost",))):
        with pytest.raises(LedgerError) as caught:
            store.transact(op(), body)
        assert caught.value.code in codes
    assert [one.getMessage() for one in caplog.records] == []
    assert logging.getLogger("psycopg.pipeline").isEnabledFor(logging.WARNING), "what else it warns of is still heard"
    begin(store)
    assert check_log(store) == 2


def test_connections_that_died_between_two_uses_are_replaced_without_a_word(
    postgres: Cluster, store: PostgresStore
) -> None:
    row = begin(store)
    lock = store.lock_run("r")
    store.reader().head()
    postgres.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{_database(store)}'")
    do_step(store, row, 1)
    assert store.reader().head().size == 3
    assert store.lock_run("r") is None, "its lock went with its connection, and was taken back"
    assert lock is not None
    lock.release()
    assert not store.is_run_live("r")


@pytest.mark.parametrize("ask", [True, False])
def test_a_lock_that_was_lost_with_its_connection_is_not_told_as_held(
    postgres: Cluster, store: PostgresStore, ask: bool
) -> None:
    """Somebody else has it by the time at which the loss is noticed."""
    lost, pid = store.lock_run("r"), "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
    postgres.run(f"SELECT pg_terminate_backend(pid, 5000) FROM ({pid}) AS holder", _database(store))
    other = open_postgres(f"{postgres.url(_database(store))}?application_name=other", create=False)
    others = other.lock_run("r")
    assert others is not None
    if ask:
        assert store.is_run_live("r")
    assert store.lock_run("r") is None
    others.release()
    other.close()
    assert not store.is_run_live("r")
    again = store.lock_run("r")
    assert again is not None
    for lock in (lost, again):
        assert lock is not None
        lock.release()
    assert not store.is_run_live("r")


def test_a_commit_whose_reply_is_lost_is_found(remote: PostgresStore, path: Relay) -> None:
    row, called = begin(remote), []
    do_step(remote, row, 1)

    def body(tx: Tx) -> str:
        called.append(1)
        begin_in(tx, "other")
        path.cut_at(COMMITS, after=True)
        return "value"

    assert remote.transact(op(), body) == "value"
    assert called == [1]
    assert remote.reader().find_run("other") is not None
    assert check_log(remote) == 4


def test_a_step_takes_three_round_trips(remote: PostgresStore, path: Relay) -> None:
    """Begin, lock and clock; what is asked; what is written, with the leaf and COMMIT."""
    row = begin(remote)
    do_step(remote, row, 1)  # statements are prepared

    def body(tx: Tx) -> None:
        assert tx.standing(row.row_id).generation == 1
        start_step(tx, row, 2)
        end_step(tx, row, 2)

    before = path.turns
    remote.transact(op(), body)
    assert path.turns - before == 3
    before = path.turns
    do_step(remote, row, 3)
    assert path.turns - before == 2


def test_what_a_transaction_asks_first_is_asked_with_the_lock(remote: PostgresStore, path: Relay) -> None:
    row = begin(remote)
    do_step(remote, row, 1)
    first = [Question("standing", row.row_id), Question("in_flight", row.row_id), Question("find_run", "nobody")]

    def body(tx: Tx) -> None:
        assert tx.standing(row.row_id).generation == 1
        assert tx.in_flight(row.row_id) == []
        assert tx.find_run("nobody") is None
        start_step(tx, row, 2)
        end_step(tx, row, 2)

    remote.transact(op(), lambda tx: [tx.standing(row.row_id), tx.in_flight(row.row_id), tx.find_run("nobody")])
    before = path.turns
    remote.transact(op(), body, first=first)
    assert path.turns - before == 2
    assert check_log(remote) == 4


def test_what_was_asked_with_the_lock_is_asked_again_after_a_write(store: PostgresStore) -> None:
    row = begin(store)

    def body(tx: Tx) -> list[int]:
        start_step(tx, row, 1, lane=3)
        return [mark.lane for mark in tx.in_flight(row.row_id)]

    assert store.transact(op(), body, first=[Question("in_flight", row.row_id)]) == [3]


def test_what_is_asked_first_is_answered_behind_the_lock(postgres: Cluster, store: PostgresStore) -> None:
    """What somebody changed while the lock was waited for is seen: a superseded attempt is told so."""
    row = begin(store)
    seen: list[str] = []
    first = [Question("standing", row.row_id)]
    ask = lambda: seen.append(store.transact(op(), lambda tx: tx.standing(row.row_id).reason, first=first))  # noqa: E731
    thread = threading.Thread(target=ask)
    with psycopg.connect(postgres.url(_database(store))) as other:
        other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
        thread.start()
        until(lambda: bool(postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted")))
        other.execute("UPDATE agent_run_ledger.runs SET reason = 'changed meanwhile'")
    thread.join()
    assert seen == ["changed meanwhile"]


def test_what_is_written_without_waiting_is_refused_by_the_commit_at_the_latest(remote: PostgresStore) -> None:
    row = begin(remote)
    do_step(remote, row, 1)
    for more in (1, 2):
        with pytest.raises(Refused) as caught:
            remote.transact(op(), lambda tx, more=more: [end_step(tx, row, 1) for _ in range(more)])  # type: ignore[misc]
        assert caught.value.code == "already_recorded"
    do_step(remote, row, 2)
    assert check_log(remote) == 4


def test_a_commit_that_never_arrived_is_unavailable_and_not_there(remote: PostgresStore, path: Relay) -> None:
    row = begin(remote)
    do_step(remote, row, 1)

    def body(tx: Tx) -> None:
        begin_in(tx, "other")
        path.cut_at(COMMITS, after=False)

    with pytest.raises(Unavailable) as caught:
        remote.transact(op(), body)
    assert caught.value.code == "connection_lost"
    assert remote.reader().find_run("other") is None
    assert check_log(remote) == 3


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_outcome_nobody_can_look_up_is_uncertain_until_somebody_can(
    remote: PostgresStore, path: Relay, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    row, operation = begin(remote), op()
    do_step(remote, row, 1)
    writer = remote._shared.writer()
    looked_for = type(writer)._look_for

    def unreachable(*arguments: object) -> bool:
        path.go_down()
        return looked_for(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(writer), "_look_for", unreachable)

    def body(tx: Tx) -> None:
        begin_in(tx, "other")
        path.cut_at(COMMITS, after=landed)

    with pytest.raises(Uncertain) as caught:
        remote.transact(operation, body)
    assert caught.value.code == "commit_unknown"
    assert operation.hex() in caught.value.message
    path.come_back()
    assert (remote.reader().find_run("other") is not None) is landed
    if landed:
        with pytest.raises(Refused) as again:
            remote.transact(operation, lambda tx: begin_in(tx, "again"))
        assert again.value.code == "already_committed"
    check_log(remote)


def test_an_operation_that_is_on_record_is_named_however_early_the_server_says_so(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal is an answer to the leaf, and may come before COMMIT is sent."""
    begin(store)
    operation = op()
    store.transact(operation, lambda tx: begin_in(tx, "one"))
    append = PostgresWriter._append

    def hears(self: PostgresWriter, batch: Batch, *more: Any) -> None:
        append(self, batch, *more)
        batch.ask("SELECT 1")

    monkeypatch.setattr(PostgresWriter, "_append", hears)
    with pytest.raises(Refused) as caught:
        store.transact(operation, lambda tx: begin_in(tx, "two"))
    assert caught.value.code == "already_committed"
    assert check_log(store) == 3


def test_a_lookup_waits_for_who_holds_the_head_and_guesses_nothing_when_that_stays(
    postgres: Cluster, path: Relay
) -> None:
    database = postgres.new_database()
    url = postgres.url(database).replace(f":{postgres.port}/", f":{path.port}/")
    store = open_postgres(url, create=True, wait_s=0.3)
    begin(store)
    with psycopg.connect(postgres.url(database)) as other:
        waiter = threading.Thread(target=lambda: other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE"))

        def body(tx: Tx) -> None:
            begin_in(tx, "other")
            waiter.start()
            until(lambda: bool(postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted")))
            path.cut_at(COMMITS, after=False)

        with pytest.raises(Uncertain) as caught:
            store.transact(op(), body)
        waiter.join()
    assert caught.value.code == "commit_unknown"
    assert store.reader().find_run("other") is None
    store.close()
    postgres.drop(database)


def test_a_head_that_stays_locked_is_unavailable_and_the_body_does_not_run(
    postgres: Cluster, store: PostgresStore, backend: Backend
) -> None:
    store.close()
    hurried = backend.open(create=False, wait_s=0.2)
    ran: list[int] = []
    with psycopg.connect(postgres.url(_database(hurried))) as other:  # type: ignore[arg-type]
        other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
        with pytest.raises(Unavailable) as caught:
            hurried.transact(op(), lambda tx: ran.append(1))
    assert caught.value.code == "store_busy"
    assert ran == []
    begin(hurried)


def test_a_holder_that_waits_for_a_moment_keeps_its_session(
    postgres: Cluster, store: PostgresStore, backend: Backend
) -> None:
    """Somebody in a hurry gives up, and ends nobody who may only be slow."""
    store.close()
    hurried = backend.open(create=False, wait_s=0.2)
    with psycopg.connect(postgres.url(_database(hurried))) as other:  # type: ignore[arg-type]
        other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
        with pytest.raises(Unavailable):
            begin(hurried)
        assert other.execute("SELECT 1").fetchall() == [(1,)]
    begin(hurried)


def test_the_clock_is_read_after_the_lock_was_waited_for(postgres: Cluster, store: PostgresStore) -> None:
    """A blocker that rolls back: its waiter's row is not read anew, so only a statement of its own reads the clock."""
    begin(store)
    times: list[int] = []
    thread = threading.Thread(target=lambda: times.append(store.transact(op(), lambda tx: tx.now_ms)))
    now = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"  # as the store reads it
    with psycopg.connect(postgres.url(_database(store))) as other:
        other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
        thread.start()
        until(lambda: bool(postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted")))
        postgres.run("SELECT pg_sleep(0.05)")
        released_ms = postgres.run(now)[0][0]
        other.rollback()
    thread.join()
    assert times[0] >= released_ms


def test_a_server_that_undoes_a_transaction_is_unavailable_and_nothing_is_there(
    postgres: Cluster, store: PostgresStore
) -> None:
    row = begin(store)

    def body(tx: Tx) -> None:
        begin_in(tx, "other")
        tx.fetch("SELECT pg_sleep(0) FROM nowhere", ())  # type: ignore[attr-defined]

    with pytest.raises(Tampered):
        store.transact(op(), body)
    do_step(store, row, 1)
    assert store.reader().find_run("other") is None
    assert check_log(store) == 3


def test_the_rows_that_every_step_rewrites_stay_on_their_pages(postgres: Cluster, store: PostgresStore) -> None:
    """New versions take the place of old ones on the same page, and no index grows with them."""
    row = begin(store)
    for key in range(300):
        store.transact(op(), lambda tx, key=key: start_step(tx, row, key))  # type: ignore[misc]
        store.transact(op(), lambda tx, key=key: end_step(tx, row, key))  # type: ignore[misc]
    found = postgres.run(
        "SELECT relname, pg_relation_size(oid), pg_indexes_size(oid) FROM pg_class "
        "WHERE relname IN ('head', 'in_flight') AND relnamespace = 'agent_run_ledger'::regnamespace",
        _database(store),
    )
    page = 8_192
    assert {name: size // page for name, size, _ in found}["head"] <= 4
    assert {name: size // page for name, _, size in found}["head"] <= 2


def test_a_log_that_went_back_is_not_written_to_by_who_knew_more(backend: Backend) -> None:
    store = backend.open()
    row = begin(store)
    older = store.reader().head()
    do_step(store, row, 1)
    frontier = b"".join(older.frontier).hex()
    backend.forge("log", f"UPDATE head SET size = {older.size}, frontier = x'{frontier}'")
    with pytest.raises(Tampered) as caught:
        do_step(store, row, 2)
    assert caught.value.code == "store_replaced"


def test_a_text_with_a_nul_is_refused_and_nothing_of_it_is_there(store: PostgresStore) -> None:
    with pytest.raises(Refused) as caught:
        store.transact(op(), lambda tx: begin_in(tx, "a\0b"))
    assert caught.value.code == "unstorable"
    assert check_log(store) == 1


@pytest.mark.parametrize(
    "change",
    ["UPDATE events SET op_id = op_id", "DELETE FROM events", "TRUNCATE events", "TRUNCATE tiles", "TRUNCATE records"],
)
def test_not_even_the_owner_changes_history(backend: Backend, change: str) -> None:
    begin(backend.open())
    with pytest.raises(psycopg.errors.IntegrityError):
        backend.edit("log", change)


def test_a_closed_store_is_misuse(store: PostgresStore) -> None:
    reader = store.reader()
    store.close()
    store.close()
    for use in (lambda: begin(store), store.reader, lambda: store.lock_run("r"), reader.head):
        with pytest.raises(Misuse) as caught:
            use()
        assert caught.value.code == "store_closed"
