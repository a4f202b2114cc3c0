"""A primary is killed under load and its standby takes over: nothing that was confirmed is lost, nothing is twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from agent_run_ledger.errors import LedgerError, Tampered, Unavailable, Uncertain
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.store_gauges import read_gauges
from agent_run_ledger.ports import Tx
from agent_run_ledger.store.postgres_store import open_postgres
from tests.contract.store_kit import begin_in, check_log, op, start_step
from tests.fault.postgres_kit import (
    Hosts,
    make_store,
    nothing_is_claimed_twice,
    nothing_is_lost,
    propose,
    some_hosts,
)
from tests.services.postgres import SUPERUSER
from tests.services.relay import relay
from tests.services.servers import Server, Stop, eventually, pair

pytestmark = pytest.mark.fault

KEYS = 24
RUNS = 25
FAR_MS = 1 << 42


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    with pair() as started:
        yield started


@pytest.fixture
def host() -> Iterator[Hosts]:
    with some_hosts() as made:
        yield made


def _both(primary: Server, standby: Server, database: str, more: str = "") -> str:
    """One URL for both: whichever of them may be written."""
    return (
        f"postgresql://{SUPERUSER}@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{database}?connect_timeout=2{more}"
    )


def test_a_primary_is_killed_under_load_and_its_standby_goes_on(host: Hosts, servers: tuple[Server, Server]) -> None:
    primary, standby = servers
    url = make_store(_both(primary, standby, primary.new_database(), "&target_session_attrs=read-write"))
    propose(url, *(f"k{number}" for number in range(KEYS)))
    running = [host("runs", url, f"h{number}", RUNS) for number in range(2)]
    claiming = [host("claims", url, f"w{number}", KEYS, number * KEYS // 2) for number in range(2)]
    for one in running:
        one.until(lambda one=one: len(one.said("completed")) >= 3)  # type: ignore[misc]
    for one in claiming:
        one.until(lambda one=one: len(one.said("handed")) >= 3)  # type: ignore[misc]
    primary.kill()
    time.sleep(0.2)
    standby.promote()
    everybody = [*running, *claiming]
    for one in everybody:
        assert one.end()[-1] == "over", one.story()
    assert any(one.said("again") for one in everybody), "nobody noticed: it was killed too late"
    nothing_is_lost(url, running, RUNS)
    nothing_is_claimed_twice(url, claiming, KEYS)


@pytest.mark.parametrize("landed", [True, False])
def test_what_became_of_a_commit_is_asked_of_the_standby_that_took_over(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """The primary dies with its answer to COMMIT: the standby has what was committed, or has it not."""
    primary, standby = servers
    database = primary.new_database()
    with relay(primary.port) as way:
        url = f"postgresql://{SUPERUSER}@127.0.0.1:{way.port},127.0.0.1:{standby.port}/{database}"
        store = open_postgres(url, create=True, wait_s=5.0)
        looked_for = type(store._shared.writer())._look_for

        def after_the_failover(*arguments: object) -> bool:
            primary.kill()
            standby.promote()
            return looked_for(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(type(store._shared.writer()), "_look_for", after_the_failover)

        def body(tx: Tx) -> str:
            begin_in(tx, "other")
            way.cut_at(b"COMMIT", after=landed)
            return "value"

        if landed:
            assert store.transact(op(), body) == "value"
        else:
            with pytest.raises(Unavailable) as caught:
                store.transact(op(), body)
            assert caught.value.code == "connection_lost"
        assert (store.reader().find_run("other") is not None) is landed
        assert check_log(store) == 1 + landed
        store.close()


def test_a_commit_whose_wait_for_the_standby_is_cancelled_is_uncertain_and_found_later(
    servers: tuple[Server, Server],
) -> None:
    """The standby stands still. COMMIT returns with a warning (01000) when somebody ends its wait."""
    primary, standby = servers
    store = open_postgres(_both(primary, standby, primary.new_database()), create=True, wait_s=5.0)
    operation, ended = op(), list[LedgerError | None]()
    standby.stop(Stop.FAST)

    def commit() -> None:
        try:
            store.transact(operation, lambda tx: begin_in(tx, "other"))
            ended.append(None)
        except LedgerError as error:
            ended.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    eventually(lambda: bool(primary.run(waits)))
    primary.run(f"SELECT pg_cancel_backend(pid) FROM ({waits}) AS one")
    thread.join()
    (error,) = ended
    assert isinstance(error, Uncertain)
    assert error.code == "commit_unconfirmed"
    assert operation.hex() in error.message
    standby.start()
    with pytest.raises(LedgerError) as caught:
        store.transact(operation, lambda tx: begin_in(tx, "again"))
    assert caught.value.code == "already_committed"
    assert check_log(store) == 2
    store.close()


def test_who_saw_what_the_standby_never_had_writes_nothing_after_it_took_over(
    servers: tuple[Server, Server],
) -> None:
    """The price of going on without the standby's word: the one who saw more than it has is told so."""
    primary, standby = servers
    url = _both(primary, standby, primary.new_database())
    store = open_postgres(url, create=True, wait_s=2.0)
    store.transact(op(), lambda tx: begin_in(tx, "kept"))
    standby.stop(Stop.IMMEDIATE)
    primary.run("ALTER SYSTEM SET synchronous_standby_names = ''")
    primary.run("SELECT pg_reload_conf()")
    eventually(lambda: primary.run("SHOW synchronous_standby_names") == [("",)])
    store.transact(op(), lambda tx: begin_in(tx, "lost"))
    primary.kill()
    standby.start()
    standby.promote()
    with pytest.raises(Tampered) as caught:
        store.transact(op(), lambda tx: begin_in(tx, "more"))
    assert caught.value.code == "store_replaced"
    store.close()
    again = open_postgres(url, create=False, wait_s=2.0)
    assert [again.reader().find_run(name) is not None for name in ("kept", "lost", "more")] == [True, False, False]
    assert check_log(again) == 2
    again.close()


def test_while_nobody_is_primary_that_is_said(servers: tuple[Server, Server]) -> None:
    primary, standby = servers
    url = f"postgresql://{SUPERUSER}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{primary.new_database()}"
    store = open_postgres(url, create=True, wait_s=2.0)
    primary.kill()
    for use in (lambda: store.transact(op(), lambda tx: begin_in(tx, "r")), lambda: store.lock_run("r")):
        with pytest.raises(Unavailable) as caught:
            use()
        assert caught.value.code == "read_only"
    standby.promote()
    store.transact(op(), lambda tx: begin_in(tx, "r"))
    assert check_log(store) == 2
    store.close()


def test_a_standby_is_not_read_in_the_place_of_the_primary(servers: tuple[Server, Server]) -> None:
    """A standby that stopped replaying says what was so before; nobody who writes reads it."""
    primary, standby = servers
    database = primary.new_database()
    store = open_postgres(_both(primary, standby, database, "&target_session_attrs=any"), create=True)
    only = f"postgresql://{SUPERUSER}@127.0.0.1:{standby.port}/{database}"
    eventually(lambda: standby.run(f"SELECT 1 FROM pg_database WHERE datname = '{database}'") == [(1,)])
    standby.run("SELECT pg_wal_replay_pause()")
    store.transact(op(), lambda tx: begin_in(tx, "new"))
    assert store.reader().find_run("new") is not None
    with pytest.raises(Unavailable) as caught:
        open_postgres(only, create=False)
    assert caught.value.code == "read_only"
    reading = open_postgres(only, create=False, readonly=True)  # who asks for a standby gets one
    assert reading.reader().find_run("new") is None
    reading.close()
    standby.run("SELECT pg_wal_replay_resume()")
    assert check_log(store) == 2
    store.close()


def test_a_standby_tells_what_monitoring_wants_but_which_runs_are_live(servers: tuple[Server, Server]) -> None:
    """Locks are the primary's: of a call that was begun nobody there can say whether somebody is at it."""
    primary, standby = servers
    database = primary.new_database()
    store = open_postgres(_both(primary, standby, database), create=True)
    store.transact(op(), lambda tx: start_step(tx, begin_in(tx, "r"), 0))
    assert read_gauges(store, FAR_MS).unresolved_age_s > 0
    only = f"postgresql://{SUPERUSER}@127.0.0.1:{standby.port}/{database}"
    eventually(lambda: standby.run(f"SELECT 1 FROM pg_database WHERE datname = '{database}'") == [(1,)])
    counted = "SELECT count(*) FROM agent_run_ledger.in_flight"
    eventually(lambda: standby.run(counted, database) == [(1,)])
    reading = open_postgres(only, create=False, readonly=True)
    gauges = read_gauges(reading, FAR_MS)
    assert (gauges.runs[RunState.RUNNING], gauges.leaves, gauges.unresolved_age_s) == (1, store.reader().head().size, 0)
    reading.close()
    store.close()
