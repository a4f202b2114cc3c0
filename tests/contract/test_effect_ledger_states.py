"""What a ledger lets happen when its witness or its clock says no: held, recovery, frozen, time_untrusted."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, NotAdmitted, Pending, Refused, Unavailable
from agent_run_ledger.effects import Event, Heard, LedgerState, Seen, TargetClass, WitnessPolicy
from agent_run_ledger.kernel.effects.reading import LEAP_MS
from agent_run_ledger.kernel.effects.states import EVENT_NEEDS, LEDGER_TABLE
from agent_run_ledger.ledger.local_trust import UNSIGNED
from agent_run_ledger.store import open_sqlite
from tests.contract.effect_kit import ASKED, FROM, REV, WINDOW_MS, A, E, FakeWitness, Kit, effects
from tests.contract.engine_kit import each_engine, only_a_file

pytestmark = each_engine

HELD, RECOVERY, FROZEN = LedgerState.HELD, LedgerState.RECOVERY, LedgerState.FROZEN
OPEN, UNTRUSTED = LedgerState.OPEN, LedgerState.TIME_UNTRUSTED
F = TargetClass.F

# By hand, from the table of ledger states; what is missing is refused.
HAPPENS = {
    HELD: {E.PROPOSE, E.EDIT, E.REJECT, E.APPROVE, E.SUCCESSOR, E.EXPIRE, E.CLAIM, E.OUTCOME, E.SUCCESS, E.DOUBT}
    | {E.OBSERVE},
    UNTRUSTED: {E.PROPOSE, E.EDIT, E.REJECT, E.APPROVE, E.SUCCESSOR, E.REVOKE, E.OUTCOME, E.SUCCESS, E.DOUBT}
    | {E.OBSERVE, E.NOT_EXECUTED, E.WRITE_OFF, E.CLOSE_UNPREPARED},
    RECOVERY: {E.OBSERVE},
    FROZEN: set[Event](),
}
REFUSES = {HELD: Unavailable, UNTRUSTED: Unavailable, RECOVERY: NotAdmitted, FROZEN: NotAdmitted}


def _into(kit: Kit, state: LedgerState) -> None:
    witness = kit.witness
    if state is UNTRUSTED:
        kit.ticks.leap(-2 * WINDOW_MS)
        return
    assert witness is not None
    if state is HELD:
        witness.silent()
    elif state is RECOVERY:
        witness.says = [Seen.FORKED]
    kit.ledger._witnessing.look()
    if state is FROZEN:  # nothing leads there before an admission
        kit.ledger._witnessing.state = FROZEN


@pytest.mark.parametrize("event", ASKED)
@pytest.mark.parametrize("state", list(HAPPENS))
def test_each_operation_in_each_state_of_the_ledger(state: LedgerState, event: Event) -> None:
    with effects(witness=None if state is UNTRUSTED else FakeWitness()) as kit:
        fences = event is E.CLOSE_UNPREPARED
        view = kit.ready(event, kit.reach(FROM[event], F if fences else TargetClass.N))
        if event is E.EXPIRE:
            kit.ticks.tick(WINDOW_MS)
        more = {"fence": kit.fence(view)} if fences else {}
        more |= {"intent": kit.intent(request=b"x"), "key": "other"} if event is E.PROPOSE else {}
        more |= {"approval": kit.approval(view)} if event is E.APPROVE else {}
        _into(kit, state)
        assert kit.ledger.status().state is state
        before = kit.ledger._store.reader().head().size
        if event in HAPPENS[state]:
            kit.do(event, view, **more)
            assert kit.ledger._store.reader().head().size == before + 1
        elif (state, event) == (HELD, E.REVOKE):
            with pytest.raises(Pending) as told:
                kit.do(event, view)
            assert told.value.code == "not_witnessed"
            assert kit.look(view).state is A.REVOKED
        else:
            error = kit.refused(lambda: kit.do(event, view, **more))
            code = "clock_untrusted" if (state, event) == (UNTRUSTED, E.EXPIRE) else f"ledger_{state}"
            assert (type(error), error.code) == (REFUSES[state], code)
            assert error.hint
        assert kit.look(view).action_id == view.action_id  # reading is always allowed
        assert kit.ledger.request(view.action_id) == b"{}"


@pytest.mark.parametrize("event", ASKED)
@pytest.mark.parametrize("state", [HELD, RECOVERY, FROZEN])
def test_where_the_clock_leapt_too_there_happens_what_both_allow(state: LedgerState, event: Event) -> None:
    with effects(witness=FakeWitness()) as kit:
        fences = event is E.CLOSE_UNPREPARED
        view = kit.ready(event, kit.reach(FROM[event], F if fences else TargetClass.N))
        more = {"fence": kit.fence(view)} if fences else {}
        more |= {"intent": kit.intent(request=b"x"), "key": "other"} if event is E.PROPOSE else {}
        more |= {"approval": kit.approval(view)} if event is E.APPROVE else {}
        _into(kit, state)
        kit.ticks.leap(-1)
        status = kit.ledger.status()
        assert (status.state, status.clock_trusted) == (state, False)
        if event in HAPPENS[state] & HAPPENS[UNTRUSTED]:
            kit.do(event, view, **more)
        elif (state, event) == (HELD, E.REVOKE):
            with pytest.raises(Pending):
                kit.do(event, view)
            assert kit.look(view).state is A.REVOKED
        else:
            by_the_clock = "clock_untrusted" if event is E.EXPIRE else "ledger_time_untrusted"
            code = by_the_clock if event in HAPPENS[state] else f"ledger_{state}"
            assert kit.refused(lambda: kit.do(event, view, **more)).code == code


def test_a_held_ledger_whose_clock_leapt_closes_no_window_that_is_open() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view, far_ms = kit.reach(A.AVAILABLE), WINDOW_MS + 2 * LEAP_MS
        witness.silent()
        kit.ledger._witnessing.look()
        kit.ticks.leap(far_ms)
        assert (kit.ledger.status().state, kit.ledger.status().clock_trusted) == (HELD, False)
        error = kit.refused(lambda: kit.do(E.EXPIRE, view))
        assert (type(error), error.code) == (Unavailable, "clock_untrusted")
        assert kit.refused(lambda: kit.do(E.CLAIM, view)).code == "ledger_time_untrusted"
        kit.ticks.leap(-far_ms)
        assert (kit.ledger.status().state, kit.ledger.status().clock_trusted) == (HELD, True)
        assert kit.refused(lambda: kit.do(E.EXPIRE, view)).code == "window_open"
        assert kit.do(E.CLAIM, view).granted_now


def test_a_witness_that_answers_leaves_the_clocks_doubt() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.silent()
        kit.ledger._witnessing.look()
        kit.ticks.leap(-1)
        witness.says = []
        assert kit.refused(lambda: kit.do(E.PREPARE, view)).code == "ledger_time_untrusted"
        assert (kit.ledger.status().state, kit.ledger.status().clock_trusted) == (UNTRUSTED, False)


def test_every_transition_moves_the_mark() -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        kit.ticks.tick(10)
        kit.do(E.CLAIM, view)
        kit.ticks.leap(-1)
        assert kit.ledger.status().state is UNTRUSTED


def test_the_states_by_hand_are_those_of_the_table() -> None:
    for state, happens in HAPPENS.items():
        column = {event for event in ASKED if LEDGER_TABLE[state][EVENT_NEEDS[event][0]] in EVENT_NEEDS[event][1]}
        alone = {HELD: {E.REVOKE}, UNTRUSTED: {E.EXPIRE}}.get(state, set())
        assert column == happens | alone


def test_a_held_ledger_opens_when_the_witness_answers() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.silent()
        kit.reopen()
        assert kit.ledger.status().state is HELD
        assert kit.refused(lambda: kit.do(E.PREPARE, view)).code == "ledger_held"
        witness.says = []
        view = kit.do(E.PREPARE, view)
        assert (view.state, kit.ledger.status().state) == (A.PREPARED, OPEN)
        assert kit.do(E.HAND_OUT, view).handed_now


def test_what_a_held_ledger_allows_asks_no_witness() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.AVAILABLE)
        witness.silent()
        kit.reopen()
        asked = witness.asked
        kit.do(E.CLAIM, view)
        assert witness.asked == asked


def test_no_permit_before_the_witness_has_seen_the_preparation() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        kit.ledger._witnessing.look()
        view = kit.do(E.PREPARE, view)
        prepared_at = kit.ledger._store.reader().head().size
        assert witness.size == prepared_at - 1, "all but the preparation"
        witness.silent()
        error = kit.refused(lambda: kit.do(E.HAND_OUT, view))
        assert (type(error), error.code) == (Unavailable, "ledger_held")
        assert witness.size < prepared_at
        witness.says = []
        assert kit.do(E.HAND_OUT, view).handed_now
        assert witness.size == prepared_at


def test_a_preparation_that_the_witness_has_seen_needs_no_second_look() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.PREPARED, TargetClass.I)
        kit.ledger._witnessing.look()
        asked = witness.asked
        kit.do(E.HAND_OUT, view)
        assert witness.asked == asked


def test_a_revocation_is_acknowledged_when_it_was_witnessed_and_blocks_at_once() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.says = [Seen.SILENT, Seen.SILENT, Seen.SILENT]
        op_id = kit.id()[:16]
        for _ in range(2):
            with pytest.raises(Pending) as told:
                kit.do(E.REVOKE, view, op_id=op_id)
            assert told.value.code == "not_witnessed"
            assert view.action_id.hex() in told.value.message
            assert "op_id" in told.value.hint
        size = kit.ledger._store.reader().head().size
        with pytest.raises(Pending):
            kit.do(E.REVOKE, view)
        told_at_last = kit.do(E.REVOKE, view, op_id=op_id)
        assert (told_at_last.revoked, told_at_last.state) == (True, A.CLAIMED)
        assert witness.size == size
        assert kit.refused(lambda: kit.do(E.PREPARE, view)).code == "revoked"


def test_closing_as_unprepared_needs_no_fence_where_a_witness_saw_this_history() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.CLAIMED)
        witness.says = [Seen.SILENT]
        op_id = kit.id()[:16]
        with pytest.raises(Pending) as told:
            kit.do(E.CLOSE_UNPREPARED, view, op_id=op_id)
        assert told.value.code == "not_witnessed"
        closed = kit.do(E.CLOSE_UNPREPARED, view, op_id=op_id)
        assert closed.state is A.NOT_EXECUTED
        assert witness.size == kit.ledger._store.reader().head().size
        assert kit.refused(lambda: kit.do(E.PREPARE, view)).code == "not_executed"


@pytest.mark.parametrize("said", [Seen.AHEAD, Seen.FORKED])
def test_a_ledger_in_recovery_stays_there_until_it_is_opened_anew(said: Seen) -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.AVAILABLE)
        witness.says = [said]
        assert kit.ledger._witnessing.look() is RECOVERY
        assert kit.ledger._witnessing.look() is RECOVERY, "the witness would say current now"
        error = kit.refused(lambda: kit.do(E.CLAIM, view))
        assert (type(error), error.code) == (NotAdmitted, "ledger_recovery")
        witness.says = [said]
        kit.reopen()
        assert kit.ledger.status().state is RECOVERY
        kit.reopen()
        assert kit.ledger.status().state is OPEN
        assert kit.do(E.CLAIM, view).granted_now


@only_a_file
def test_a_witness_that_is_ahead_of_an_older_file_is_noticed_at_the_opening(tmp_path: Path) -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.AVAILABLE)
        kit.ledger.close()
        older = kit.path.read_bytes()
        kit.ledger = kit._open()
        kit.do(E.PREPARE, kit.move(E.CLAIM, view))
        kit.ledger._witnessing.look()
        kit.ledger.close()
        path = tmp_path / "older.db"
        path.write_bytes(older)
        with EffectLedger(path, witness=witness, time=kit.ticks) as copy:
            assert copy.status().state is RECOVERY
            assert copy.status().witness is WitnessPolicy.HTTP
            assert copy.status().not_protected == (UNSIGNED,)


@only_a_file
def test_a_copy_that_says_so_opens_in_recovery(tmp_path: Path) -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        kit.ledger._store.backup(tmp_path / "copy.db")
        with EffectLedger(tmp_path / "copy.db", time=kit.ticks) as copy:
            assert copy.status().state is RECOVERY
            with pytest.raises(NotAdmitted) as refused:
                copy.revoke(REV, view.action_id)
            assert refused.value.code == "ledger_recovery"
            assert copy.get(view.action_id) == view


@pytest.mark.parametrize("ms", [-1, LEAP_MS + 1])
def test_nothing_is_dispatched_until_the_clock_agrees_again(ms: int) -> None:
    with effects() as kit:
        available, claimed = kit.reach(A.AVAILABLE, key="k1"), kit.reach(A.CLAIMED, key="k2")
        prepared = kit.reach(A.PREPARED, key="k3")
        kit.ticks.leap(ms)
        assert kit.ledger.status().state is UNTRUSTED
        for event, view in ((E.CLAIM, available), (E.PREPARE, claimed), (E.HAND_OUT, prepared)):
            error = kit.refused(lambda event=event, view=view: kit.do(event, view))
            assert (type(error), error.code) == (Unavailable, "ledger_time_untrusted")
        kit.do(E.REVOKE, kit.propose(key="k4"))  # what is written meanwhile does not move the mark
        assert kit.ledger.status().state is UNTRUSTED
        kit.ticks.leap(-ms)
        assert kit.ledger.status().state is OPEN
        for event, view in ((E.CLAIM, available), (E.PREPARE, claimed), (E.HAND_OUT, prepared)):
            kit.do(event, view)


@pytest.mark.parametrize("ms", [0, LEAP_MS])
def test_a_clock_that_was_corrected_a_little_is_believed(ms: int) -> None:
    with effects() as kit:
        kit.reach(A.AVAILABLE)
        kit.ticks.leap(ms)
        assert kit.ledger.status().state is OPEN


def test_after_a_leap_the_time_that_passes_catches_up() -> None:
    with effects() as kit:
        view = kit.propose(dispatch_before_ms=kit.now() + 100 * LEAP_MS)
        view = kit.move(E.APPROVE, view)
        kit.ticks.leap(2 * LEAP_MS)
        assert kit.ledger.status().state is UNTRUSTED
        kit.ticks.uptime_ms += LEAP_MS
        assert kit.do(E.CLAIM, view).granted_now


def test_after_a_start_of_the_machine_only_a_clock_that_went_back_is_noticed() -> None:
    with effects() as kit:
        kit.reach(A.AVAILABLE)
        kit.ticks.boot, kit.ticks.uptime_ms = "boot 2", 10
        kit.ticks.leap(30 * LEAP_MS)
        assert kit.ledger.status().state is OPEN
        kit.ticks.leap(-30 * LEAP_MS - 1)
        assert kit.ledger.status().state is UNTRUSTED


def test_a_time_that_is_not_trusted_is_a_span_that_only_narrows() -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        mark = kit.now()
        kit.ticks.leap(-1_000)
        doubted = kit.do(E.DOUBT, view)
        assert doubted.in_doubt_since_ms == mark, "the later end of the span"


def test_opening_makes_nothing_and_grants_nothing(tmp_path: Path) -> None:
    with pytest.raises(Refused) as missing:
        EffectLedger(tmp_path / "none.db")
    assert missing.value.code == "no_store"
    assert list(tmp_path.iterdir()) == []
    open_sqlite(tmp_path / "runs.db", create=True).close()
    with pytest.raises(Refused) as without:
        EffectLedger(tmp_path / "runs.db")
    assert without.value.code == "no_authority"
    assert "arl init" in without.value.hint
    with closing(open_sqlite(tmp_path / "runs.db", create=False)) as again:
        assert again.grant_authority()


def test_an_opening_that_is_interrupted_leaves_no_store_open(tmp_path: Path) -> None:
    class Broken(FakeWitness):
        def extend(self, size: int, root: bytes) -> Heard:
            raise KeyboardInterrupt("while the witness is asked")

    open_sqlite(tmp_path / "e.db", create=True, authority=True).close()
    with pytest.raises(KeyboardInterrupt, match="while the witness is asked"):
        EffectLedger(tmp_path / "e.db", witness=Broken())
    store = open_sqlite(tmp_path / "e.db", create=False)
    assert store._shared.users == 1
    store.close()
