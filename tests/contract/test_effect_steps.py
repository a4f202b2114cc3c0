"""Effects in runs: asked for once, suspended while people decide, sent once, and after a doubt only by evidence."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any, cast

import pytest

from agent_run_ledger import (
    ApprovalPending,
    EffectInDoubt,
    EffectResult,
    EffectSettings,
    Found,
    Lookup,
    Misuse,
    Opaque,
    Refused,
    Request,
    RunLedger,
)
from agent_run_ledger.effects import ActionState
from agent_run_ledger.runs.effect_calls import EffectCall
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import APPROVER, REVOKER, desk, eventually
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.target_servers import answer, says

pytestmark = each_engine

A = ActionState
hang_up = says(b"")


# -- approvals ------------------------------------------------------------------------------------------------------


def test_a_run_is_suspended_while_an_approval_is_pending_and_goes_on_when_it_is_granted() -> None:
    with desk() as at:
        for _ in range(3):
            with pytest.raises(ApprovalPending) as caught:
                at.program().run()
        view = at.last()
        assert (caught.value.action_id, caught.value.action_key) == (view.action_id.hex(), "refund:17")
        assert (at.sent, at.said, at.program().state()) == (0, ["before"], "suspended")
        at.grant()
        result = at.program().run()
        assert (at.sent, at.said, at.program().state()) == (1, ["before", "after"], "completed")
        assert result == EffectResult(
            action_key="refund:17",
            action_id=view.action_id.hex(),
            generation=1,
            status=201,
            answer=b'{"refund":"r-1"}',
        )
        assert result.json() == {"refund": "r-1"}
        assert at.program().run() == result
        assert (at.sent, at.last().state) == (1, A.SUCCEEDED)


def test_two_people_of_a_policy_have_to_sign() -> None:
    with desk() as at:
        assert at.program(approval="two").outcome() == "approval_pending"
        at.grant()
        with pytest.raises(ApprovalPending, match="1 of 2"):
            at.program(approval="two").run()
        at.grant(approver="dan")
        assert at.program(approval="two").outcome() == "done"
        assert at.sent == 1


@pytest.mark.parametrize(("decide", "code"), [("reject", "rejected"), ("revoke", "revoked")])
def test_what_people_refuse_is_never_sent_and_the_agent_goes_on(decide: str, code: str) -> None:
    with desk() as at:
        assert at.program().outcome() == "approval_pending"
        if decide == "revoke":
            at.grant()
        with at.people() as effects:
            who = REVOKER if decide == "revoke" else APPROVER
            getattr(effects, decide)(who, effects.inspect("refund:17")[-1].action_id)
        for _ in range(2):
            assert at.program().outcome() == code
        program = at.program()
        with program.ledger, program.ledger.run():
            program.think("before")
            with pytest.raises(Refused) as caught:
                program.refund(17, 3_000)
            program.think("without it")
        assert (caught.value.code, at.sent, program.state()) == (code, 0, "completed")


def test_a_window_that_is_over_is_recorded_and_refused() -> None:
    with desk() as at:
        at.settings = EffectSettings(trust=at.trust, window_s=0.05)
        at.program().outcome()
        eventually(lambda: at.program().outcome() == "expired")
        assert (at.last().state, at.sent) == (A.EXPIRED, 0)


def test_a_call_may_wait_for_its_decision() -> None:
    with desk() as at:
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(at.program(wait_s=60).run()))
        thread.start()
        eventually(lambda: bool(at.said))

        def asked() -> bool:
            with at.people() as effects:
                return bool(effects.inspect("refund:17"))

        eventually(asked)
        at.grant()
        thread.join(60)
        assert [one.status for one in got] == [201]
        assert at.sent == 1


# -- one key is one effect ------------------------------------------------------------------------------------------


def test_the_same_key_with_other_bytes_is_argument_drift() -> None:
    with desk() as at:
        assert at.program().outcome(17, 3_000) == "approval_pending"
        assert at.program("another").outcome(17, 9_000) == "argument_drift"
        at.grant()
        assert at.program().outcome(17, 3_000) == "done"
        assert at.program("another").outcome(17, 9_000) == "argument_drift"
        assert at.sent == 1


def test_another_run_and_a_fork_get_what_is_on_record_of_the_key() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        result = at.program().run()
        assert at.program("another").run() == result
        first = at.program()
        with first.ledger:
            fork = first.ledger.fork("ticket-17", from_step="think", new_run_id="forked")
            with fork.run():
                assert first.refund(17, 3_000) == result
        assert at.sent == 1


def test_equal_calls_at_once_are_one_effect() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        program = at.program()
        with program.ledger, program.ledger.run() as run:
            program.think("before")
            results = run.map(lambda _: program.refund(17, 3_000), range(8))
            again = program.refund(17, 3_000)
        assert len({one.action_id for one in [*results, again]}) == 1
        assert (at.sent, again.status) == (1, 201)


def test_equal_calls_side_by_side_in_one_scope_are_one_effect() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        program = at.program()
        with program.ledger, program.ledger.run() as run:
            calls = [threading.Thread(target=run.wrap(lambda: program.refund(17, 3_000))) for _ in range(4)]
            same = [threading.Thread(target=contextvars.copy_context().run, args=(program.refund, 17, 3_000))]
            same += [threading.Thread(target=contextvars.copy_context().run, args=(program.refund, 17, 3_000))]
            for thread in [*calls, *same]:
                thread.start()
            for thread in [*calls, *same]:
                thread.join(60)
            assert program.refund(17, 3_000).status == 201
        assert (at.sent, program.state()) == (1, "completed")


def test_a_worker_is_ours_only_where_its_attempt_of_this_run_is_over() -> None:
    call: Any = EffectCall(
        name="refund",
        wanted=cast("Any", None),
        effects=cast("Any", None),
        place=cast("Any", None),
        run_uid=b"r" * 16,
        generation=3,
        probe=None,
        successors=0,
        wait_s=0,
    )
    mine, other = (b"r" * 16).hex(), (b"s" * 16).hex()
    assert call.worker == f"run:{mine}:3"
    ours = [call.was_ours(f"run:{mine}:{number}") for number in ("1", "2", "3", "4", "", "x")]
    assert ours == [True, True, False, False, False, False]
    assert [call.was_ours(one) for one in (f"run:{other}:1", f"job:{mine}:1", "run", "", mine)] == [False] * 5


def test_what_an_approver_edited_is_what_is_sent() -> None:
    with desk() as at:
        at.program().outcome()
        at.edit(Request.json("POST", "/refunds", {"order": 17, "cents": 1}))
        at.grant(approver="dan")
        assert at.program().outcome() == "done"
        assert [b'"cents":1,' in one for one in at.server.requests] == [True]


# -- doubt ----------------------------------------------------------------------------------------------------------


def test_a_lost_reply_is_a_doubt_that_waits_for_evidence_and_is_never_sent_again() -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        at.grant()
        for _ in range(3):
            with pytest.raises(EffectInDoubt):
                at.program().run()
        assert (at.sent, at.last().state, at.program().state()) == (1, A.UNRESOLVED, "suspended")
        asked: list[Lookup] = []

        def look(lookup: Lookup) -> Found:
            asked.append(lookup)
            return Found.EXECUTED

        result = at.program(observe=look).run()
        assert (at.sent, at.last().state, at.program().state()) == (1, A.SUCCEEDED, "completed")
        assert (result.generation, result.status, result.answer) == (1, None, None)
        (lookup,) = asked
        assert lookup.request == Request.json("POST", "/refunds", {"order": 17, "cents": 3_000})
        assert (lookup.action_key, lookup.generation, lookup.drained) == ("refund:17", 1, False)
        assert at.program(observe=look).run() == result
        assert len(asked) == 1


@pytest.mark.parametrize("found", [Found.NOTHING, Found.UNKNOWN])
def test_a_probe_that_saw_nothing_ends_no_doubt_while_something_can_still_arrive(found: Found) -> None:
    with desk(hang_up) as at:
        at.program(observe=lambda _: found).outcome()
        at.grant()
        for _ in range(3):
            assert at.program(observe=lambda _: found, successors=1).outcome() == "effect_in_doubt"
        view = at.last()
        assert (at.sent, view.state, view.seen) == (1, A.UNRESOLVED, (found, None))
        assert len(view.evidence) == 1  # the same look again adds nothing


def test_after_a_drain_a_probe_that_saw_nothing_permits_a_successor_that_people_approve_anew() -> None:
    with desk(hang_up) as at:
        nothing: dict[str, Any] = {"observe": lambda _: Found.NOTHING, "successors": 1}
        at.program(**nothing).outcome()
        at.grant()
        assert at.program(**nothing).outcome() == "effect_in_doubt"
        at.drain()
        at.server.behave = answer(201, b"{}")
        assert at.program(**nothing).outcome() == "approval_pending"
        assert at.sent == 1
        at.grant()
        result = at.program(**nothing).run()
        assert (at.sent, result.generation, at.last().state) == (2, 2, A.SUCCEEDED)
        with at.people() as effects:
            assert [one.state for one in effects.inspect("refund:17")] == [A.SUPERSEDED, A.SUCCEEDED]


def test_without_a_policy_for_successors_what_did_not_happen_is_refused() -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        at.grant()
        at.program().outcome()
        at.drain()
        assert at.program(observe=lambda _: Found.NOTHING).outcome() == "not_executed"
        assert (at.sent, at.last().state) == (1, A.NOT_EXECUTED)


@pytest.mark.parametrize("says", [None, True, "executed"])
def test_a_probe_that_says_anything_else_is_misuse_and_decides_nothing(says: Any) -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        at.grant()
        assert at.program(observe=lambda _: says).outcome() == "bad_probe"
        assert (at.last().state, at.last().seen) == (A.UNRESOLVED, None)


def test_a_refusal_of_the_target_is_a_doubt_with_its_answer_kept() -> None:
    with desk(answer(409, b"in use")) as at:
        at.program().outcome()
        at.grant()
        assert at.program().outcome() == "effect_in_doubt"
        with at.people() as effects:
            view = effects.inspect("refund:17")[-1]
            assert [(one.status, one.body) for one in effects.answers(view.action_id)] == [(409, b"in use")]
        assert at.sent == 1


def test_pure_steps_around_a_doubt_go_on() -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        at.grant()
        program = at.program()

        def agent() -> None:
            with program.ledger, program.ledger.run() as run:
                program.think("before")
                run.gather(lambda: program.refund(17, 3_000), lambda: program.think("beside"))

        with pytest.raises(EffectInDoubt):
            agent()
        assert (at.said, program.state()) == (["before", "beside"], "suspended")


# -- how it is called -----------------------------------------------------------------------------------------------


def test_an_async_agent_is_not_held_up() -> None:
    with desk() as at:

        async def main() -> Any:
            ledger = RunLedger("async", at.path, effects=at.settings)

            @ledger.effect(key="refund:{order}", target=http(at.server.url), approval="finance")
            async def refund(order: int) -> Request:
                await asyncio.sleep(0)
                return Request.json("POST", "/refunds", {"order": order})

            async with ledger.run():
                result = await refund(17)
            ledger.close()
            return result

        with pytest.raises(ApprovalPending):
            asyncio.run(main())
        at.grant()
        assert (asyncio.run(main()).status, at.sent) == (201, 1)


def test_an_ordinary_function_is_called_once_with_what_was_approved() -> None:
    with desk() as at:
        done: list[dict[str, Any]] = []

        def program() -> Any:
            ledger = RunLedger("opaque", at.path, effects=at.settings)

            @ledger.effect(key="mail:{to}", target=Opaque(), approval="finance")
            def mail(to: str, lines: list[str]) -> dict[str, int]:
                done.append({"to": to, "lines": lines})
                return {"sent": len(lines)}

            with ledger, ledger.run():
                return mail("ann", ["a", "b"])

        with pytest.raises(ApprovalPending):
            program()
        assert done == []
        at.grant("mail:ann")
        assert program().json() == {"sent": 2}
        assert program().json() == {"sent": 2}
        assert done == [{"to": "ann", "lines": ["a", "b"]}]


@only_a_file
def test_four_commits_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_run_ledger.store.sqlite_writer import SqliteWriter

    synced: list[bool] = []
    real = SqliteWriter._set_sync

    def counted(writer: Any, cursor: Any, sync: bool) -> None:
        synced.append(sync)
        real(writer, cursor, sync)

    with desk() as at:
        at.program().outcome()
        at.grant()
        program = at.program()
        with program.ledger, program.ledger.run():
            program.think("before")
            monkeypatch.setattr(SqliteWriter, "_set_sync", counted)
            program.refund(17, 3_000)
            monkeypatch.setattr(SqliteWriter, "_set_sync", real)
            program.think("after")
        assert (synced.count(True), synced.count(False)) == (4, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": None}, "needs a key"),
        ({"key": ""}, "must have characters"),
        ({"key": "refund:{nothing}"}, "no parameter"),
        ({"approval": ""}, "approval policy"),
        ({"successors": -1}, "successors"),
        ({"wait_s": -1}, "wait_s"),
        ({"wait_s": True}, "wait_s"),
    ],
)
def test_settings_that_are_none_are_misuse_where_it_is_declared(settings: dict[str, Any], words: str) -> None:
    ledger = RunLedger("x")
    chosen = {"key": "refund:{order}", "target": http("http://127.0.0.1:9"), "approval": "finance", **settings}
    with pytest.raises(Misuse, match=words):

        @ledger.effect(**chosen)
        def refund(order: int) -> Request:
            raise AssertionError


def test_a_function_that_builds_no_request_is_misuse() -> None:
    with desk() as at:
        ledger = RunLedger("x", at.path, effects=at.settings)

        @ledger.effect(key="k", target=http(at.server.url), approval="finance")
        def refund() -> Any:
            return {"method": "POST"}

        with ledger, pytest.raises(Misuse) as caught, ledger.run():
            refund()
        assert caught.value.code == "no_request"
        assert at.sent == 0


def test_an_unknown_policy_is_refused_and_nothing_is_asked_for() -> None:
    with desk() as at:
        assert at.program(approval="nobody").outcome() == "no_policy"
        with at.people() as effects:
            assert effects.inspect("refund:17") == []


# -- the store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", ["store", "authority", "trust"])
def test_a_store_that_effects_cannot_be_in_is_refused_before_the_first_step(lacks: str, tmp_path: Any) -> None:
    path = tmp_path / "runs.db"
    if lacks != "store":
        open_sqlite(path, create=True, authority=lacks == "trust").close()
    ledger = RunLedger("x", path)
    ran: list[int] = []

    @ledger.step
    def think() -> None:
        ran.append(1)

    @ledger.effect(key="k", target=http("http://127.0.0.1:9"), approval="finance")
    def refund() -> Request:
        raise AssertionError

    with ledger, pytest.raises(Refused) as caught, ledger.run():
        think()
    assert caught.value.code == {"store": "no_store", "authority": "no_authority", "trust": "no_trust"}[lacks]
    assert "arl init" in str(caught.value)
    assert (ran, path.exists()) == ([], lacks != "store")


def test_the_history_of_a_run_tells_its_effects_too(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from agent_run_ledger.cli.main import main

    with desk() as at:
        at.program().outcome()
        at.grant()
        at.program().outcome()
        assert main(["runs", "show", "--db", str(at.path), "ticket-17"]) == 0
        shown = capsys.readouterr().out
        assert "effect refund:17" in shown
        assert "succeeded" in shown
        assert main(["runs", "show", "--json", "--db", str(at.path), "ticket-17"]) == 0
        told = json.loads(capsys.readouterr().out)
        (effect,) = told["effects"]
        assert (effect["action_key"], effect["status"], effect["approvals"]) == ("refund:17", "succeeded", ["bob"])
        assert [call["effect"] for call in told["calls"] if call["step"] == "refund"] == [effect["action_id"]]


def test_what_swallows_the_pending_error_leaves_a_run_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with desk() as at:
        program = at.program()
        with program.ledger, program.ledger.run(), pytest.raises(ApprovalPending):
            program.refund(17, 3_000)
        assert at.sent == 0
        assert program.state() == "completed"
