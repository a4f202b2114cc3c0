"""What approvers edited: it is what is sent, also by the successor, and what cannot be sent is refused before that."""

from __future__ import annotations

from typing import Any

import pytest

from agent_run_ledger import ApprovalPending, EffectPending, Found, Misuse, Opaque, Request, RunLedger
from agent_run_ledger.effects import ActionState
from agent_run_ledger.kernel.effects.request import Call
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import Desk, desk
from tests.contract.target_servers import answer, says

A = ActionState
LESS = Request.json("POST", "/refunds", {"order": 17, "cents": 1})


def nothing_there(successors: int) -> dict[str, Any]:
    return {"observe": lambda _: Found.NOTHING, "successors": successors}


def granted_and_lost(at: Desk, approver: str, **settings: Any) -> None:
    """Let somebody approve it; it is sent, its answer is lost, and it is proved that nothing happened."""
    at.grant(approver=approver)
    at.server.behave = says(b"")
    assert at.program(**settings).outcome() == "effect_in_doubt"
    at.drain()
    at.server.behave = answer(201, b"{}")


def test_the_successor_of_what_was_edited_asks_for_what_people_had_made_of_it() -> None:
    with desk() as at:
        settings = nothing_there(1)
        at.program(**settings).outcome()
        at.edit(LESS, preconditions=(("invoice state", "open"),))
        granted_and_lost(at, "dan", **settings)
        assert at.program(**settings).outcome() == "approval_pending"
        assert at.last().preconditions == (("invoice state", "open"),)
        at.grant(approver="bob")  # who had edited it, and is not who asked for the successor
        assert at.program(**settings).outcome() == "done"
        assert [b'"cents":1,' in one for one in at.server.requests] == [True, True]


def test_an_edit_uses_up_no_successor() -> None:
    with desk() as at:
        settings = nothing_there(1)
        at.program(**settings).outcome()
        at.edit(LESS)
        granted_and_lost(at, "dan", **settings)
        assert at.program(**settings).outcome() == "approval_pending"
        at.edit(LESS, preconditions=(("invoice state", "open"),))
        granted_and_lost(at, "dan", **settings)
        assert at.program(**settings).outcome() == "not_executed"
        assert [one.state for one in members(at)] == [A.SUPERSEDED] * 3 + [A.NOT_EXECUTED]


def members(at: Desk) -> Any:
    with at.people() as effects:
        return effects.inspect("refund:17")


# -- what takes no arguments, or other ones ---------------------------------------------------------------------------


def test_an_effect_without_arguments_follows_what_was_edited() -> None:
    with desk() as at:

        def agent() -> Any:
            ledger = RunLedger("nightly", at.path, effects=at.settings)

            @ledger.effect(key="nightly", target=http(at.server.url), approval="finance")
            def nightly() -> Request:
                return Request.json("POST", "/refunds", {"order": 17, "cents": 3_000})

            with ledger, ledger.run():
                return nightly()

        with pytest.raises(ApprovalPending):
            agent()
        at.edit(LESS, "nightly")
        at.grant("nightly", "dan")
        assert agent().status == 201
        assert [b'"cents":1,' in one for one in at.server.requests] == [True]


@pytest.mark.parametrize(
    ("edited", "code"),
    [
        (Call.of("tidy", {"deep": True}), "other_arguments"),
        (Call.of("other", {}), "other_request"),
        (LESS, "other_request"),
    ],
    ids=["arguments", "function", "http"],
)
def test_what_a_function_does_not_take_is_refused_before_anything_is_called(edited: Any, code: str) -> None:
    done: list[str] = []
    with desk() as at:

        def agent() -> None:
            ledger = RunLedger("tidy", at.path, effects=at.settings)

            @ledger.effect(key="tidy", target=Opaque(), approval="finance")
            def tidy() -> None:
                done.append("tidy")

            with ledger, ledger.run():
                tidy()

        with pytest.raises(ApprovalPending):
            agent()
        at.edit(edited, "tidy")
        at.grant("tidy", "dan")
        for _ in range(2):
            with pytest.raises(EffectPending) as caught:
                agent()
            assert (caught.value.code, at.last("tidy").state, done) == (code, A.AVAILABLE, [])
        with at.people() as effects:
            from tests.contract.effect_run_kit import REVOKER

            effects.revoke(REVOKER, at.last("tidy").action_id)
        with pytest.raises(Exception, match="people took it back") as told:
            agent()
        assert getattr(told.value, "code", "") == "revoked"


def test_a_function_with_arguments_that_have_no_names_is_refused_before_it_is_asked_for() -> None:
    with desk() as at:
        ledger = RunLedger("mail", at.path, effects=at.settings)

        @ledger.effect(key="mail:{to}", target=Opaque(), approval="finance")
        def mail(to: str, /) -> None:
            raise AssertionError(to)

        with pytest.raises(Misuse) as caught, ledger, ledger.run():
            mail("ann")
        assert caught.value.code == "other_arguments"
        with at.people() as effects:
            assert effects.inspect("mail:ann") == []
