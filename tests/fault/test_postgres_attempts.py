"""Attempts across hosts: a crashed host's run goes on elsewhere, a paused host writes nothing, no effect is twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from agent_run_ledger.testing import check_ledger
from tests.fault.postgres_hosts import can_vanish
from tests.fault.postgres_kit import (
    Host,
    Hosts,
    checked_log,
    doubt,
    make_store,
    newest,
    nothing_is_claimed_twice,
    propose,
    results_of,
    some_hosts,
)
from tests.fault.refund_server import RefundServer, refund_server
from tests.services.pooler import pooler
from tests.services.servers import Server, serving

pytestmark = pytest.mark.fault

RUN = "ticket-17"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def target() -> Iterator[RefundServer]:
    with refund_server() as started:
        yield started


@pytest.fixture
def host() -> Iterator[Hosts]:
    with some_hosts() as made:
        yield made


@pytest.fixture
def url(server: Server) -> str:
    return make_store(server.url(server.new_database()))


def _takeover(url: str) -> None:
    command = ("runs", "takeover", RUN, "--reason", "its host stands still", "--yes", "--db", url)
    subprocess.run([sys.executable, "-m", "agent_run_ledger", *command], check=True, capture_output=True)


def _goes_on(host: Hosts, url: str) -> None:
    """Another host carries the run on: what is recorded does not run again."""
    other = host("run", url, RUN, 60)
    assert other.end() == ["body 2", "body 3", "done 1 2 3"]


def test_a_killed_hosts_run_is_taken_over_and_repeats_nothing_recorded(host: Hosts, url: str) -> None:
    first = host("run", url, RUN, 0, "stands still").until_said("body 2")
    assert host("run", url, RUN).end() == ["error RunBusy run_busy"]
    first.kill()
    _goes_on(host, url)
    check_ledger(url)


def test_a_host_that_is_gone_without_a_word_is_noticed_by_the_server_in_seconds(
    host: Hosts, url: str, server: Server
) -> None:
    """No packet says that it is gone: the server asks after 10 s, where it would by itself ask after two hours."""
    if not can_vanish():
        pytest.skip("no permission to close a connection without a packet")
    first = host("run", url, RUN, 0, "stands still", TEST_PORT=str(server.port)).until_said("body 2")
    time.sleep(1.0)  # what it was sent has its receipt: else the server would notice by sending it again
    first.child.send_signal(signal.SIGUSR1)
    first.until_said("gone").kill()
    assert host("run", url, RUN).end() == ["error RunBusy run_busy"], "nobody has noticed yet"
    _goes_on(host, url)
    check_ledger(url)


@pytest.mark.parametrize("how", ["takeover", "ended"])
def test_what_a_paused_host_writes_when_it_goes_on_is_refused(host: Hosts, url: str, server: Server, how: str) -> None:
    paused = host("run", url, RUN, 0, "stands still").until_said("body 2").stop()
    assert host("run", url, RUN).end() == ["error RunBusy run_busy"]
    if how == "takeover":
        command = ("runs", "takeover", RUN, "--reason", "its host stands still", "--yes", "--db", url)
        subprocess.run([sys.executable, "-m", "agent_run_ledger", *command], check=True, capture_output=True)
    else:
        _end_sessions(server, paused)
    _goes_on(host, url)
    size = check_ledger(url).leaves
    paused.tell().go_on()
    assert paused.end()[-1] == "error Superseded attempt_superseded"
    assert check_ledger(url).leaves == size
    assert results_of(url, RUN) == ["step"] * 3


def test_a_host_whose_sessions_ended_goes_on_where_nobody_took_its_run(host: Hosts, url: str, server: Server) -> None:
    """A lost session costs nothing: the generation says whose run it is, and the lock only saves a vain start."""
    first = host("run", url, RUN, 0, "stands still").until_said("body 2")
    _end_sessions(server, first)
    assert first.tell().end()[-1] == "done 1 2 3"
    check_ledger(url)


@pytest.mark.parametrize("point", ["commit.begin", "commit.before"])
def test_a_host_that_is_paused_within_a_transaction_is_not_waited_for_without_end(
    host: Hosts, url: str, point: str
) -> None:
    """Its machine answers the server's packets, and it holds the head: whoever waits in vain has its session ended.

    Its own limit, by which the server would end it, is a minute.
    """
    propose(url, "k0", "k1")
    paused = host("claims", url, "paused", 2, 0, TEST_STOP_AT=f"{point}#2", TEST_WAIT_S="30").stopped()
    other = host("claims", url, "other", 2, 1)
    assert other.end()[-1] == "over"
    assert "Unavailable store_busy" in other.said("again")
    assert paused.go_on().end()[-1] == "over"
    nothing_is_claimed_twice(url, [paused, other], 2)


def _end_sessions(server: Server, host: Host) -> None:
    server.run(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'host-{host.child.pid}'"
    )


@pytest.mark.parametrize(("point", "executed"), [("dispatch.handed_out", 0), ("dispatch.sent", 1)])
def test_an_effect_is_never_taken_over(host: Hosts, url: str, target: RefundServer, point: str, executed: int) -> None:
    """What a dead host held stays as it is until somebody records the doubt, and is never sent again."""
    target.forget()
    propose(url, "refund:17", target=target.url)
    host("dispatch", url, target.url, "one", "refund:17", TEST_KILL_AT=point).until_over()
    assert newest(url, "refund:17").state == "prepared"
    assert host("dispatch", url, target.url, "one", "refund:17").end() == ["error Refused restarted"]
    assert host("dispatch", url, target.url, "two", "refund:17").end() == ["error Refused prepared"]
    assert doubt(url, "refund:17") == "unresolved"
    assert host("dispatch", url, target.url, "one", "refund:17").end() == ["error Refused unresolved"]
    counts = target.counts()
    assert (counts.executed, counts.arrived) == (executed, executed)
    checked_log(url)


def test_a_dead_hosts_claim_is_nobodys_until_it_is_closed(host: Hosts, url: str, target: RefundServer) -> None:
    target.forget()
    propose(url, "refund:17", target=target.url)
    host("dispatch", url, target.url, "one", "refund:17", TEST_KILL_AT="dispatch.claimed").until_over()
    assert newest(url, "refund:17").state == "claimed"
    assert host("dispatch", url, target.url, "two", "refund:17").end() == ["error Refused claimed"]
    assert doubt(url, "refund:17") == "unresolved"
    assert target.counts().arrived == 0
    checked_log(url)


@pytest.mark.parametrize("says_its_own", [True, False])
def test_a_pooler_that_gives_each_transaction_another_session_is_refused(
    host: Hosts, url: str, server: Server, says_its_own: bool
) -> None:
    """Also one that tells the number of a session which it has: another one answers."""
    with pooler(server.url(url.rpartition("/")[2]), says_its_own=says_its_own) as port:
        pooled = server.url(url.rpartition("/")[2], port=port)
        assert host("run", pooled, RUN).end() == ["error Refused pooled_connection"]
        assert host("dispatch", pooled, "http://127.0.0.1:1", "one", "k").end() == ["error Refused pooled_connection"]
    assert check_ledger(url).leaves == 2
