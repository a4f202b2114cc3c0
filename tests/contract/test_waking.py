"""When a suspended run may go on: whatever it waits for changed after it looked, whenever that was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from agent_run_ledger import ApprovalPending, EffectPending, Found, Pending
from agent_run_ledger.effects import ActionState, Role
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.ledger import waking
from agent_run_ledger.ledger.effect_standing import OnRecord, on_record
from agent_run_ledger.ledger.waking import LONGEST_MS, may_go_on
from agent_run_ledger.ports import RunRow, Store
from tests.contract.effect_run_kit import APPROVER, DAY_MS, Desk, Program, desk
from tests.contract.engine_kit import each_engine
from tests.contract.target_servers import says
from tests.unit.effects.trust_examples import policy

pytestmark = each_engine

EXECUTOR = Actor("worker", frozenset({Role.EXECUTOR}))


@pytest.fixture
def at() -> Iterator[Desk]:
    with desk() as opened:
        yield opened


def suspended(program: Program, meanwhile: Callable[[], object] = lambda: None, *calls: Callable[[], object]) -> None:
    """Let the run of a program wait for its refund; between its call and its end `meanwhile` happens."""
    with program.ledger.run():
        waits: list[Pending] = []
        for call in calls or (lambda: program.refund(17, 3_000),):
            try:
                call()
            except Pending as error:
                waits.append(error)
        meanwhile()
        raise waits[-1]


def waits(program: Program, meanwhile: Callable[[], object] = lambda: None, *calls: Callable[[], object]) -> RunRow:
    """Do that, and return its row."""
    with suppress(Pending):
        suspended(program, meanwhile, *calls)
    row = program.ledger._opened.context().store.reader().find_run(program.ledger.run_id)
    assert row is not None
    assert row.state == "suspended"
    return row


def asked(program: Program, row: RunRow, *, rested_ms: int = 0, pending_ms: int = 60_000) -> bool:
    """Whether it may go on so long after it was suspended."""
    store = program.ledger._opened.context().store
    return may_go_on(store, row, now_ms=row.updated_at_ms + rested_ms, pending_ms=pending_ms)


def later(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Let it be so much later for who looks."""

    def then(store: Store) -> OnRecord:
        where = on_record(store)
        return replace(where, now=Now(where.now.earliest_ms + by_ms, where.now.latest_ms + by_ms))

    monkeypatch.setattr(waking, "on_record", then)
    monkeypatch.setattr(waking, "NEAR_MS", 10 * DAY_MS)


def test_what_people_did_before_the_run_was_suspended_wakes_it(at: Desk) -> None:
    program = at.program()
    assert not asked(program, waits(program), rested_ms=DAY_MS), "nobody said anything"
    assert asked(program, waits(program, at.grant))
    program.ledger.close()


def test_so_does_the_last_of_two_approvals_and_not_the_first(at: Desk) -> None:
    program = at.program(approval="two")
    assert not asked(program, waits(program, at.grant), rested_ms=DAY_MS)
    assert asked(program, waits(program, lambda: at.grant(approver="dan")))
    program.ledger.close()


def test_a_rejection_does_too(at: Desk) -> None:
    program = at.program()

    def reject() -> None:
        with at.people() as effects:
            effects.reject(APPROVER, effects.inspect("refund:17")[-1].action_id)

    assert asked(program, waits(program, reject))
    program.ledger.close()


def test_a_window_that_is_over_wakes_it_once(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    program = at.program()
    row = waits(program)
    later(monkeypatch, DAY_MS - 60_000)
    assert not asked(program, row)
    later(monkeypatch, DAY_MS + 60_000)
    assert asked(program, row)
    assert not asked(program, replace(row, updated_at_ms=row.updated_at_ms + DAY_MS + 30_000)), "it knew that"
    program.ledger.close()


def test_what_time_it_is_for_the_ledger_is_asked_only_near_the_end(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    program, asked_of = at.program(), list[Store]()
    row = waits(program)
    monkeypatch.setattr(waking, "on_record", lambda store: (asked_of.append(store), on_record(store))[1])
    assert not asked(program, row, rested_ms=DAY_MS - 2 * waking.NEAR_MS)
    assert not asked_of
    assert not asked(program, row, rested_ms=DAY_MS - waking.NEAR_MS // 2)
    assert len(asked_of) == 1
    program.ledger.close()


def claimed_elsewhere(at: Desk) -> bytes:
    with at.people() as effects:
        view = effects.inspect("refund:17")[-1]
        effects.claim(EXECUTOR, view.action_id, worker="other host", request_sha256=view.request_sha256)
        return view.action_id


def test_who_holds_the_claim_may_be_over_with_it_before_the_run_is_suspended(at: Desk) -> None:
    """Two runs of one key: the second one saw the first one at it, and the outcome came before its own end."""
    program = at.program()
    waits(program)
    at.grant()
    claimed_elsewhere(at)

    def over() -> None:
        with at.people() as effects:
            view = effects.inspect("refund:17")[-1]
            effects.doubt(EXECUTOR, view.action_id, by=DoubtBy.WORKER, worker="other host")

    assert not asked(program, waits(program))
    assert asked(program, waits(program, over))
    program.ledger.close()


def test_a_holder_that_died_changes_nothing_and_its_time_wakes_the_run(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = at.program()
    waits(program)
    at.grant()
    claimed_elsewhere(at)
    row = waits(program)
    assert not asked(program, row)
    later(monkeypatch, DAY_MS + 60_000)
    assert asked(program, row)
    program.ledger.close()


@pytest.mark.parametrize("probed", [True, False])
def test_a_doubt_is_asked_about_again_ever_more_seldom_where_there_is_a_probe(*, probed: bool) -> None:
    with desk(says(b"", reset=True)) as at:
        program = at.program(**({"observe": lambda _: Found.UNKNOWN} if probed else {}))
        waits(program)
        at.grant()
        row = waits(program)
        assert at.last().state is ActionState.UNRESOLVED
        assert not asked(program, row, rested_ms=59_999)
        assert asked(program, row, rested_ms=60_000) is probed
        old = replace(row, updated_at_ms=row.updated_at_ms + 1_800_000)  # suspended anew, half an hour after the doubt
        assert not asked(program, old, rested_ms=1_700_000)
        assert asked(program, old, rested_ms=1_900_000) is probed
        older = replace(row, updated_at_ms=row.updated_at_ms + 2 * DAY_MS)
        assert not asked(program, older, rested_ms=LONGEST_MS - 1)
        assert asked(program, older, rested_ms=LONGEST_MS) is probed
        program.ledger.close()


def test_a_drain_on_record_wakes_a_run_in_doubt() -> None:
    with desk(says(b"", reset=True)) as at:
        program = at.program()
        waits(program)
        at.grant()
        assert not asked(program, waits(program))
        assert asked(program, waits(program, at.drain))
        program.ledger.close()


def test_what_is_held_up_is_tried_again_after_a_while_though_nobody_changes_its_action(at: Desk) -> None:
    """Approved, and the program has another trust file than the one in use: it cannot say what will be new."""
    program = at.program()
    waits(program)
    at.grant()
    old = at.follow(policies=(policy("finance", 1, "bob", "dan", people=1, window_ms=DAY_MS),))
    assert old
    row = waits(program)
    assert at.last().state is ActionState.AVAILABLE
    assert row.reason == EffectPending.__name__
    assert not asked(program, row, rested_ms=30_000)
    assert asked(program, row, rested_ms=120_000)
    program.ledger.close()


def test_what_waits_beside_an_effect_is_tried_again_as_alone(at: Desk) -> None:
    program = at.program()

    @program.ledger.step
    def report() -> int:
        raise Pending("not ready")

    both = (lambda: program.refund(17, 3_000), report)
    row = waits(program, lambda: None, *both)
    assert not asked(program, row, rested_ms=59_999)
    assert asked(program, row, rested_ms=60_000)
    row = waits(program, lambda: None, *reversed(both))
    assert asked(program, row, rested_ms=60_000), "whichever of them ended the run"
    program.ledger.close()


def test_and_so_is_what_the_run_itself_waits_for(at: Desk) -> None:
    program = at.program()
    with suppress(Pending), program.ledger.run():
        with suppress(ApprovalPending):
            program.refund(17, 3_000)
        raise Pending("a report")
    row = program.ledger._opened.context().store.reader().find_run("ticket-17")
    assert row is not None
    assert not asked(program, row, rested_ms=59_999)
    assert asked(program, row, rested_ms=60_000)
    program.ledger.close()


def test_a_call_that_does_not_say_what_it_is_about_is_tried_again(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two that wait was left in the middle: people may say yes to that one."""
    program = at.program()
    row = waits(program, lambda: None, lambda: program.refund(17, 3_000), lambda: program.refund(18, 3_000))
    assert not asked(program, row, rested_ms=DAY_MS)
    real, left = waking.detail_of, iter([True])
    monkeypatch.setattr(waking, "detail_of", lambda record: {} if next(left, False) else real(record))
    assert asked(program, row, rested_ms=DAY_MS)
    left = iter([True])
    assert not asked(program, row, rested_ms=60_000)
    program.ledger.close()


def test_records_of_an_older_version_say_nothing_of_what_was_seen(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    program = at.program()
    row = waits(program)
    real = waking.detail_of
    monkeypatch.setattr(waking, "detail_of", lambda record: {**real(record), "seen": ""})
    early = replace(row, updated_at_ms=at_last_change(program) + 1)
    assert not asked(program, early, rested_ms=59_000)
    assert asked(program, early, rested_ms=60_000)
    assert asked(program, replace(row, updated_at_ms=at_last_change(program)))
    program.ledger.close()


def at_last_change(program: Program) -> int:
    (member,) = program.ledger._opened.context().store.reader().effects.members("refund:17")
    return member.changed_at_ms
