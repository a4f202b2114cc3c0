"""Which answer of an effect is a run's for good: one that it was told and went on from, and no other."""

from __future__ import annotations

from contextlib import suppress

from agent_run_ledger import Refused
from agent_run_ledger.effects import ActionState
from agent_run_ledger.ledger.call_story import CallFate, tell_calls
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.ledger.views import require_run
from agent_run_ledger.store import open_store
from tests.contract.effect_run_kit import Desk, desk
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

DRIFTED = 9_000


def gone_on(at: Desk, run_id: str = "ticket-17", cents: int = 3_000) -> str:
    """The code that a start of the agent was told, which went on from it, and died."""
    program = at.program(run_id)
    code = ""
    with program.ledger, suppress(KeyboardInterrupt), program.ledger.run():
        program.think("before")
        try:
            program.refund(17, cents)
        except Refused as error:
            code = error.code
        program.think("without it")
        raise KeyboardInterrupt
    return code


def fates(at: Desk) -> list[CallFate]:
    """What `arl runs explain` says that the next start would be answered to each call of the effect."""
    store = open_store(at.path, create=False)
    try:
        view = view_run(store, require_run(store.reader(), "ticket-17"))
        return [one.fate for one in tell_calls(store, view) if one.call.name == "refund"]
    finally:
        store.close()


def test_a_start_that_drifts_makes_no_answer_final_that_it_was_not_told() -> None:
    with desk() as at:
        assert at.program().outcome() == "approval_pending"
        at.reject()
        assert at.program().outcome() == "rejected"
        assert [at.program().outcome(17, DRIFTED) for _ in range(2)] == ["argument_drift"] * 2
        assert fates(at) == [CallFate.TRIES] * 2
        assert at.program().outcome() == "rejected"
        assert at.program().outcome(17, DRIFTED) == "argument_drift"
        at.succeed()
        assert at.program().outcome() == "approval_pending"
        at.grant()
        assert at.program().outcome() == "done"
        assert (at.sent, at.last().state) == (1, ActionState.SUCCEEDED)


def test_what_a_run_was_told_and_went_on_from_is_its_answer_for_good() -> None:
    with desk() as at:
        assert at.program().outcome() == "approval_pending"
        at.reject()
        told = [gone_on(at), gone_on(at, cents=DRIFTED), gone_on(at)]
        assert told == ["rejected", "argument_drift", "rejected"]
        assert fates(at)[0] is CallFate.RAISES
        at.succeed()
        at.grant()
        assert gone_on(at) == "rejected"
        assert at.sent == 0
        assert at.program("ticket-18").outcome() == "done"  # another run was told nothing yet
        assert at.sent == 1
