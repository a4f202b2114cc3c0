"""Several statements in one message to a PostgreSQL server: answers, errors, and what an interrupt leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import Refused
from agent_run_ledger.store import postgres_wire
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_move import PostgresFilling
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.store.postgres_writer import PostgresWriter
from tests.contract.store_kit import begin, begin_in, check_log, do_step, op
from tests.services.postgres import Cluster

pytestmark = pytest.mark.server


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.url(postgres.new_database())


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    made = connect(place_of(url, wait_s=10.0, entropy=SystemEntropy()))
    yield made
    made.close()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = open_postgres(url, create=True)
    yield opened
    opened.close()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Interrupt the next batch: when so many of its answers were taken."""
    answered = postgres_wire._answered

    def after(answers: int) -> None:
        left = [answers]

        def hit(pgconn: Any) -> Any:
            if left[0] == 0:
                left[0] -= 1
                raise KeyboardInterrupt
            left[0] -= 1
            return answered(pgconn)

        monkeypatch.setattr(postgres_wire, "_answered", hit)

    return after


def test_each_answer_is_that_of_its_statement_with_the_values_as_they_were_sent(connection: Connection) -> None:
    batch = connection.batch()
    values = (2**62, "naïve %", b"\0\xff", None, True)
    answers = [batch.add("SELECT %s, %s, %s, %s::text, %s, '%'", (*values[:4], number)) for number in range(3)]
    other = batch.add("SELECT 'other'")
    batch.send()
    assert [one.fetchall() for one in answers] == [[(*values[:4], number, "%")] for number in range(3)]
    assert other.fetchall() == [("other",)]
    assert (other.rowcount, other.statusmessage) == (1, "SELECT 1")
    assert connection.ask("SELECT %s", (True,)) == [(1,)]
    assert connection.is_idle


def test_nothing_is_sent_before_it_is_to_be(connection: Connection) -> None:
    batch = connection.batch()
    answer = batch.add("CREATE TABLE public.t (id BIGINT)")
    with pytest.raises(psycopg.InterfaceError):
        answer.fetchall()
    assert connection.ask("SELECT to_regclass('public.t') IS NULL") == [(True,)]
    with pytest.raises(psycopg.DataError):
        batch.add("SELECT %s", ("a\0b",))
    batch.send()
    batch.send()
    assert connection.ask("SELECT to_regclass('public.t') IS NULL") == [(False,)]


def test_what_comes_after_an_error_is_skipped_and_the_error_is_told(connection: Connection) -> None:
    connection.ask("CREATE TABLE public.t (id BIGINT PRIMARY KEY)")
    batch = connection.batch()
    batch.add("BEGIN")
    batch.add("INSERT INTO public.t VALUES (%s)", (1,))
    batch.add("INSERT INTO public.t VALUES (%s)", (1,))
    skipped = batch.add("SELECT 'skipped'")
    batch.add("COMMIT", prepare=False)
    with pytest.raises(psycopg.errors.UniqueViolation):
        batch.send()
    with pytest.raises(psycopg.InterfaceError):
        skipped.fetchall()
    assert not connection.is_idle
    connection.ask("ROLLBACK")
    assert connection.is_idle
    assert connection.ask("SELECT count(*) FROM public.t") == [(0,)]
    assert connection.ask("SELECT 'skipped'") == [("skipped",)], "it was never parsed"


def test_a_statement_that_could_not_be_parsed_is_not_known(connection: Connection) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.ask("SELECT 1 FROM public.later")
    connection.ask("CREATE TABLE public.later (id BIGINT)")
    assert connection.ask("SELECT 1 FROM public.later") == []


def test_beyond_so_many_statements_the_others_are_parsed_each_time(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_wire, "MOST_PREPARED", 2)
    for number in (0, 1, 2, 3, 0, 3):
        assert connection.ask(f"SELECT {number}") == [(number,)]
    assert connection.ask("SELECT count(*) FROM pg_prepared_statements") == [(2,)]


def test_more_than_fits_into_the_buffers_of_both_sides_does_not_stand_still(connection: Connection) -> None:
    batch, big = connection.batch(), os.urandom(1 << 20)
    answers = [batch.add("SELECT %s::bytea", (big,)) for _ in range(24)]
    batch.send()
    assert all(one.fetchall() == [(big,)] for one in answers)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_an_interrupted_transaction_leaves_nothing_and_the_next_one_works(
    store: PostgresStore, interrupted: Callable[[int], None], answers: int
) -> None:
    """Wherever in the answers it comes: those that are left are not taken for answers to something else."""
    row = begin(store)
    interrupted(answers)
    with pytest.raises(KeyboardInterrupt):
        do_step(store, row, 1)
    do_step(store, row, 1)
    assert check_log(store) == 3


def test_an_interrupt_while_the_commit_is_on_its_way_leaves_the_store_usable(
    store: PostgresStore, interrupted: Callable[[int], None]
) -> None:
    """Whether it landed nobody was told; the log is whole either way."""
    row = begin(store)
    interrupted(4)
    with pytest.raises(KeyboardInterrupt):
        do_step(store, row, 1)
    do_step(store, row, 2)
    assert check_log(store) in (3, 4)


def test_an_interrupted_question_is_not_answered_to_the_next_one(
    store: PostgresStore, interrupted: Callable[[int], None]
) -> None:
    begin(store)
    interrupted(0)
    with pytest.raises(KeyboardInterrupt):
        store.reader().head()
    assert store.reader().find_run("r") is not None
    assert store.lock_run("r") is not None
    interrupted(0)
    with pytest.raises(KeyboardInterrupt):
        store.lock_run("other")
    assert not store.is_run_live("other")


def test_a_connection_that_was_left_in_the_middle_is_given_up(
    connection: Connection, interrupted: Callable[[int], None]
) -> None:
    interrupted(0)
    with pytest.raises(KeyboardInterrupt):
        connection.ask("SELECT 1")
    assert not connection.is_idle
    with pytest.raises(psycopg.OperationalError):
        connection.ask("SELECT 2")
    assert connection.closed


def test_a_server_that_ends_a_session_says_why(postgres: Cluster, connection: Connection) -> None:
    pid = connection.info.backend_pid
    batch = connection.batch()
    batch.add("SELECT 1")
    batch.add(f"SELECT pg_terminate_backend({pid})")
    last = batch.add("SELECT 2")
    with pytest.raises(psycopg.errors.AdminShutdown):
        batch.send()
    assert connection.closed
    with pytest.raises(psycopg.InterfaceError):
        last.fetchall()


# -- values that cannot be sent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["a\0b", "a\udc80b"])
def test_a_text_that_is_no_utf8_is_refused_and_the_connection_goes_on(store: PostgresStore, run_id: str) -> None:
    for ask in (lambda: store.reader().find_run(run_id), lambda: store.transact(op(), lambda tx: begin_in(tx, run_id))):
        with pytest.raises(Refused) as caught:
            ask()
        assert caught.value.code == "unstorable"
    begin(store)
    assert check_log(store) == 2


def test_nothing_is_locked_by_a_name_that_is_no_utf8(store: PostgresStore) -> None:
    for ask in (store.lock_run, store.is_run_live):
        with pytest.raises(Refused) as caught:
            ask("a\udc80b")
        assert caught.value.code == "unstorable"


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**63) - 1])
def test_a_number_of_more_than_64_bits_is_refused(store: PostgresStore, number: int) -> None:
    for ask in (store.reader().get_run, store.reader().record):
        with pytest.raises(Refused) as caught:
            ask(number)
        assert caught.value.code == "unstorable"
        assert "64 bits" in caught.value.message


# -- what comes beside answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_a_warning_of_something_else_says_nothing_of_the_commit(
    store: PostgresStore, postgres: Cluster, url: str, when: str
) -> None:
    """Also one that comes with the answer to COMMIT itself: who plugs into a server may say anything there."""
    warn = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'odd'; RETURN NULL; END$$"
    of = "CONSTRAINT TRIGGER" if when else "TRIGGER"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(warn)
        owner.execute(
            f"CREATE {of} odd AFTER INSERT ON agent_run_ledger.events {when} FOR EACH ROW EXECUTE FUNCTION warn()"  # type: ignore[arg-type]
        )
    heard = list[str | None]()
    connection = store._shared.writer()._connection
    assert connection is not None
    connection.add_notice_handler(lambda said: heard.append(said.message_primary))
    begin(store)
    assert heard == ["odd"]
    assert check_log(store) == 2


@pytest.mark.parametrize(
    ("severity", "source", "says"),
    [
        ("WARNING", "syncrep.c", True),
        ("WARNING", None, True),
        ("WARNING", "pl_exec.c", False),
        ("LOG", "syncrep.c", False),
    ],
)
def test_only_a_warning_that_comes_from_the_wait_for_standbys_is_one(
    severity: str, source: str | None, says: bool
) -> None:
    said: Any = SimpleNamespace(
        severity_nonlocalized=severity, source_file=source, message_primary="odd", sqlstate="01000"
    )
    writer, filling = PostgresWriter.__new__(PostgresWriter), PostgresFilling.__new__(PostgresFilling)
    for one in (writer, filling):
        one._warnings = []
        one._note(said)
        assert bool(one._warnings) is says
