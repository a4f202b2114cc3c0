"""A host that holds a claim is parted from the database, from the target, or from both: a doubt, and no second send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fault.postgres_kit import Host, Hosts, checked_log, doubt, make_store, newest, propose, some_hosts
from tests.fault.refund_server import RefundServer, refund_server
from tests.services.relay import Relay, relay
from tests.services.servers import Server, serving

pytestmark = pytest.mark.fault

KEY = "refund:17"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def target() -> Iterator[RefundServer]:
    with refund_server() as started:
        yield started


class Parted:
    """One approved refund, and a host that reaches database and target only by ways of its own."""

    def __init__(self, server: Server, target: RefundServer, host: Hosts, to_server: Relay, to_target: Relay) -> None:
        self.database, self.target, self.host = to_server, target, host
        self.way = to_target
        self.url = make_store(server.url(server.new_database()))
        self.far = server.url(self.url.rpartition("/")[2], port=to_server.port) + "?connect_timeout=2"
        self.at = f"http://127.0.0.1:{to_target.port}"
        target.forget()
        propose(self.url, KEY, target=self.at)

    def holder(self, *points: str, **environment: str) -> Host:
        """The host that holds the claim, stopped at the first of these points."""
        environment["TEST_STOP_AT"] = " ".join(points)
        return self.host("dispatch", self.far, self.at, "holder", KEY, **environment).stopped()

    def ends(self, state: str, *, executed: int) -> None:
        """Nobody sends it again, whichever way is there again; the doubt is on record, or can be recorded."""
        assert newest(self.url, KEY).state == state
        self.database.come_back()
        self.way.come_back()
        for worker in ("holder", "other"):
            said = self.host("dispatch", self.url, self.at, worker, KEY).end()
            assert said[0].startswith("error Refused"), said
        if state == "prepared":
            assert doubt(self.url, KEY) == "unresolved"
        counts = self.target.counts()
        assert (counts.executed, counts.arrived) == (executed, executed)
        checked_log(self.url)


@pytest.fixture
def parted(server: Server, target: RefundServer) -> Iterator[Parted]:
    port = int(target.url.rpartition(":")[2])
    with relay(server.port) as to_server, relay(port) as to_target, some_hosts() as host:
        yield Parted(server, target, host, to_server, to_target)


@pytest.mark.parametrize("silent", [True, False])
def test_without_the_database_before_the_hand_out_nothing_is_sent(parted: Parted, silent: bool) -> None:
    holder = parted.holder("dispatch.prepared")
    (parted.database.go_silent if silent else parted.database.go_down)()
    assert holder.go_on().end() == ["error Unavailable unreachable"]
    parted.ends("prepared", executed=0)


@pytest.mark.parametrize("landed", [True, False])
def test_a_hand_out_that_nobody_can_look_up_is_none(parted: Parted, landed: bool) -> None:
    """Who was not told of it sends nothing, and what a dead process prepared nobody hands out after it."""
    holder = parted.holder("dispatch.prepared")
    parted.database.cut_at(b"COMMIT", after=landed, then_down=True)
    assert holder.go_on().end() == ["error Uncertain commit_unknown"]
    parted.database.come_back()
    view = newest(parted.url, KEY)
    assert (view.state, view.handed_out) == ("prepared", landed)
    parted.ends("prepared", executed=0)


def test_the_database_is_lost_and_then_the_target(parted: Parted) -> None:
    """The permit was handed out, and its end cannot be judged without the server's clock: nothing is sent."""
    holder = parted.holder("dispatch.handed_out")
    parted.database.go_silent()
    parted.way.go_silent()
    assert holder.go_on().end() == ["error Unrecorded NotSent no_time"]
    parted.way.go_down()  # what it carried is lost
    parted.ends("prepared", executed=0)


def test_the_database_is_lost_while_the_request_is_on_its_way(parted: Parted) -> None:
    """The target does it and says so, and that cannot be recorded: the caller has the answer in its hands."""
    holder = parted.holder("target.written")
    parted.database.go_down()
    assert holder.go_on().end() == ["error Unrecorded Answered "]
    parted.ends("prepared", executed=1)


def test_the_database_is_away_for_a_moment_while_the_request_is_on_its_way(parted: Parted) -> None:
    """What the target said is on record then, and nobody is asked to find out what became of it."""
    holder = parted.holder("target.written", TEST_WAIT_S="30")
    parted.database.go_down()
    holder.go_on().until(lambda: parted.database.refused >= 4)
    parted.database.come_back()
    assert holder.end() == ["state succeeded Answered"]
    parted.ends("succeeded", executed=1)


def test_the_database_is_lost_while_it_records_what_the_target_said(parted: Parted) -> None:
    """Nothing of that landed, and what is in hand is recorded once more."""
    holder = parted.holder("target.written")
    parted.database.cut_at(b"COMMIT", after=False)
    assert holder.go_on().end() == ["state succeeded Answered"]
    parted.ends("succeeded", executed=1)


def test_the_target_is_lost_with_its_answer_and_then_the_database(parted: Parted) -> None:
    holder = parted.holder("dispatch.handed_out", "dispatch.sent")
    parted.way.cut_at(b"POST", after=True)
    holder.go_on().until(lambda: parted.target.counts().executed == 1)
    holder.stopped()
    parted.database.go_silent()
    assert holder.go_on().end() == ["error Unrecorded Lost broken"]
    parted.ends("prepared", executed=1)


@pytest.mark.parametrize("arrives", [True, False])
def test_the_target_alone_is_lost_and_the_doubt_is_on_record(parted: Parted, arrives: bool) -> None:
    holder = parted.holder("dispatch.handed_out")
    parted.way.cut_at(b"POST", after=arrives)
    assert holder.go_on().end() == ["state unresolved Lost"]
    parted.ends("unresolved", executed=int(arrives))


def test_a_doubt_that_others_recorded_meanwhile_stays_and_a_late_answer_is_not_sent_for(parted: Parted) -> None:
    """Parted after it was handed the permit; an operator records the doubt; then the holder comes back and sends."""
    holder = parted.holder("dispatch.handed_out")
    assert doubt(parted.url, KEY) == "unresolved"
    said = holder.go_on().end()
    assert said == ["state succeeded Answered"], "its permit was its own, once; what the target said ends the doubt"
    counts = parted.target.counts()
    assert (counts.executed, counts.arrived) == (1, 1)
    assert parted.host("dispatch", parted.url, parted.at, "other", KEY).end()[0].startswith("error Refused")
    checked_log(parted.url)
