"""A database that is away for a while: what is in hand waits for it and is recorded, and nobody waits without end."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import LedgerError, Refused, Unavailable
from agent_run_ledger.ports import Tx
from agent_run_ledger.store import postgres_writer
from agent_run_ledger.store.postgres import Place
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_outage import Outage
from agent_run_ledger.store.postgres_store import PostgresStore, open_postgres
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import store_of
from tests.contract.store_kit import begin, begin_in, check_log, op
from tests.services.postgres import Cluster
from tests.services.relay import Relay, relay

pytestmark = pytest.mark.fault

COMMITS = b"COMMIT"
Hear = Callable[[Callable[[int], None]], None]


@pytest.fixture
def path(postgres: Cluster) -> Iterator[Relay]:
    with relay(postgres.port) as made:
        yield made


@pytest.fixture
def name(postgres: Cluster) -> Iterator[str]:
    made = postgres.new_database()
    yield made
    postgres.drop(made)


@pytest.fixture
def url(postgres: Cluster, path: Relay, name: str) -> str:
    return postgres.url(name).replace(f":{postgres.port}/", f":{path.port}/")


@pytest.fixture
def ledger(url: str) -> Iterator[RunLedger]:
    with RunLedger(url=url) as made:
        yield made
    check_ledger(url)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Hear:
    """Have something done before each wait, which is told how many there were."""
    wait, made = Outage.wait, list[int]()

    def hear(act: Callable[[int], None]) -> None:
        def heard(self: Outage, error: Unavailable, pauses: int, *, since_s: float) -> None:
            made.append(pauses)
            act(len(made))
            wait(self, error, pauses, since_s=since_s)

        monkeypatch.setattr(Outage, "wait", heard)

    return hear


def outage_of(store: PostgresStore) -> Outage:
    return store._shared.writer().outage


def back_at(path: Relay, number: int) -> Callable[[int], None]:
    return lambda made: path.come_back() if made == number else None


def put(store: PostgresStore, name: str) -> str:
    """Return how it ended: "" or the code of the error."""
    try:
        store.transact(op(), lambda tx: begin_in(tx, name))
    except LedgerError as error:
        return error.code
    return ""


# -- what is in hand --------------------------------------------------------------------------------------------------


def test_a_result_that_comes_while_the_database_is_away_is_recorded(
    ledger: RunLedger, path: Relay, waits: Hear
) -> None:
    ran = list[int]()

    @ledger.step
    def paid(number: int) -> int:
        ran.append(number)
        path.go_down()
        return number

    @ledger.entry
    def job() -> int:
        return paid(1)

    waits(back_at(path, 3))
    assert (job.start("r"), job.start("r"), ran) == (1, 1, [1])
    assert store_of(ledger).repeats >= 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_event_loop_goes_on_while_the_database_is_away(
    ledger: RunLedger, path: Relay, waits: Hear, cancelled: bool
) -> None:
    """And who is cancelled meanwhile is told so when the result is on record."""
    ran, away = list[int](), threading.Event()

    @ledger.step
    async def paid(number: int) -> int:
        ran.append(number)
        path.go_down()
        return number

    @ledger.entry
    async def job() -> int:
        return await paid(1)

    waits(lambda _: away.set())

    async def beside() -> None:
        task = asyncio.ensure_future(job.astart("r"))
        while not away.is_set():
            await asyncio.sleep(0.01)
        if cancelled:
            task.cancel()
            await asyncio.sleep(0)
        path.come_back()
        if not cancelled:
            assert await task == 1
            return
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(beside())
    assert (asyncio.run(job.astart("r")), ran) == (1, [1])


def test_a_result_whose_transaction_was_undone_by_a_lost_connection_is_recorded(ledger: RunLedger, path: Relay) -> None:
    ran = list[int]()

    @ledger.step
    def paid(number: int) -> int:
        ran.append(number)
        path.cut_at(COMMITS, after=False)
        return number

    @ledger.entry
    def job() -> int:
        return paid(1)

    assert (job.start("r"), job.start("r"), ran) == (1, 1, [1])


def test_an_agent_is_told_that_the_end_of_a_tool_was_not_recorded_and_not_that_the_program_stopped(
    ledger: RunLedger, path: Relay
) -> None:
    ran = list[int]()

    @ledger.tool
    def send() -> str:
        ran.append(1)
        path.go_down()
        return "sent"

    @ledger.entry
    def job() -> Any:
        return send()

    store_of(ledger)
    with ledger.run("first"):
        outage = store_of(ledger)._shared.writer().outage  # type: ignore[attr-defined]
    outage._wait_s = 0.2
    with pytest.raises(Unavailable) as caught:
        job.start("r")
    assert caught.value.unrecorded == {"send": "sent"}
    path.come_back()
    told = job.start("r")
    assert told["outcome"] == "unknown"
    assert told["message"].startswith("Nobody recorded how send ended: the program stopped while it ran, or its end")
    assert ran == [1]


# -- for how long -----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(url: str, path: Relay) -> Iterator[PostgresStore]:
    opened = open_postgres(url, create=True, wait_s=0.6)
    begin(opened)
    yield opened
    path.come_back()
    opened.close()


def test_a_thread_waits_once_for_a_server_that_stays_away_and_says_so_once(
    store: PostgresStore, path: Relay, caplog: pytest.LogCaptureFixture, waits: Hear
) -> None:
    made = list[int]()
    waits(made.append)
    caplog.set_level(logging.INFO, logger="agent_run_ledger")
    path.go_down()
    assert put(store, "one") == "unreachable"
    first = len(made)
    assert first > 2, "it was asked again"
    assert put(store, "two") == "unreachable"
    assert len(made) == first + 1, "it has waited"
    codes = list[str]()
    other = threading.Thread(target=lambda: codes.append(put(store, "three")))
    other.start()
    other.join()
    assert codes == ["unreachable"]
    assert len(made) > first + 2, "another thread has something else in hand"
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    path.come_back()
    assert put(store, "four") == ""
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    before = len(made)
    path.go_down()
    assert put(store, "five") == "unreachable"
    assert len(made) > before + 2, "it is another time"
    path.come_back()
    assert put(store, "six") == ""
    assert check_log(store) == 4


def test_who_waits_for_his_turn_meanwhile_is_told_what_is_wrong(store: PostgresStore, path: Relay, waits: Hear) -> None:
    """Not that somebody holds a lock."""
    codes, others = list[str](), list[threading.Thread]()

    def queue(made: int) -> None:
        if made == 2:  # by now it has been said
            others.extend(threading.Thread(target=lambda: codes.append(put(store, "late"))) for _ in range(3))
            for one in others:
                one.start()
            for one in others:
                one.join()

    waits(queue)
    path.go_down()
    codes.append(put(store, "first"))
    assert codes == ["unreachable"] * 4


def test_what_does_not_pass_is_told_at_once(postgres: Cluster, name: str, store: PostgresStore, waits: Hear) -> None:
    made = list[int]()
    waits(made.append)
    ended = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
    postgres.run(ended)
    postgres.run(f"ALTER DATABASE {name} RENAME TO {name}_gone")
    try:
        with pytest.raises(Refused) as caught:
            store.transact(op(), lambda tx: begin_in(tx, "one"))
    finally:
        postgres.run(f"ALTER DATABASE {name}_gone RENAME TO {name}")
    assert (caught.value.code, made) == ("no_database", [])
    assert put(store, "two") == ""


def test_a_server_that_works_as_it_must_not_is_told_at_once(
    store: PostgresStore, path: Relay, waits: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unavailable is also what nobody but its owner can mend."""
    made = list[int]()

    def connect(_: Place) -> Connection:
        raise Unavailable("synchronous_commit is off", code="cannot_open")

    waits(made.append)
    monkeypatch.setattr(postgres_writer, "connect", connect)
    path.go_down()
    assert (put(store, "one"), made) == ("cannot_open", [])


def test_time_is_read_when_the_server_is_there_again(
    postgres: Cluster, store: PostgresStore, path: Relay, waits: Hear
) -> None:
    asked = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    there = list[int]()

    def back(made: int) -> None:
        if made == 3:
            there.append(postgres.run(asked)[0][0])
            path.come_back()

    def body(tx: Tx) -> int:
        begin_in(tx, "one")
        return tx.now_ms

    waits(back)
    path.go_down()
    assert store.transact(op(), body) >= there[0]


# -- breaking it off --------------------------------------------------------------------------------------------------


@pytest.fixture
def patient(url: str, path: Relay) -> Iterator[PostgresStore]:
    opened = open_postgres(url, create=True, wait_s=60.0)
    begin(opened)
    yield opened
    path.come_back()
    opened.close()


def test_an_interrupt_comes_through_and_leaves_nothing_locked(patient: PostgresStore, path: Relay, waits: Hear) -> None:
    main = threading.get_ident()

    def interrupt(made: int) -> None:
        if made == 2:
            threading.Timer(0.0, lambda: signal.pthread_kill(main, signal.SIGINT)).start()

    waits(interrupt)
    path.go_down()
    with pytest.raises(KeyboardInterrupt):
        put(patient, "one")
    path.come_back()
    assert put(patient, "two") == ""
    assert check_log(patient) == 3


def test_closing_breaks_off_a_wait_for_the_server(patient: PostgresStore, path: Relay, waits: Hear) -> None:
    codes, made, away = list[str](), list[int](), threading.Event()

    def wait(number: int) -> None:
        made.append(number)
        away.set()

    waits(wait)
    path.go_down()
    thread = threading.Thread(target=lambda: codes.append(put(patient, "one")))
    thread.start()
    assert away.wait(30)
    patient.close()
    thread.join()
    assert codes == ["unreachable"]
    assert len(made) < 20, "it went on waiting"
