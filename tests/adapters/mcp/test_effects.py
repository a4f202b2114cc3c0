"""Tools behind the proxy that are effects: sent once, only with a grant in the ledger, never again after a doubt."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger, RunState
from agent_run_ledger.effects import ActionState
from agent_run_ledger.testing.people import People
from tests.adapters.mcp.sessions import PATIENCE_S, Place, Session, meta_of, text_of
from tests.contract.engine_kit import each_engine

POLICY = """
[tools.place_order]
effect = { key = "order:{sku}", approval = "finance" }

[tools.errors]
effect = { key = "errors:{sku}", approval = "finance" }

[tools.fails]
effect = { key = "fails:{sku}", approval = "finance" }
"""
KEY = "order:a"
ORDER = {"sku": "a", "count": 2}


class Shop:
    """A place whose store has people, and a policy by which placing an order needs them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.people = People(place.db, place.folder / "trust.json")
        self.policy = place.policy(POLICY)

    def session(self, *options: str, run: str = "r1", **more: Any) -> Session:
        return self.place.session("--policy", self.policy, "--trust", str(self.people.trust), *options, run=run, **more)

    def ask(self, **more: Any) -> dict[str, Any]:
        """What one client in a session of its own gets."""
        with self.session(**more) as session:
            said = session.call("place_order", ORDER)
            session.end()
        return said

    def until_asked(self, key: str = KEY) -> None:
        """Return when people were asked about a key."""
        until = time.monotonic() + PATIENCE_S
        while not self.people.members(key):
            assert time.monotonic() < until
            time.sleep(0.01)

    @property
    def sent(self) -> int:
        return self.place.calls("place_order")

    def state(self, key: str = KEY) -> ActionState:
        return self.people.members(key)[-1].state

    def run_state(self, run: str = "r1") -> RunState | None:
        with RunLedger(db_path=self.place.db, create=False) as ledger:
            return ledger.bind(run).state


@pytest.fixture
def shop(place: Place) -> Shop:
    return Shop(place)


# -- approvals -----------------------------------------------------------------------------------------------------


def test_a_client_that_repeats_the_call_executes_nothing_and_is_told_whom_to_ask(shop: Shop) -> None:
    with shop.session() as session:
        said = [session.call("place_order", ORDER) for _ in range(4)]
        again = [session.call("place_order", ORDER, call_id=f"c{number}") for number in range(3)]
        session.end()
    (action,) = shop.people.members(KEY)
    for one in [*said, *again]:
        assert one["isError"] is True
        assert meta_of(one)["state"] == "pending"
        assert meta_of(one)["approval-id"] == action.action_id.hex()
        assert meta_of(one)["action-key"] == KEY
        assert f"arl approvals show {action.action_id.hex()}" in text_of(one)
    assert (shop.sent, shop.state(), shop.run_state()) == (0, ActionState.PROPOSED, RunState.SUSPENDED)


def test_a_grant_executes_once_over_repetitions_sessions_and_runs(shop: Shop) -> None:
    assert meta_of(shop.ask())["state"] == "pending"
    shop.people.grant(KEY)
    with shop.session() as session:
        first = session.call("place_order", ORDER)
        again = session.call("place_order", ORDER)
        session.end()
    assert (first["isError"], first["content"], first["count"]) == (
        False,
        [{"type": "text", "text": text_of(first)}],
        1.5,
    )
    assert text_of(first).startswith("place_order")
    assert again == first
    assert shop.ask() == first
    assert shop.ask(run="another") == first
    assert (shop.sent, shop.state()) == (1, ActionState.SUCCEEDED)


@each_engine
def test_a_grant_within_the_session_is_enough(shop: Shop) -> None:
    with shop.session("--complete") as session:
        assert meta_of(session.call("place_order", ORDER))["state"] == "pending"
        shop.people.grant(KEY)
        assert session.call("place_order", ORDER)["isError"] is False
        assert session.end() == 0
    assert (shop.sent, shop.run_state()) == (1, RunState.COMPLETED)


def test_a_call_that_waits_for_its_decision_is_made_when_it_comes_and_holds_up_no_other(shop: Shop) -> None:
    shop.policy = shop.place.policy(POLICY.replace('"finance" }', '"finance", wait_s = 30 }', 1))
    with shop.session("--complete") as session:
        waiting = session.begin("place_order", ORDER)
        assert session.call("echo")["isError"] is False
        shop.until_asked()
        shop.people.grant(KEY)
        assert session.answer(waiting)["result"]["isError"] is False
        session.end()
    assert (shop.sent, shop.state(), shop.run_state()) == (1, ActionState.SUCCEEDED, RunState.COMPLETED)


def test_two_proxies_of_one_store_send_it_once(shop: Shop) -> None:
    with shop.session(run="r1") as one, shop.session(run="r2") as two:
        for session in (one, two):
            assert meta_of(session.call("place_order", ORDER))["state"] == "pending"
        shop.people.grant(KEY)
        waiting = [(session, session.begin("place_order", ORDER)) for session in (one, two)]
        said = [session.answer(message)["result"] for session, message in waiting]
        if any(meta_of(result).get("state") == "elsewhere" for result in said):  # the other one was at it
            said = [session.call("place_order", ORDER) for session in (one, two)]
        assert [result["isError"] for result in said] == [False, False]
        assert said[0] == said[1]
        for session in (one, two):
            session.end()
    assert shop.sent == 1


def test_what_people_reject_is_never_sent_and_the_client_is_told_so_and_goes_on(shop: Shop) -> None:
    shop.ask()
    shop.people.reject(KEY)
    for _ in range(2):
        with shop.session() as session:
            said = session.call("place_order", ORDER)
            assert (said["isError"], meta_of(said)["state"], meta_of(said)["code"]) == (True, "denied", "rejected")
            assert "did not happen" in text_of(said)
            assert session.call("echo")["isError"] is False
            session.end()
    assert (shop.sent, shop.place.calls("echo"), shop.run_state()) == (0, 1, RunState.SUSPENDED)


def test_other_arguments_under_the_same_key_are_refused(shop: Shop) -> None:
    shop.ask()
    shop.people.grant(KEY)
    with shop.session() as session:
        said = session.call("place_order", {**ORDER, "count": 900})
        assert (meta_of(said)["state"], meta_of(said)["code"]) == ("denied", "argument_drift")
        assert session.call("place_order", ORDER)["isError"] is False
        session.end()
    assert shop.place.lines("call") == ['call place_order {"count": 2, "sku": "a"}']


def test_what_is_sent_is_what_people_saw_and_nothing_beside_it(shop: Shop) -> None:
    extra = {"account": "of somebody else"}
    with shop.session() as session:
        session.call("place_order", ORDER)
        shop.people.grant(KEY)
        said = session.call("place_order", ORDER, **extra)
        assert said["isError"] is False
        session.end()
    with shop.session(run="r2") as session:
        other = session.call("place_order", {"sku": "b"}, inputResponses={"x": 1})
        assert (meta_of(other)["state"], meta_of(other)["code"]) == ("denied", "not_one_message")
        session.end()
    assert (shop.sent, shop.place.lines("beside")) == (1, [])
    assert shop.people.members("order:b") == []


@pytest.mark.parametrize("arguments", [{}, {"sku": ""}, {"sku": ["a"]}, {"sku": None}, {"sku": 1.5}, {"sku": True}])
def test_arguments_that_name_no_effect_are_told_and_ask_for_nothing(shop: Shop, arguments: dict[str, Any]) -> None:
    with shop.session() as session:
        said = session.call("place_order", arguments)
        assert (said["isError"], meta_of(said)["state"]) == (True, "denied")
        assert "names no effect" in text_of(said) or "cannot be asked for" in text_of(said)
        session.end()
    assert shop.sent == 0


# -- what is to be put in order ------------------------------------------------------------------------------------


def test_a_call_that_is_held_up_says_by_what_and_what_to_do(shop: Shop) -> None:
    shop.ask()
    shop.people.grant(KEY)
    renamed = POLICY.replace("[tools.place_order]", '[effects]\nserver = "shop"\n\n[tools.place_order]')
    shop.policy = shop.place.policy(renamed)  # another target than the one that people approved
    with shop.session() as session:
        for _ in range(2):
            said = session.call("place_order", ORDER)
            assert (said["isError"], meta_of(said)["state"], meta_of(said)["code"]) == (True, "held_up", "other_terms")
            assert "another target" in text_of(said)
            assert "`arl actions successor " in text_of(said)
            assert "elsewhere" not in text_of(said)
            assert "in a new session" in text_of(said)
        session.end()
    assert (shop.sent, shop.state(), shop.run_state()) == (0, ActionState.AVAILABLE, RunState.SUSPENDED)


# -- doubt ---------------------------------------------------------------------------------------------------------


def test_after_a_kill_between_hand_out_and_record_it_is_never_sent_again(shop: Shop) -> None:
    slow = {"sku": "a", "seconds": 20}
    with shop.session() as session:
        session.call("place_order", slow)
        shop.people.grant(KEY)
        session.begin("place_order", slow)
        shop.place.until("call place_order")
        session.kill()
    for _ in range(2):
        with shop.session() as session:
            said = [session.call("place_order", slow) for _ in range(2)]
            assert [(one["isError"], meta_of(one)["state"]) for one in said] == [(True, "in_doubt")] * 2
            assert "not repeated" in text_of(said[0])
            session.end()
    assert (shop.sent, shop.state()) == (1, ActionState.UNRESOLVED)
    shop.people.saw_it(KEY)
    with shop.session() as session:
        known = session.call("place_order", slow)
        assert known["isError"] is False
        assert "evidence" in text_of(known)
        session.end()
    assert shop.sent == 1


def test_a_server_that_dies_with_the_call_leaves_a_doubt(shop: Shop) -> None:
    deadly = {"sku": "a", "die": 1}
    with shop.session() as session:
        session.call("place_order", deadly)
        shop.people.grant(KEY)
        said = session.call("place_order", deadly)
        assert meta_of(said)["state"] == "in_doubt"
        assert "the server ended" in text_of(said)
        assert session.wait() == 5
    with shop.session() as session:
        assert meta_of(session.call("place_order", deadly))["state"] == "in_doubt"
        session.end()
    assert (shop.sent, shop.state()) == (1, ActionState.UNRESOLVED)


@pytest.mark.parametrize("tool", ["fails", "errors"])
def test_an_answer_that_is_an_error_is_no_evidence_of_anything(shop: Shop, tool: str) -> None:
    with shop.session() as session:
        session.call(tool, ORDER)
        shop.people.grant(f"{tool}:a")
        for _ in range(2):
            assert meta_of(session.call(tool, ORDER))["state"] == "in_doubt"
        session.end()
    assert (shop.place.calls(tool), shop.state(f"{tool}:a")) == (1, ActionState.UNRESOLVED)


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"content": [], "isError": 1}},
        {"result": {"content": [], "isError": "true"}},
        {"result": {"content": [], "isError": {"code": 3}}},
        {"result": {"content": [], "resultType": "input_required"}},
        {"result": None},
        {"result": "done"},
        {"result": []},
        {},
        {"error": None},
        {"error": "it failed", "result": {"content": []}},
    ],
)
def test_an_error_in_whatever_form_a_server_writes_it_is_no_evidence(shop: Shop, answer: dict[str, Any]) -> None:
    shop.policy = shop.place.policy('[tools.says]\neffect = { key = "says:{sku}", approval = "finance" }\n')
    asked = {"sku": "a", "answer": answer}
    with shop.session() as session:
        session.call("says", asked)
        shop.people.grant("says:a")
        for _ in range(2):
            assert meta_of(session.call("says", asked))["state"] == "in_doubt"
        session.end()
    assert (shop.place.calls("says"), shop.state("says:a")) == (1, ActionState.UNRESOLVED)


def test_a_call_that_takes_too_long_is_a_doubt(shop: Shop) -> None:
    shop.policy = shop.place.policy(POLICY.replace("[tools.place_order]", "[tools.place_order]\ntimeout_s = 0.5"))
    slow = {"sku": "a", "seconds": 20}
    with shop.session() as session:
        session.call("echo")  # the server is there now
        session.call("place_order", slow)
        shop.people.grant(KEY)
        said = session.call("place_order", slow)
        assert (meta_of(said)["state"], "within 0.5 s" in text_of(said)) == ("in_doubt", True)
        shop.place.until("call place_order")
        session.end()
    assert shop.sent == 1


# -- the settings --------------------------------------------------------------------------------------------------


def test_a_store_without_a_trust_file_is_refused_before_anything_is_started(place: Place) -> None:
    policy = place.policy(POLICY)
    place.arl("init")
    done = subprocess.run(
        place.command("--policy", policy), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert "arl init --local" in done.stderr
    assert place.lines() == []


def test_a_policy_that_nobody_knows_is_refused_before_anything_is_started(shop: Shop) -> None:
    shop.policy = shop.place.policy(POLICY.replace("finance", "nobody"))
    with shop.session() as session:
        assert session.wait() == 1
        assert "no approval policy 'nobody'" in session.stderr()
    assert shop.place.lines() == []


def test_principals_are_those_of_the_policy_file_or_the_options(shop: Shop) -> None:
    shop.policy = shop.place.policy(f'[effects]\nrequester = "nobody"\nserver = "shop"\n{POLICY}')
    with shop.session() as session:
        assert session.wait() == 1
        assert "'nobody'" in session.stderr()
    with shop.session("--requester", "agent", "--executor", "worker") as session:
        session.call("place_order", ORDER)
        session.end()
    assert shop.people.members(KEY)[-1].audience == "mcp:shop/place_order"


def test_a_tool_that_is_denied_is_asked_for_by_nobody(shop: Shop) -> None:
    shop.policy = shop.place.policy(POLICY.replace("[tools.place_order]", '[tools.place_order]\ndeny = "closed"'))
    assert meta_of(shop.ask())["state"] == "denied"
    assert shop.people.members(KEY) == []


@pytest.mark.parametrize(
    "effect",
    [
        '{ key = "order:{sku}" }',
        '{ approval = "finance" }',
        '{ key = "order:{sku.x}", approval = "finance" }',
        '{ key = "order:{sku", approval = "finance" }',
        '{ key = "order:{sku}", approval = "finance", saef = 1 }',
        '{ key = "order:{sku}", approval = "" }',
        '{ key = "order:{sku}", approval = "finance", wait_s = -1 }',
        "3",
    ],
)
def test_a_bad_effect_is_named_before_anything_is_started(shop: Shop, effect: str, tmp_path: Path) -> None:
    policy = shop.place.policy(f"[tools.place_order]\neffect = {effect}\n")
    done = subprocess.run(shop.place.command("--policy", policy), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert policy in done.stderr
    assert "place_order.effect" in done.stderr
    assert shop.place.lines() == []
