"""A server that stops in every way, ends sessions, is full or short of connections: nothing is lost or stranded."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import pytest

from agent_run_ledger.errors import LedgerError, Refused, Unavailable
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.testing import check_ledger
from tests.contract.store_kit import begin, begin_in, check_log, do_step, op
from tests.fault.postgres_hosts import AHEAD_S, END_AT
from tests.fault.postgres_kit import (
    Hosts,
    checked_log,
    make_store,
    nothing_is_claimed_twice,
    nothing_is_lost,
    propose,
    some_hosts,
)
from tests.fault.refund_server import RefundServer, refund_server
from tests.fault.test_run_workers import Case, case
from tests.services.servers import Server, Stop, eventually, serving

pytestmark = pytest.mark.fault

KEYS = 12
RUNS = 12


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def host() -> Iterator[Hosts]:
    with some_hosts() as made:
        yield made


@pytest.fixture
def database(server: Server) -> str:
    return server.new_database()


@pytest.fixture
def url(server: Server, database: str) -> str:
    return make_store(server.url(database))


@contextmanager
def role(server: Server, database: str, settings: str = "") -> Iterator[str]:
    """The URL of a user without special rights, who owns the database."""
    name = f"user_{database}"
    server.run(f"CREATE ROLE {name} LOGIN PASSWORD 'x' {settings}")
    server.run(f"ALTER DATABASE {database} OWNER TO {name}")
    yield server.url(database, user=name, password="x")


# -- stopped, and started again -------------------------------------------------------------------------------------


def test_workers_outlive_restarts_of_the_server_and_strand_nothing(server: Server, url: str) -> None:
    with case(16, url) as made:
        workers = [made.start("--concurrency", "2", pause_s=0.1) for _ in range(2)]
        for number, way in enumerate(Stop, start=1):
            workers[0].until(lambda number=number: made.notes().total() >= 12 * number)  # type: ignore[misc]
            if way is Stop.SMART:  # it waits for whoever is connected, who goes on, and whoever comes is sent away
                server.ask_to_stop(Stop.SMART)
                time.sleep(0.3)
            server.stop(Stop.FAST if way is Stop.SMART else way)
            time.sleep(0.3)
            server.start()
        workers[0].until(lambda: _all_completed(made))
        assert [worker.end(15)[0] for worker in workers] == [0, 0]
        assert sum(worker.told("interrupted") + worker.told("trouble") for worker in workers) > 0
        made.ends_well(repeated=2 * 2 * len(Stop))


def _all_completed(made: Case) -> bool:
    return made.states() == {RunState.COMPLETED: len(made.names)}


def test_a_killed_server_loses_nothing_that_it_confirmed(host: Hosts, server: Server, url: str) -> None:
    propose(url, *(f"k{number}" for number in range(KEYS)))
    running = [host("runs", url, "h", RUNS)]
    claiming = [host("claims", url, "w", KEYS, 0)]
    running[0].until(lambda: len(running[0].said("completed")) >= 2)
    claiming[0].until(lambda: len(claiming[0].said("handed")) >= 2)
    server.kill()
    server.start()
    for one in (*running, *claiming):
        assert one.end()[-1] == "over"
    nothing_is_lost(url, running, RUNS)
    nothing_is_claimed_twice(url, claiming, KEYS)


# -- sessions that are ended ----------------------------------------------------------------------------------------


def test_sessions_that_are_ended_at_random_cost_nothing_on_record(host: Hosts, server: Server, url: str) -> None:
    chance, strikes = random.Random(9), 0
    propose(url, *(f"k{number}" for number in range(KEYS)))
    running = [host("runs", url, f"h{number}", RUNS) for number in range(2)]
    claiming = [host("claims", url, f"w{number}", KEYS, number * KEYS // 2) for number in range(2)]
    everybody = [*running, *claiming]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        while any(one.child.poll() is None for one in everybody) and strikes < 100:
            one = chance.choice(everybody)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                (f"host-{one.child.pid}",),
            )
            strikes += 1
            time.sleep(chance.uniform(0.02, 0.2))
    for one in everybody:
        assert one.end()[-1] == "over"
    nothing_is_lost(url, running, RUNS, strikes=strikes)
    nothing_is_claimed_twice(url, claiming, KEYS)


def test_sessions_that_end_at_each_point_of_a_commit_cost_nothing_on_record(host: Hosts, url: str) -> None:
    points = [
        f"{point}#{nth}" for point in ("commit.begin", "commit.before", "commit.after") for nth in range(2, 14, 3)
    ]
    propose(url, *(f"k{number}" for number in range(4)))
    running = [host("runs", url, "h", 4, **{END_AT: " ".join(points)})]
    claiming = [host("claims", url, "w", 4, 0, **{END_AT: " ".join(points)})]
    for one in (*running, *claiming):
        assert one.end()[-1] == "over"
        assert one.said("again")
    nothing_is_lost(url, running, 4, strikes=len(points))
    nothing_is_claimed_twice(url, claiming, 4)


# -- what a role or another transaction does ------------------------------------------------------------------------


def test_timeouts_that_a_role_was_given_do_not_count(host: Hosts, server: Server, database: str) -> None:
    """Those that ours stand above; and a session that is ended for idling is replaced by the next use."""
    with role(server, database) as url:
        name = f"user_{database}"
        for setting in ("statement_timeout = 1", "lock_timeout = 1", "idle_in_transaction_session_timeout = 1"):
            server.run(f"ALTER ROLE {name} SET {setting}")
        if int(server.run("SHOW server_version_num")[0][0]) >= 140_000:
            server.run(f"ALTER ROLE {name} SET idle_session_timeout = 50")
        make_store(url)
        waiting = host("run", url, "r", 0, "stands still").until_said("body 2")
        with psycopg.connect(server.url(database)) as other:
            other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
            waiting.tell()
            time.sleep(0.3)
        assert waiting.end()[-1] == "done 1 2 3"
        check_ledger(url)


def test_a_deadlock_with_another_program_is_told_and_nothing_of_it_is_there(
    server: Server, database: str, url: str
) -> None:
    """Ours begin with the head, so they have none among themselves; whoever takes its rows in another order may."""
    server.run(f"ALTER DATABASE {database} SET deadlock_timeout = '100ms'")
    store = open_postgres(url, create=False, wait_s=10.0)
    row = begin(store)
    with psycopg.connect(server.url(database)) as other:
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("SELECT 1 FROM agent_run_ledger.runs FOR UPDATE")
        waiter = threading.Thread(target=lambda: other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE"))

        def body(tx: object) -> None:
            begin_in(tx, "other")  # type: ignore[arg-type]
            waiter.start()
            eventually(lambda: bool(server.run("SELECT 1 FROM pg_locks WHERE NOT granted")))
            tx.fetch("SELECT 1 FROM runs WHERE run_id = 'r' FOR UPDATE", ())  # type: ignore[attr-defined]

        with pytest.raises(Unavailable) as caught:
            store.transact(op(), body)
        waiter.join()
    assert caught.value.code == "store_busy"
    assert "deadlock" in caught.value.message
    assert store.reader().find_run("other") is None
    do_step(store, row, 1)
    assert check_log(store) == 4
    store.close()


# -- what a server lacks --------------------------------------------------------------------------------------------


def test_a_server_that_takes_no_more_connections_is_waited_for(server: Server, database: str) -> None:
    with role(server, database) as url, ExitStack() as taken, case(6, url) as made:
        worker = made.start("--concurrency", "2", pause_s=0.1)
        worker.until(lambda: made.notes().total() >= 2)
        limit = int(server.run("SHOW max_connections")[0][0])
        with psycopg.connect(server.url(), autocommit=True) as striker:
            with suppress(psycopg.OperationalError):  # until there is none
                for _ in range(limit):
                    taken.enter_context(psycopg.connect(server.url(), autocommit=True))
            ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s"
            striker.execute(ended, (f"user_{database}",))
            with suppress(psycopg.OperationalError):  # and those that it had
                for _ in range(limit):
                    taken.enter_context(psycopg.connect(server.url(), autocommit=True))
        with pytest.raises(Unavailable) as caught:
            open_postgres(f"{url}?application_name=late", create=False)
        assert caught.value.code == "too_many_connections"
        worker.until(lambda: worker.told("trouble") + worker.told("interrupted") > 0)
        taken.close()
        worker.until(lambda: _all_completed(made))
        assert worker.end(15)[0] == 0, worker.lines
        made.ends_well(repeated=4)


def test_a_role_with_too_few_connections_is_told_so(host: Hosts, server: Server, database: str) -> None:
    with role(server, database) as url:
        make_store(url)
        server.run(f"ALTER ROLE user_{database} CONNECTION LIMIT 1")
        assert host("run", url, "r").end() == ["error Unavailable too_many_connections"]
        server.run(f"ALTER ROLE user_{database} CONNECTION LIMIT 3")
        assert host("run", url, "r").end()[-1] == "done 1 2 3"
        check_ledger(url)


def test_a_password_that_was_changed_meanwhile_is_refused_and_nothing_is_lost(server: Server, database: str) -> None:
    with role(server, database) as url:
        store = open_postgres(url, create=True, wait_s=2.0)
        row = begin(store)
        ended = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'user_{database}'"
        server.run(f"ALTER ROLE user_{database} PASSWORD 'another'")
        server.run(ended)
        with pytest.raises(Refused) as caught:
            do_step(store, row, 1)
        assert caught.value.code == "login_refused"
        server.run(f"ALTER ROLE user_{database} PASSWORD 'x'")
        do_step(store, row, 1)
        assert check_log(store) == 3
        store.close()


def test_a_full_disk_is_told_and_nothing_of_the_transaction_is_there() -> None:
    with serving() as server, small_disk(server) as folder:
        database = server.new_database(TABLESPACE="small")
        store = open_postgres(server.url(database), create=True, wait_s=5.0)
        row = begin(store)
        do_step(store, row, 1)
        server.run("CHECKPOINT")  # what is there has its room, and only what is new finds none
        filler = folder / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        error = _until_it_is_full(lambda key: do_step(store, row, key))
        assert (type(error), error.code) == (Unavailable, "disk_full")
        size = store.reader().head().size
        filler.unlink()
        do_step(store, row, 1_000_000)
        assert check_log(store) == size + 1
        store.close()


def _until_it_is_full(step: Callable[[int], object]) -> LedgerError:
    for key in range(2, 20_000):
        try:
            step(key)
        except LedgerError as error:
            return error
    raise AssertionError("it never was")


@contextmanager
def small_disk(server: Server) -> Iterator[Path]:
    """The tablespace "small" on a disk in memory that is soon full; the server is stopped before it is taken away."""
    folder = Path(mkdtemp(prefix="arl-small-"))
    command = ("mount", "-t", "tmpfs", "-o", "size=24m", "arl-test", str(folder))
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        if not mounted:
            pytest.skip("no permission to mount")
        server.own(folder)
        server.run(f"CREATE TABLESPACE small LOCATION '{folder}'")
        yield folder
    finally:
        server.stop()
        if mounted:
            subprocess.run(("umount", str(folder)), check=True)
        folder.rmdir()


# -- clocks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target() -> Iterator[RefundServer]:
    with refund_server() as started:
        yield started


@pytest.mark.parametrize("ahead_s", [86_400, -86_400])
def test_the_clocks_of_hosts_do_not_matter(
    host: Hosts, server: Server, url: str, target: RefundServer, ahead_s: int
) -> None:
    """A window is open, or over, by the server's clock, wherever a host's own stands."""
    target.forget()
    now_ms = int(time.time() * 1000)
    propose(url, "open", target=target.url, end_ms=now_ms + 3_600_000)
    propose(url, "over", target=target.url, end_ms=now_ms + 3_000)
    wrong = {AHEAD_S: str(ahead_s)}
    assert host("dispatch", url, target.url, "one", "open", **wrong).end() == ["state succeeded Answered"]
    eventually(lambda: time.time() * 1000 > now_ms + 3_000)
    assert host("dispatch", url, target.url, "one", "over", **wrong).end() == ["error Refused expired"]
    assert host("run", url, "r", **wrong).end()[-1] == "done 1 2 3"
    assert host("dispatch", url, target.url, "two", "open").end() == ["error Refused succeeded"]
    assert target.counts().executed == 1
    checked_log(url)
