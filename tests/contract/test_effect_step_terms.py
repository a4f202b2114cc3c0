"""An effect is sent under the terms that the program names, and what is out of order is nobody's decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from agent_run_ledger import EffectPending, EffectSettings, Refused, Request, RunLedger
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.gate import Permission
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.effects import ActionState, TargetClass, request_bytes
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.ledger.run_effects import RunEffects, open_run_effects
from agent_run_ledger.ports.effect_steps import Wanted
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import APPROVER, DAY_MS, REVOKER, Desk, desk
from tests.contract.engine_kit import each_engine
from tests.unit.effects.trust_examples import policy

pytestmark = each_engine

A = ActionState
KEY = "refund:17"
STRICT = {"approval": "two"}


def wanted(at: Desk, approval: str, url: str = "") -> Wanted:
    """What the program's call asks for, under a policy of one's own choice."""
    request = request_bytes(Request.json("POST", "/refunds", {"order": 17, "cents": 3_000}))
    return Wanted(action_key=KEY, request=request, target=http(url or at.server.url), approval=approval)


def effects(at: Desk, **settings: Any) -> RunEffects:
    return open_run_effects(str(at.path), "full", EffectSettings(trust=at.trust, **settings))


def propose(at: Desk, approval: str, url: str = "") -> None:
    """Let whoever may ask propose the key before the program does."""
    opened = effects(at)
    try:
        opened.propose(wanted(at, approval, url))
    finally:
        opened.close()


def swallowing(at: Desk, *, elsewhere: bool = False, **settings: Any) -> str:
    """The state of a run whose agent goes on without the effect where it is refused.

    `elsewhere`: the effect is one of another ledger than the one whose run it is called in.
    """
    program = at.program(**settings)
    ledger = RunLedger("ticket-17", at.path, effects=at.settings) if elsewhere else program.ledger
    try:
        with ledger, ledger.run():
            program.think("before")
            try:
                program.refund(17, 3_000)
            except Refused:
                program.think("without it")
    except EffectPending:
        pass
    return program.state()


# -- other terms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granted", [False, True])
def test_who_proposes_first_does_not_choose_the_policy(granted: bool) -> None:
    with desk() as at:
        propose(at, "finance")
        if granted:
            at.grant()
        for _ in range(2):
            assert at.program(**STRICT).outcome() == "other_policy"
        assert (at.sent, at.last().state) == (0, A.AVAILABLE if granted else A.PROPOSED)
        assert swallowing(at, **STRICT) == "completed"


def test_a_successor_under_another_policy_does_not_turn_a_no_into_a_yes() -> None:
    with desk() as at:
        assert at.program(**STRICT).outcome() == "approval_pending"
        with at.people() as people:
            people.reject(APPROVER, people.inspect(KEY)[-1].action_id)
        opened = effects(at)
        try:
            opened.succeed(opened.members(KEY)[-1].action_id, wanted(at, "finance"))
        finally:
            opened.close()
        at.grant()
        assert at.last().state is A.AVAILABLE
        assert at.program(**STRICT).outcome() == "other_policy"
        assert at.sent == 0
        with at.people() as people:  # the way on: it is taken back, and asked for under the policy of the program
            people.revoke(REVOKER, people.inspect(KEY)[-1].action_id)
        opened = effects(at)
        try:
            opened.succeed(opened.members(KEY)[-1].action_id, wanted(at, "two"))
        finally:
            opened.close()
        at.grant()
        at.grant(approver="dan")
        assert at.program(**STRICT).outcome() == "done"
        assert at.sent == 1


def test_what_happened_under_another_policy_is_told_as_it_is() -> None:
    with desk() as at:
        at.program("before").outcome()
        at.grant()
        result = at.program("before").run()
        assert at.program(**STRICT).run() == result
        assert at.sent == 1


def test_another_target_holds_the_run_up_and_nothing_is_sent() -> None:
    with desk() as at:
        propose(at, "finance", "http://127.0.0.1:9")
        at.grant()
        with pytest.raises(EffectPending, match="another target") as caught:
            at.program().run()
        assert (caught.value.code, at.program().state(), at.sent) == ("other_terms", "suspended", 0)
        assert caught.value.action_id == at.last().action_id.hex()


@pytest.mark.parametrize("code", ["other_policy", "other_terms"])
def test_the_terms_are_compared_again_before_the_claim(code: str) -> None:
    with desk() as at:
        policy, url = ("two", "") if code == "other_policy" else ("finance", "http://127.0.0.1:9")
        propose(at, "finance")
        at.grant()
        opened = effects(at)
        try:
            with pytest.raises(Refused) as caught:
                opened.dispatch(at.last().action_id, wanted(at, policy, url), worker="me")
        finally:
            opened.close()
        assert (caught.value.code, at.last().state, at.sent) == (code, A.AVAILABLE, 0)
        assert at.last().target_class is TargetClass.N


# -- what is out of order -------------------------------------------------------------------------------------------


def test_a_trust_file_that_follows_while_a_run_is_open_loses_no_effect() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        program = at.program()

        def live() -> None:
            with program.ledger, program.ledger.run():
                program.think("before")
                at.follow()
                try:
                    program.refund(17, 3_000)
                except Refused:
                    program.think("without it")

        with pytest.raises(EffectPending, match="nobody decided against it") as caught:
            live()
        assert (caught.value.code, program.state(), at.sent) == ("other_trust", "suspended", 0)
        assert "start the program again" in caught.value.hint
        assert at.program().outcome() == "done"
        assert (at.sent, at.said) == (1, ["before", "after"])


def test_a_policy_that_is_one_no_more_loses_no_effect() -> None:
    with desk() as at:
        at.program().outcome()
        at.grant()
        later = tuple(one for one in _trust(at).policies if one.name == "two")
        before = at.follow(policies=later)
        assert at.program().outcome() == "no_policy"
        with pytest.raises(Refused, match="no approval policy 'finance'"):  # where the run is entered
            swallowing(at)
        assert at.program().state() == "suspended"
        assert at.program(**STRICT).outcome() == "unknown_policy"
        assert (swallowing(at, elsewhere=True), swallowing(at, **STRICT)) == ("suspended", "suspended")
        assert at.last().state is A.AVAILABLE
        assert before != at.trust.read_bytes()
        at.follow(policies=(*later, policy("finance", 1, "bob", "dan", people=1, window_ms=DAY_MS)))
        assert at.program().outcome() == "done"
        assert at.sent == 1


@pytest.mark.parametrize("how", ["run", "arun", "execute", "aexecute", "check"])
def test_an_unknown_policy_is_refused_before_the_first_step(how: str) -> None:
    with desk() as at:
        ledger = RunLedger("x", at.path, effects=at.settings)
        ran: list[int] = []

        @ledger.step
        def think() -> None:
            ran.append(1)

        @ledger.effect(key="k", target=http(at.server.url), approval="finance")
        def refund() -> Request:
            raise AssertionError

        @ledger.effect(key="l", target=http(at.server.url), approval="nobody")
        def refund_more() -> Request:
            raise AssertionError

        async def enter() -> None:
            async with ledger.run():
                think()

        def sync() -> None:
            with ledger.run():
                think()

        ways: dict[str, Callable[[], object]] = {
            "run": sync,
            "arun": lambda: asyncio.run(enter()),
            "execute": ledger.execute,
            "aexecute": lambda: asyncio.run(ledger.aexecute()),
            "check": ledger.check_effects,
        }
        with ledger, pytest.raises(Refused, match="'nobody'") as caught:
            ways[how]()
        assert caught.value.code == "no_policy"
        assert "finance" in caught.value.hint
        assert (ran, ledger.bind("x").state) == ([], None)


def test_a_trust_file_that_cannot_be_opened_holds_a_tool_up() -> None:
    with desk() as at:
        effect = ToolEffect(key="refund:{order}", approval="finance")
        trust = at.trust.read_bytes()

        def live() -> Any:
            with RunLedger("ticket-17", at.path, effects=at.settings) as ledger, ledger.run():
                recorder = Recorder(effects={"pay": effect})
                try:
                    return recorder.tool("pay", {"order": 17}, lambda: "paid", call_id="c1")
                except Refused:
                    return "went on"

        at.trust.unlink()
        with pytest.raises(EffectPending) as caught:
            live()
        assert (caught.value.code, at.program().state()) == ("no_trust_file", "suspended")
        at.trust.write_bytes(trust)
        with pytest.raises(EffectPending) as caught:
            live()
        assert caught.value.code == "approval_pending"
        at.grant()
        assert live() == "paid"


def test_who_asks_about_a_tool_that_is_held_up_is_told_that_it_waits() -> None:
    with desk() as at:
        at.trust.unlink()
        ledger = RunLedger("ticket-17", at.path, effects=at.settings)
        with ledger, ledger.run():
            recorder = Recorder(effects={"pay": ToolEffect(key="refund:{order}", approval="finance")})
            answer = recorder.ask("pay", {"order": 17}, call_id="c1")
        assert answer.permission is Permission.PENDING
        assert "start the program again" in answer.reason


def _trust(at: Desk) -> TrustFile:
    with at.people() as people:
        return cast("Any", people.trust).trust
