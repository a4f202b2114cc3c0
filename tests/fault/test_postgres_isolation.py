"""What a server undoes because of others: no isolation that somebody asked for does it, and it is done again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import Tx
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_schema import make
from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.worker import Worker, WorkerSettings
from tests.contract.run_kit import records_of, until
from tests.contract.store_kit import ENTROPY, begin, begin_in, check_log, do_step, op
from tests.services.postgres import Cluster

pytestmark = pytest.mark.fault

UNDONE = """
CREATE SEQUENCE public.tries;
CREATE FUNCTION public.undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') IN (2, 5) THEN  -- a sequence counts on, whatever is undone
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER undo BEFORE INSERT ON agent_run_ledger.events FOR EACH ROW EXECUTE FUNCTION public.undo();
"""


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield name
    postgres.drop(name)


@pytest.fixture(params=["repeatable read", "serializable"])
def strict(request: pytest.FixtureRequest, postgres: Cluster, database: str) -> str:
    """The URL of a database whose transactions are isolated so, unless they say otherwise."""
    postgres.run(f"ALTER DATABASE {database} SET default_transaction_isolation = '{request.param}'")
    return postgres.url(database)


def test_the_isolation_that_a_database_asks_for_does_not_count(strict: str) -> None:
    """Else each that waited for the head would be undone."""
    stores = [open_postgres(f"{strict}?application_name=host{number}", create=True) for number in range(2)]
    rows = [begin(store, f"r{number}") for number, store in enumerate(stores)]
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            for key in range(20):
                do_step(stores[number], rows[number], key)
                stores[number].reader().head()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert check_log(stores[0]) == 1 + 2 + 2 * 20
    for store in stores:
        store.close()


def test_two_who_make_a_store_there_at_once_make_one(postgres: Cluster, strict: str) -> None:
    """Whoever waited for the other one must then see what that one made."""
    made: list[object] = []

    def wait_and_make() -> None:
        try:
            store = open_postgres(strict, create=True)
            made.append(store.created_here)
            store.close()
        except Exception as error:
            made.append(error)

    thread = threading.Thread(target=wait_and_make)
    place = place_of(strict, wait_s=5.0, entropy=ENTROPY)
    with closing(connect(place)) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(1634886705)")
        thread.start()
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        until(lambda: bool(postgres.run(waiting)))
        assert make(other, place.location, now_ms=1, entropy=lambda: (ENTROPY.token(16), op()))
    thread.join()
    assert made == [False]


def test_what_the_server_undid_has_not_happened_and_the_same_again_does(postgres: Cluster, database: str) -> None:
    store = open_postgres(postgres.url(database), create=True)
    operation, called = op(), list[int]()

    def body(tx: Tx) -> str:
        called.append(1)
        begin_in(tx, "other")
        if len(called) == 1:
            raised = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"
            tx.fetch(raised, ())  # type: ignore[attr-defined]
        return "value"

    with pytest.raises(Unavailable) as caught:
        store.transact(operation, body)
    assert (caught.value.code, len(called)) == ("store_busy", 1)
    assert "nothing happened" in caught.value.hint
    assert store.reader().find_run("other") is None
    assert store.transact(operation, body) == "value"
    assert check_log(store) == 2
    store.close()


def test_a_worker_does_again_what_the_server_undid(postgres: Cluster, database: str) -> None:
    """Also where the store answers again at once, so that the end of a failed run could be recorded."""
    url = postgres.url(database)
    ran: list[int] = []
    with RunLedger(url=url) as ledger:

        @ledger.step
        def work(at: int) -> int:
            ran.append(at)
            return at

        @ledger.entry
        def job() -> list[int]:
            return [work(at) for at in range(4)]

        job.submit("r")
        postgres.run(UNDONE, database)
        tally = Worker(ledger, settings=WorkerSettings(poll_s=0.02)).run(until_idle=True)
        postgres.run("DROP TRIGGER undo ON agent_run_ledger.events", database)
        assert tally.outcomes["completed"] == 1
        assert tally.outcomes["interrupted"] == sum(tally.outcomes.values()) - 1 > 0
        assert ledger.bind("r").state is RunState.COMPLETED
        results = records_of(ledger, RecordKind.RESULT, run_id="r")
        assert [one.name for one in results] == ["work"] * 4 + ["run.result"]
        assert len(ran) - 4 <= 2, "what ran again was not on record"
    check_ledger(url)
