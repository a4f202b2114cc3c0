"""Workers that are started while their server is away: they wait for it, until they are told to stop."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.worker import Worker
from tests.fault.postgres_kit import make_store
from tests.fault.test_run_workers import case
from tests.services.servers import Server, Stop, serving

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


class Door:
    """Takes the place of a server: counts who comes, and sends everybody away, or says nothing."""

    def __init__(self, port: int, *, silent: bool) -> None:
        self.came: list[socket.socket] = []
        self._silent = silent
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self.came.append(one)
                if not self._silent:
                    one.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in self.came:
            one.close()


@contextmanager
def door(port: int = 0, *, silent: bool = False) -> Iterator[Door]:
    made = Door(port, silent=silent)
    try:
        yield made
    finally:
        made.close()


def test_a_worker_waits_for_a_server_that_is_away_when_it_starts(server: Server) -> None:
    url = make_store(server.url(server.new_database()))
    with case(4, url) as made:
        server.stop(Stop.FAST)
        with door(server.port) as away:
            worker = made.start("--json")
            worker.until(lambda: len(away.came) >= 3)  # a try is one connection, or two where it asks for TLS first
        server.start()
        worker.until(lambda: made.states() == {RunState.COMPLETED: 4})
        code, printed = worker.end(signal.SIGTERM)
        told = [json.loads(line) for line in worker.lines]
        trouble = [one["words"] for one in told if one["event"] == "trouble"]
        tally = json.loads(printed)
        assert (code, tally["completed"]) == (0, 4)
        assert "unreachable" in trouble[0]
        assert len(trouble) < tally["trouble"], "it is said once, and counted each time"
        assert any(one["event"] == "answers" for one in told)
        made.ends_well(repeated=0)


@pytest.mark.parametrize("silent", [False, True])
def test_a_worker_that_waits_for_its_server_ends_at_once_when_it_is_told_to(silent: bool) -> None:
    """Also in the middle of a question that nobody answers."""
    with door(silent=silent) as away, case(0, "") as made:
        url = f"postgresql://ann@127.0.0.1:{away.port}/runs?connect_timeout=3600"
        worker = made.start(db=url)
        worker.until(lambda: bool(away.came) and (silent or worker.told("trouble") == 1))
        assert worker.end(signal.SIGTERM, within_s=30) == (0, "nothing was to do\n"), worker.lines


def test_a_worker_whose_server_stands_still_in_the_middle_ends_when_it_is_told_to(server: Server) -> None:
    """Its question may go on for a minute; nobody needs the answer."""
    database = server.new_database()
    with case(0, make_store(server.url(database))) as made:
        worker = made.start("--drain", "0.1")
        listens = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND query ~* '^listen'"
        worker.until(lambda: server.run(listens) == [(1,)])
        with server.stands_still():
            time.sleep(0.5)  # many of its polls: by now it asks
            assert worker.end(signal.SIGTERM, within_s=30) == (0, "nothing was to do\n"), worker.lines


def test_what_waiting_does_not_mend_ends_a_worker_at_once(server: Server) -> None:
    database = server.new_database()
    server.run("CREATE ROLE ann LOGIN PASSWORD 'right'")
    server.run("CREATE SCHEMA agent_run_ledger; CREATE TABLE agent_run_ledger.mine (x INT)", database)
    newer = make_store(server.url(server.new_database()))
    insert = "INSERT INTO agent_run_ledger.migrations VALUES (5, decode(repeat('00', 32), 'hex'), 1)"
    server.run(insert, newer.rpartition("/")[2])
    for url, code in (
        (server.url(database, user="ann", password="wrong"), "login_refused"),
        (server.url("nowhere"), "no_database"),
        (server.url(database), "foreign_schema"),
        (newer, "schema_newer"),
    ):
        with RunLedger(url=url) as ledger, pytest.raises(Refused) as caught:
            Worker(ledger).run()
        assert caught.value.code == code
