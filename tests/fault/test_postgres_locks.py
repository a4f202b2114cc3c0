"""The session that holds the locks of live runs: ended by the server, taken back, and given back by the collector."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.store.postgres import connect, place_of
from agent_run_ledger.store.postgres_locks import PostgresRunLocks
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.worker import Worker, WorkerSettings
from tests.services.postgres import Cluster

pytestmark = pytest.mark.fault

LOG = bytes(16)


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    name = postgres.new_database()
    yield name
    postgres.drop(name)


@pytest.fixture
def locks(postgres: Cluster, database: str) -> Iterator[Callable[[], PostgresRunLocks]]:
    made: list[PostgresRunLocks] = []

    def make() -> PostgresRunLocks:
        place = place_of(postgres.url(database), wait_s=5.0, entropy=SystemEntropy())
        made.append(PostgresRunLocks(place, LOG))
        return made[-1]

    yield make
    for one in made:
        if not one._inside:  # what hangs would hang here too
            one.close()


def end_session(postgres: Cluster, locks: PostgresRunLocks) -> None:
    """Have the server end the session, and wait until it is gone with its locks."""
    assert locks._connection is not None
    pid = locks._connection.info.backend_pid
    postgres.run(f"SELECT pg_terminate_backend({pid}, 10000)")
    assert postgres.run(f"SELECT count(*) FROM pg_locks WHERE pid = {pid}") == [(0,)]


def test_no_session_of_ours_ends_since_it_is_idle(postgres: Cluster, database: str) -> None:
    """That of the locks asks nothing for as long as a step takes."""
    postgres.run(f"ALTER DATABASE {database} SET idle_session_timeout = '2s'")
    place = place_of(postgres.url(database), wait_s=5.0, entropy=SystemEntropy())
    connection = connect(place)
    try:
        assert connection.ask("SELECT current_setting('idle_session_timeout')") == [("0",)]
    finally:
        connection.close()


def test_locks_of_a_lost_session_are_taken_back_but_those_that_others_have(
    postgres: Cluster, locks: Callable[[], PostgresRunLocks]
) -> None:
    ours, others = locks(), locks()
    kept, lost = ours.lock_run("kept"), ours.lock_run("lost")
    assert kept is not None
    assert lost is not None
    end_session(postgres, ours)
    theirs = others.lock_run("lost")
    assert theirs is not None
    assert others.live_runs(["kept", "lost"]) == {"lost"}
    assert not ours.is_run_live("else")  # the next use, whatever it asks
    assert others.live_runs(["kept", "lost"]) == {"kept", "lost"}
    assert (others.lock_run("kept"), ours.lock_run("lost")) == (None, None)
    theirs.release()
    again = ours.lock_run("lost")
    assert again is not None, "nor did we hold it for ours meanwhile"
    lost.release()  # it is not this one any more
    assert others.lock_run("lost") is None
    again.release()
    kept.release()
    assert others.live_runs(["kept", "lost"]) == frozenset()


def test_a_lock_whose_question_found_the_session_lost_is_taken_once(
    postgres: Cluster, locks: Callable[[], PostgresRunLocks]
) -> None:
    """A session may take its own lock twice, and would give it back once."""
    ours, others = locks(), locks()
    kept = ours.lock_run("kept")
    end_session(postgres, ours)
    found = ours.lock_run("found")
    assert found is not None
    assert others.live_runs(["kept", "found"]) == {"kept", "found"}
    found.release()
    assert others.lock_run("found") is not None
    assert kept is not None


def test_the_collector_may_come_with_a_lock_while_its_connection_is_used(
    locks: Callable[[], PostgresRunLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = locks(), locks()
    connection, held = ours._connected(), others.lock_run("held")

    class Left:
        """A session that was left in a cycle, with its lock."""

        def __init__(self) -> None:
            self.itself, self.lock = self, ours.lock_run("left")

    left: list[Left] = [Left()]
    real, came = type(connection).wait, []  # type: ignore[attr-defined]

    def wait(self: Any, *given: Any, **named: Any) -> Any:
        if self is connection and not came:
            came.append(1)
            left.clear()
            gc.collect()
        return real(self, *given, **named)

    monkeypatch.setattr(type(connection), "wait", wait)
    answers: list[frozenset[str]] = []
    asking = threading.Thread(target=lambda: answers.append(ours.live_runs(["held", "else"])), daemon=True)
    asking.start()
    asking.join(30)
    assert (came, asking.is_alive()) == ([1], False)
    assert (answers, held is not None) == ([{"held"}], True), "the answer to another question"
    assert others.lock_run("left") is not None


def test_a_worker_takes_the_locks_of_what_it_has_in_hand_back(postgres: Cluster, database: str) -> None:
    url = postgres.url(database)
    begun, goes_on = threading.Event(), threading.Event()
    with RunLedger(url=url) as ledger, RunLedger(url=f"{url}?application_name=other") as other:

        @ledger.entry
        def job() -> int:
            begun.set()
            assert goes_on.wait(60)
            return 1

        job.submit("r")
        worker = Worker(ledger, settings=WorkerSettings(concurrency=1, poll_s=0.02))
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert begun.wait(30)
            end_session(postgres, ledger._opened.context().store._shared.locks())  # type: ignore[union-attr]
            deadline = time.monotonic() + 30
            while not other.runs_of_queue().live(["r"]):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            goes_on.set()
            while ledger.bind("r").state is not RunState.COMPLETED:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            goes_on.set()
            worker.stop()
            thread.join(30)
        assert worker.tally.outcomes == {"completed": 1}
    check_ledger(url)
