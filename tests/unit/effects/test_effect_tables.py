"""The tables of the effect ledger: every cell, written out once more by hand, and asked of the rules."""

from __future__ import annotations

import pytest

from agent_run_ledger.kernel.effects import Accepted, ActionState, Event, LedgerState, Recorded, Rejected, TargetClass
from agent_run_ledger.kernel.effects.reducer import GUARDS, MOVES
from agent_run_ledger.kernel.effects.states import (
    ARROWS,
    CLOSED,
    EVENT_NEEDS,
    INVARIANTS,
    LEDGER_TABLE,
    Leave,
    Operation,
    Role,
)
from tests.unit.effects.examples import A, Asked, actor, example

SAME, FLAG = "same", "flag"
# One line a state: event=new state. What is not named is refused.
TABLE = """
none          propose=proposed
proposed      edit=superseded reject=rejected approve=available revoke=revoked expire=expired admit=unresolved
available     claim=claimed revoke=revoked expire=expired admit=unresolved
claimed       prepare=prepared close_unprepared=not_executed doubt=unresolved observe=claimed revoke=claimed \
admit=unresolved
prepared      hand_out=prepared outcome=succeeded success=succeeded not_executed=not_executed doubt=unresolved \
observe=prepared revoke=prepared admit=unresolved
unresolved    outcome=succeeded success=succeeded not_executed=not_executed write_off=written_off \
close_unprepared=not_executed observe=unresolved revoke=unresolved admit=unresolved
succeeded
superseded
written_off
rejected      successor=superseded admit=unresolved
expired       successor=superseded admit=unresolved
revoked       successor=superseded admit=unresolved
not_executed  successor=superseded admit=unresolved
"""
LINES = [line.split() for line in TABLE.strip().splitlines()]
ALLOWED = {(state, event): new for state, *cells in LINES for event, new in [cell.split("=") for cell in cells]}
CELLS = [(state, event) for state, *_ in LINES if state != "none" for event in Event if event is not Event.PROPOSE]

LEDGER_CELLS = """
                read  propose  revoke           claim  prepare  reconcile      admit
open            yes   yes      yes              yes    yes      yes            no
held            yes   yes      unacknowledged   yes    no       success_only   no
time_untrusted  yes   yes      unacknowledged   no     no       yes            no
recovery        yes   no       no               no     no       observe_only   yes
frozen          yes   no       no               no     no       no             no
"""
COLUMNS, *LEDGER_ROWS = [line.split() for line in LEDGER_CELLS.strip().splitlines()]


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_cell_of_the_state_table(state: str, event: Event) -> None:
    asked = example(event, ActionState(state))
    decision, new = asked.decided(), ALLOWED.get((state, event))
    if new is not None:
        assert isinstance(decision, Accepted), decision
        assert (decision.old, decision.new, decision.event) == (state, new, event)
        assert new in ARROWS[ActionState(state), event].new
        (changed,) = [one for one in decision.rows if one.action_id == asked.members[-1].action_id]
        assert changed.state == new
        assert changed != asked.members[-1], "a leaf without a change"
    elif event is Event.ADMIT:
        assert isinstance(decision, Accepted)
        assert decision.rows == (), "not demoted"
    else:
        assert isinstance(decision, Rejected), decision
        assert decision.code == state


def test_the_table_by_hand_and_the_table_of_the_rules_have_the_same_rows() -> None:
    assert {(str(old) if old else "none", str(event)) for old, event in ARROWS} == set(ALLOWED)
    assert all(ALLOWED[str(old) if old else "none", str(event)] in ARROWS[old, event].new for old, event in ARROWS)
    assert {line[0] for line in LINES} == {"none", *ActionState}
    assert set(GUARDS) == set(MOVES) == set(EVENT_NEEDS) == set(Event) == {event for _, event in ARROWS}


@pytest.mark.parametrize("event", Event)
def test_the_table_names_the_guards_that_are_asked_in_their_order(event: Event) -> None:
    named = {arrow.guards for arrow in ARROWS.values() if arrow.event is event}
    assert named == {tuple(guard.code for guard in GUARDS[event])}


def test_no_arrow_leads_back_to_available() -> None:
    into = [(old, event) for (old, event), arrow in ARROWS.items() if A.AVAILABLE in (*arrow.new, arrow.beside)]
    assert into == [(A.PROPOSED, Event.APPROVE)]


def test_every_state_has_a_way_to_a_closed_one_without_an_admission() -> None:
    ends = set(CLOSED)
    while more := {
        old
        for (old, event), arrow in ARROWS.items()
        if old not in ends and event is not Event.ADMIT and ends.intersection(arrow.new)
    } - {None}:
        ends |= {state for state in more if state is not None}
    assert ends == set(ActionState)


def test_a_closed_state_is_left_only_to_be_superseded_or_by_an_admission() -> None:
    left = {(event, *arrow.new) for (old, event), arrow in ARROWS.items() if old in CLOSED}
    assert left == {(Event.SUCCESSOR, A.SUPERSEDED), (Event.ADMIT, A.UNRESOLVED)}


def test_what_is_written_off_succeeded_or_superseded_has_no_way_out() -> None:
    assert [old for old, _ in ARROWS if old in (A.WRITTEN_OFF, A.SUCCEEDED, A.SUPERSEDED)] == []


@pytest.mark.parametrize("line", LEDGER_ROWS, ids=lambda line: line[0])
def test_every_cell_of_the_ledger_table(line: list[str]) -> None:
    state, *cells = line
    assert {str(name): str(leave) for name, leave in LEDGER_TABLE[LedgerState(state)].items()} == dict(
        zip(COLUMNS, cells, strict=True)
    )
    assert [Operation(name) for name in COLUMNS] == list(Operation)


# By hand: what happens in a ledger that is not open.
IN_STATE = {
    LedgerState.HELD: {"propose", "edit", "reject", "approve", "successor", "expire", "revoke", "claim", "outcome"}
    | {"success", "doubt", "observe"},
    LedgerState.TIME_UNTRUSTED: {"propose", "edit", "reject", "approve", "successor", "revoke", "outcome", "success"}
    | {"doubt", "observe", "not_executed", "write_off", "close_unprepared"},
    LedgerState.RECOVERY: {"observe", "admit"},
    LedgerState.FROZEN: set[str](),
    LedgerState.OPEN: {*Event} - {Event.ADMIT},
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", LedgerState)
def test_each_event_in_each_state_of_the_ledger(state: LedgerState, event: Event) -> None:
    decision = example(event).ledger_with(state=state).decided()
    if event in IN_STATE[state]:
        assert isinstance(decision, Accepted), decision
    else:
        assert isinstance(decision, Rejected), decision
        assert decision.code == _by_state(state, event)


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", LedgerState)
def test_where_the_clock_is_doubted_too_there_happens_what_both_rows_let_happen(
    state: LedgerState, event: Event
) -> None:
    decision = example(event).ledger_with(state=state, clock_doubted=True).decided()
    # An admission is for no row but its own: where the clock is doubted alone, there is nothing to admit.
    if event in IN_STATE[state] & (IN_STATE[LedgerState.TIME_UNTRUSTED] | {Event.ADMIT}):
        assert isinstance(decision, Accepted), decision
        return
    assert isinstance(decision, Rejected), decision
    by_the_clock = "clock_untrusted" if event is Event.EXPIRE else "ledger_time_untrusted"
    assert decision.code == (by_the_clock if event in IN_STATE[state] else _by_state(state, event))


def _by_state(state: LedgerState, event: Event) -> str:
    return "clock_untrusted" if (state, event) == (LedgerState.TIME_UNTRUSTED, Event.EXPIRE) else f"ledger_{state}"


@pytest.mark.parametrize("event", Event)
def test_each_event_needs_one_of_its_roles(event: Event) -> None:
    asked = example(event)
    allowed = ARROWS[asked.members[-1].state if asked.members else None, event].roles
    for role in Role:
        decision = asked.with_(actor=actor(asked.command.actor.principal, role)).decided()
        refused = isinstance(decision, Rejected) and decision.code == "wrong_role"
        assert refused is (role not in allowed)
    assert isinstance(asked.with_(actor=actor("nobody")).decided(), Rejected)


@pytest.mark.parametrize("event", [event for event in Event if event not in (Event.PROPOSE, Event.ADMIT)])
def test_a_member_that_does_not_exist_is_refused(event: Event) -> None:
    asked = example(event)
    nothing = Asked(asked.ledger, (), asked.command).decided()
    assert isinstance(nothing, Rejected)
    assert nothing.code == "unknown_action"


def test_an_admission_without_members_changes_only_the_ledger() -> None:
    decision = Asked(example(Event.ADMIT).ledger, (), example(Event.ADMIT).command).accepted()
    assert (decision.rows, decision.old, decision.new) == ((), None, None)


def test_what_is_on_record_is_answered_in_every_state_of_the_ledger() -> None:
    for state in LedgerState:
        asked = example(Event.CLAIM, A.CLAIMED).with_(claim_key=b"claim key").ledger_with(state=state)
        assert isinstance(asked.decided(), Recorded)


@pytest.mark.parametrize("event", Event)
def test_every_question_has_an_answer(event: Event) -> None:
    for old in ActionState:
        for state in LedgerState:
            for target in TargetClass:
                asked = example(event, old).ledger_with(state=state).terms_with(target_class=target)
                assert isinstance(asked.decided(), Accepted | Recorded | Rejected)


def test_the_invariants_are_numbered_without_a_gap() -> None:
    assert list(INVARIANTS) == list(range(1, 21))
    assert Leave.OBSERVE_ONLY in EVENT_NEEDS[Event.OBSERVE][1]
