"""Calls of tools through the proxy: recorded, restored, told apart by id and by occurrence."""

from __future__ import annotations

import json

import pytest

from tests.adapters.mcp.sessions import Place, meta_of, text_of

MODERN = "io.modelcontextprotocol/protocolVersion"


def test_a_restart_restores_every_result_without_asking_the_server_and_then_goes_on(place: Place) -> None:
    with place.session() as first:
        live = [first.call("echo", {"n": n}) for n in (1, 1, 2)]
        assert first.end() == 0
    assert place.calls() == 3
    assert len({text_of(one) for one in live}) == 3
    with place.session() as second:
        assert [second.call("echo", {"n": n}) for n in (1, 1, 2)] == live
        assert place.calls() == 3
        second.call("echo", {"n": 2})
        assert place.calls() == 4
        second.end()


def test_calls_may_come_in_another_order_after_a_restart(place: Place) -> None:
    with place.session() as first:
        one, two = first.call("echo", {"n": 1}), first.call("echo", {"n": 2})
        first.end()
    with place.session() as second:
        assert second.call("echo", {"n": 3})["isError"] is False
        assert second.call("echo", {"n": 2}) == two
        assert second.call("echo", {"n": 1}) == one
        second.end()
    assert place.calls() == 3


def test_a_live_answer_passes_byte_for_byte(place: Place) -> None:
    with place.session() as session:
        session.begin("echo")
        line = session.raw()
        assert b'"count": 1.5' in line
        assert json.loads(line)["id"] == 1
        session.end()


def test_an_error_result_is_recorded_as_a_result(place: Place) -> None:
    with place.session() as first:
        said = first.call("fails", {"path": "x"})
        assert said["isError"] is True
        first.end()
    with place.session() as second:
        assert second.call("fails", {"path": "x"}) == said
        second.end()
    assert place.calls() == 1


def test_a_json_rpc_error_is_recorded_as_an_error_and_given_again(place: Place) -> None:
    expected = {"code": -32050, "message": "the shelf is empty", "data": {"shelf": 3}}
    for _ in range(2):
        with place.session() as session:
            answer = session.answer(session.begin("errors"))
            assert answer["error"] == expected
            session.end()
    assert place.calls() == 1
    assert "ServerError" in place.arl("runs", "show", "r1")


def test_parallel_calls_are_answered_as_they_end(place: Place) -> None:
    with place.session() as session:
        slow = session.begin("slow", {"seconds": 1.0})
        quick = session.begin("echo")
        assert text_of(session.answer(quick)["result"]).startswith("echo")
        assert place.lines("done") == []
        assert text_of(session.answer(slow)["result"]) == "started"
        session.end()


def test_equal_calls_at_once_are_two_calls(place: Place) -> None:
    with place.session() as first:
        ids = [first.begin("echo", {"seconds": 0.2}) for _ in range(3)]
        answers = [first.answer(one)["result"] for one in ids]
        first.end()
    assert place.calls() == 3
    with place.session() as second:
        assert [second.call("echo", {"seconds": 0.2}) for _ in range(3)] == answers
        second.end()
    assert place.calls() == 3


# -- ids of calls (DUP-06, DUP-08) ---------------------------------------------------------------------------------


def test_one_call_id_is_one_call_and_another_id_is_another(place: Place) -> None:
    with place.session() as session:
        first = session.call("create_site", {"order": 7}, call_id="a")
        assert session.call("create_site", {"order": 7}, call_id="a") == first
        assert place.calls("create_site") == 1
        assert session.call("create_site", {"order": 7}, call_id="b") != first
        assert place.calls("create_site") == 2
        session.end()


def test_one_call_id_sent_twice_at_once_reaches_the_server_once(place: Place) -> None:
    with place.session() as session:
        ids = [session.begin("create_site", {"seconds": 0.3}, call_id="a") for _ in range(2)]
        first, second = (session.answer(one)["result"] for one in ids)
        assert first == second
        session.end()
    assert place.calls() == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_call_id_with_other_arguments_or_tool_is_refused(place: Place, restarted: bool) -> None:
    session = place.session()
    first = session.call("wall", {"wall": 1}, call_id="k1")
    assert session.call("wall", {"wall": 1}, call_id="k1") == first
    if restarted:
        session.kill()
        session.__exit__()
        session = place.session()
    for tool, arguments in (("wall", {"wall": 2}), ("order", {"wall": 1})):
        refused = session.call(tool, arguments, call_id="k1")
        assert refused["isError"] is True
        assert meta_of(refused)["code"] == "call_id_reused"
    assert session.call("wall", {"wall": 1}, call_id="k1") == first
    assert place.calls() == 1
    session.end()
    session.__exit__()


def test_an_answer_to_a_question_of_the_server_is_another_part_of_the_same_call(place: Place) -> None:
    with place.session() as session:
        first = session.call("echo", {"n": 1}, call_id="k")
        second = session.call("echo", {"n": 1}, requestState="s", inputResponses={"q": {"a": 1}})
        third = session.call("echo", {"n": 1}, requestState="s", inputResponses={"q": {"a": 2}})
        assert len({text_of(one) for one in (first, second, third)}) == 3
        session.end()
    with place.session() as again:
        assert again.call("echo", {"n": 1}, requestState="s", inputResponses={"q": {"a": 2}}) == third
        again.end()
    assert place.calls() == 3


# -- names and arguments that are odd ------------------------------------------------------------------------------


def test_names_of_tools_and_arguments_that_mean_something_to_the_ledger(place: Place) -> None:
    odd = {"self": 1, "make": 2, "call_id": "x", "": 3, "a.b": {"c": [1.0, None, 2**70]}, "é": "x"}
    for _ in range(2):
        with place.session() as session:
            session.call("run.tests", {"self": 1, "make": 2, "call_id": "x", "step": 4, "args": 5})
            session.call("echo", odd)
            session.end()
    assert place.calls() == 2


def test_half_of_a_surrogate_pair_comes_back_as_it_was(place: Place) -> None:
    for _ in range(2):
        with place.session() as session:
            assert text_of(session.call("surrogate", {"x": "\ud800"})) == "half \ud800"
            session.end()
    assert place.calls() == 1


@pytest.mark.parametrize(
    "params",
    [{}, {"name": 3}, {"name": "echo", "arguments": [1]}, {"name": "a\nb"}, {"name": "x" * 300}]
    + [{"name": "echo", "_meta": {"agent-run-ledger/call-id": bad}} for bad in ("", 5)],
)
def test_a_call_that_is_none_is_refused_and_not_passed_on(place: Place, params: dict[str, object]) -> None:
    with place.session() as session:
        assert session.ask("tools/call", params)["error"]["code"] == -32602
        session.end()
    assert place.calls() == 0


def test_a_result_for_a_client_of_the_newer_protocol_says_that_it_is_complete(place: Place) -> None:
    policy = place.policy('[tools.order]\ndeny = "orders are closed"\n')
    with place.session("--policy", policy) as session:
        new = session.call("order", _meta={MODERN: "2026-07-28"})
        old = session.call("order", {"n": 1})
        assert new["resultType"] == "complete"
        assert "resultType" not in old
        session.end()


# -- the run -------------------------------------------------------------------------------------------------------


def test_a_named_run_waits_for_another_session_and_one_without_a_name_is_completed(place: Place) -> None:
    with place.session() as named:
        named.call("echo")
        named.end()
    assert "suspended" in place.arl("runs", "show", "r1")
    with place.session(run="") as made:
        made.call("echo")
        made.end()
        run_id = made.stderr().split()[1]
    assert "completed" in place.arl("runs", "show", run_id)


def test_a_completed_run_is_restored_and_nothing_new_runs_in_it(place: Place) -> None:
    with place.session("--complete") as first:
        said = first.call("echo", {"n": 1})
        first.end()
    with place.session() as second:
        assert second.call("echo", {"n": 1}) == said
        refused = second.call("echo", {"n": 2})
        assert meta_of(refused)["code"] == "run_completed"
        assert second.call("echo", {"n": 1}, call_id="new")["isError"] is True
        second.end()
    assert place.calls() == 1


def test_a_second_proxy_waits_for_the_first_one_to_let_go(place: Place) -> None:
    with place.session() as first:
        first.call("echo")
        with place.session() as second:
            waiting = second.begin("echo")
            place.until("start", 2)
            first.end()
            assert text_of(second.answer(waiting)["result"]).startswith("echo")
            second.end()
    assert place.calls() == 1
