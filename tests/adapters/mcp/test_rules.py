"""What stands between a client and a tool: the policy, the gate, the breaker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger, RunState
from tests.adapters.mcp.sessions import HERE, PLAIN, Place, Session, meta_of, text_of
from tests.adapters.offline import OFFLINE

NUDGE = "without anything new"


# -- the breaker ---------------------------------------------------------------------------------------------------


def test_a_loop_stops_the_run_and_nothing_reaches_the_server_until_it_is_released(place: Place) -> None:
    with place.session() as session:
        said = [session.call("same", {"page": "orders"}) for _ in range(4)]
        assert NUDGE in text_of(said[2])
        assert [one["isError"] for one in said] == [False, False, False, True]
        assert meta_of(said[3])["code"] == "loop_detected"
        assert f"arl runs release r1 --db {place.db}" in text_of(said[3])
        reached = place.calls()
        for tool in ("same", "echo", "place_order"):
            assert meta_of(session.call(tool, {"page": "orders"}))["state"] == "stopped"
        assert session.ask("ping")["result"] == {}
        assert place.calls() == reached
        place.arl("runs", "release", "r1", "--reason", "looked")
        assert session.call("echo")["isError"] is False
        assert place.calls() == reached + 1
        session.end()


def test_a_restart_of_a_stopped_run_answers_every_call_with_the_stop(place: Place) -> None:
    with place.session() as first:
        while meta_of(first.call("same")).get("state") != "stopped":
            pass
        first.end()
    reached = place.calls()
    with place.session() as second:
        assert len(second.ask("tools/list")["result"]["tools"]) == 3
        for _ in range(2):
            assert meta_of(second.call("same"))["state"] == "stopped"
        assert place.calls() == reached
        place.arl("runs", "release", "r1", "--reason", "looked")
        restored = [text_of(second.call("same")) for _ in range(3)]
        assert NUDGE in restored[2]
        assert place.calls() == reached
        second.end()


def test_failing_results_and_errors_are_loops_too(place: Place) -> None:
    for tool in ("fails", "errors"):
        with place.session(run=tool) as session:
            for _ in range(8):
                answer = session.answer(session.begin(tool, {"path": "a"}))
                if meta_of(answer.get("result", {})).get("state") == "stopped":
                    break
            else:
                pytest.fail(f"{tool} went on")
            session.end()


def test_short_answers_for_other_inputs_are_no_loop(place: Place) -> None:
    """The envelope of a result, which is the same for every short answer, is not what is compared."""
    with place.session() as session:
        for number in range(20):
            assert session.call("acknowledge", {"id": f"item-{number * 7919}"})["isError"] is False
        session.end()


def test_a_person_cancels_the_run_while_the_session_goes_on(place: Place) -> None:
    with place.session() as session:
        session.call("echo")
        place.arl("runs", "cancel", "r1", "--reason", "enough", "--yes")
        assert meta_of(session.call("echo"))["state"] == "stopped"
        assert meta_of(session.call("echo"))["code"] == "run_cancelled"
        session.end()
    assert place.calls() == 1


# -- the policy ----------------------------------------------------------------------------------------------------


def test_a_denied_tool_is_never_called(place: Place) -> None:
    policy = place.policy('[tools.order]\ndeny = "orders are closed"\n')
    for _ in range(2):
        with place.session("--policy", policy) as session:
            said = session.call("order")
            assert said["isError"] is True
            assert "orders are closed" in text_of(said)
            assert session.call("echo")["isError"] is False
            session.end()
    assert place.calls("order") == 0


def test_a_poll_may_be_repeated_and_the_default_counts_for_tools_without_rules(place: Place) -> None:
    policy = place.policy('[tools."*"]\npoll = true\n[tools.echo]\npoll = false\n')
    with place.session("--policy", policy) as session:
        for _ in range(8):
            assert session.call("same")["isError"] is False
        session.end()


def test_the_policy_may_be_json(place: Place) -> None:
    path = place.folder / "policy.json"
    path.write_text(json.dumps({"tools": {"order": {"deny": True}}}), encoding="utf-8")
    with place.session("--policy", str(path)) as session:
        assert session.call("order")["isError"] is True
        session.end()


@pytest.mark.parametrize("text", ["[tools.order]\nsave = true\n", "tools = 3\n", "[tools.order\n"])
def test_a_bad_policy_file_is_named(place: Place, text: str) -> None:
    policy = place.policy(text)
    done = subprocess.run(place.command("--policy", policy), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert policy in done.stderr
    assert "Traceback" not in done.stderr
    assert place.lines() == []


# -- the gate (APP-08) ---------------------------------------------------------------------------------------------


class Shop:
    """A session whose gate decides by a file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.decisions = place.folder / "decisions.json"
        self.decide()

    def decide(self, **decisions: str) -> None:
        self.decisions.write_text(json.dumps(decisions), encoding="utf-8")

    def session(self, **more: str) -> Session:
        command = [*OFFLINE, str(HERE / "proxy_with_gate.py"), str(self.place.db), *PLAIN]
        return Session(command, self.place.environment(DECISIONS=str(self.decisions), **more))


def test_waiting_for_an_approval_is_an_error_result_with_its_id_and_no_loop(place: Place) -> None:
    shop = Shop(place)
    with shop.session() as session:
        for _ in range(8):
            said = session.call("order", {"sku": "a"})
            assert meta_of(said)["state"] == "pending"
            assert meta_of(said)["approval-id"] == 'order-{"sku": "a"}-0'
            assert meta_of(said)["approval-id"] in text_of(said)
        assert place.calls() == 0
        shop.decide(**{'order-{"sku": "a"}-0': "allowed"})
        assert session.call("order", {"sku": "a"})["isError"] is False
        assert meta_of(session.call("order", {"sku": "a"}))["approval-id"] == 'order-{"sku": "a"}-1'
        session.end()
    assert place.calls() == 1


def test_equal_calls_at_once_need_an_approval_each(place: Place) -> None:
    with Shop(place).session() as session:
        session.call("order", {"sku": "warm"})
        said: list[set[str]] = []
        for _ in range(2):
            waiting: list[int] = []
            for sku in ("a", "b", "a"):
                waiting.append(session.begin("order", {"sku": sku}))
                time.sleep(0.015)
            said.append({meta_of(session.answer(one)["result"])["approval-id"] for one in waiting})
        assert len(said[0]) == 3
        assert said[1] == said[0]
        session.end()
    assert place.calls() == 0


def test_a_denial_calls_nothing(place: Place) -> None:
    shop = Shop(place)
    shop.decide(**{'order-{"sku": "a"}-0': "denied"})
    with shop.session() as session:
        said = session.call("order", {"sku": "a"})
        assert meta_of(said)["state"] == "denied"
        assert "the shop decides" in text_of(said)
        session.end()
    assert place.calls() == 0


def test_what_was_denied_and_what_was_allowed_after_it_is_answered_so_again(place: Place) -> None:
    shop, said = Shop(place), list[list[object]]()
    denied = {f'order-{{"sku": "a"}}-{n}': "denied" for n in range(2)}
    shop.decide(**denied)
    for _ in range(2):
        with shop.session() as session:
            said.append([meta_of(session.call("order", {"sku": "a"})).get("state") for _ in range(2)])
            shop.decide(**{f'order-{{"sku": "a"}}-{n}': "allowed" for n in range(6)})
            said[-1].append(meta_of(session.call("order", {"sku": "a"})).get("state"))
            session.end()
    assert said == [["denied", "denied", None]] * 2
    assert place.calls() == 1


def test_a_tool_with_a_name_that_is_kept_is_known_to_gate_policy_and_client_by_its_own(place: Place) -> None:
    shop = Shop(place)
    with shop.session() as session:
        said = session.call("run.tests")
        assert meta_of(said)["approval-id"] == "run.tests-{}-0"
        assert "the call of 'run.tests' waits" in text_of(said)
        shop.decide(**{"run.tests-{}-0": "denied"})
        assert "the call of 'run.tests' was refused" in text_of(session.call("run.tests"))
        session.end()
    policy = place.policy('[tools."run.tests"]\ndeny = "no tests"\n')
    with place.session("--policy", policy, run="r2") as session:
        assert "tool 'run.tests' may not be called: no tests" in text_of(session.call("run.tests"))
        session.end()
    assert place.calls() == 0


def test_nobody_is_asked_to_approve_what_the_policy_denies(place: Place) -> None:
    with Shop(place).session(DENY="order") as session:
        said = session.call("order")
        assert (meta_of(said)["state"], meta_of(said).get("approval-id")) == ("denied", None)
        assert "may not be called" in text_of(said)
        session.end()
    assert place.calls() == 0


def test_a_run_that_is_to_be_completed_is_suspended_where_a_call_waits(place: Place) -> None:
    shop = Shop(place)
    states = []
    for decision in ("pending", "allowed"):
        shop.decide(**{"order-{}-0": decision})
        with shop.session(COMPLETE="1") as session:
            session.call("order")
            session.end()
        with RunLedger(db_path=place.db, create=False) as ledger:
            states.append((ledger.bind("r1").state, place.calls()))
    assert states == [(RunState.SUSPENDED, 0), (RunState.COMPLETED, 1)]


def test_a_number_that_is_none_is_refused_by_words_that_a_model_can_read(place: Place) -> None:
    for _ in range(2):
        with place.session() as session:
            session.write(
                b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"order","arguments":{"n":1e999}}}'
            )
            said = session.answer(7)["result"]
            assert (said["isError"], meta_of(said)["state"]) == (True, "denied")
            assert "NaN or infinite" in text_of(said)
            assert session.call("echo")["isError"] is False
            session.end()
    assert (place.calls("order"), place.calls("echo")) == (0, 1)


# -- without the framework -----------------------------------------------------------------------------------------


def test_the_proxy_imports_no_framework(root: Path) -> None:
    names = "answers call_numbers lines listing messages policy proxy recorded_run serving tool_calls upstream wire"
    imports = "; ".join(f"import agent_run_ledger.adapters.mcp.{name}" for name in names.split())
    program = f"{imports}; import sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('mcp', 'pydantic')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert done.stdout.strip() == "[]", done.stderr
