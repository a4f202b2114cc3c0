"""The officers' clock correction through the API of a real store: the way out of time_untrusted, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import orjson
import pytest

from agent_run_ledger import EffectLedger, LedgerError, Misuse, NotAdmitted, Pending, Refused, Tampered, Unavailable
from agent_run_ledger.effects import (
    ActionState,
    ActionView,
    Actor,
    DoubtBy,
    DrainKind,
    LedgerState,
    LedgerView,
    Role,
    Seen,
    TargetClass,
)
from agent_run_ledger.kernel.effects.reading import LEAP_MS
from tests.contract.effect_kit import BOUND_MS, PERMIT_MS, WINDOW_MS, A, E, FakeWitness, Kit, actor, effects
from tests.contract.effect_scratch import moved
from tests.contract.engine_kit import each_engine, only_a_file

pytestmark = each_engine

OFF = actor("olga", Role.OFFICER)
OPEN, UNTRUSTED = LedgerState.OPEN, LedgerState.TIME_UNTRUSTED
V, TIMER = TargetClass.V, DrainKind.EXPIRY
MAX_PERMIT_MS = 60_000
YEARS_MS = 73 * 31_557_600_000


def start_in_2099(kit: Kit) -> None:
    """The machine starts with a wrong clock, which nobody can notice, and the ledger believes it once."""
    kit.ticks.boot, kit.ticks.uptime_ms = "boot 2", 10
    kit.ticks.leap(YEARS_MS)
    kit.propose(key="in 2099")


def set_right(kit: Kit) -> None:
    kit.ticks.leap(-YEARS_MS)


def size(kit: Kit) -> int:
    return kit.ledger._store.reader().head().size


def rows(kit: Kit) -> list[Any]:
    reader = kit.ledger._store.reader().effects
    keys = list(reader.keys())
    return [reader.members(key) for key in keys]


def mark(kit: Kit) -> Any:
    return kit.ledger._store.transact(b"x" * 16, lambda tx: tx.effects.time_kept()[0])


def timer_drain(kit: Kit, view: ActionView) -> ActionView:
    return kit.move(E.OBSERVE, view, evidence=kit.drain(view, TIMER))


@pytest.mark.parametrize("ms", [-1, -20 * WINDOW_MS, LEAP_MS + 1])
def test_officers_let_a_ledger_go_on_whose_clock_is_right(ms: int) -> None:
    with effects() as kit:
        view = kit.propose(not_before_ms=0, dispatch_before_ms=kit.now() + 2 * LEAP_MS)
        view = kit.move(E.APPROVE, view)
        kit.ticks.leap(ms)
        kit.ticks.wall_ms = max(kit.ticks.wall_ms, 0)
        assert kit.refused(lambda: kit.do(E.CLAIM, view)).code == "ledger_time_untrusted"
        before = size(kit)
        told = kit.ledger.correct_clock(OFF)
        assert told == kit.ledger.status()
        assert (told.state, told.counts) == (OPEN, {A.AVAILABLE: 1})
        assert (size(kit), mark(kit)) == (before + 1, kit.ticks.sample())
        assert kit.do(E.CLAIM, view).granted_now


def test_a_machine_that_started_once_in_2099_holds_nothing_for_73_years() -> None:
    with effects() as kit:
        view = kit.reach(A.AVAILABLE)
        start_in_2099(kit)
        set_right(kit)
        kit.reopen()
        assert kit.ledger.status().state is UNTRUSTED
        kit.ledger.correct_clock(OFF)
        kit.reopen()
        assert kit.ledger.status().state is OPEN
        view = kit.move(E.PREPARE, kit.move(E.CLAIM, view))
        assert kit.do(E.HAND_OUT, view).handed_now
        kit.ticks.leap(-1)
        assert kit.ledger.status().state is UNTRUSTED, "below the corrected mark it is not trusted again"


def test_the_leaf_of_a_correction_and_its_record() -> None:
    with effects(officers_needed=2) as kit:
        kit.propose()
        kit.ticks.leap(-5)
        kit.ledger.correct_clock(OFF, frozenset({"otto"}))
        reader = kit.ledger._store.reader()
        (event,) = list(reader.events(first=size(kit) - 1, stop=size(kit)))
        (change,) = orjson.loads(event.envelope)["changes"]
        (record,) = list(reader.effects.leaf_corrections(first=0, stop=size(kit)))
        assert change.pop("mac")
        log_id = kit.ledger.status().ledger_id.hex()
        line = {"type": "store", "id": log_id, "old": "time_untrusted", "new": "time_corrected", "generation": 0}
        assert change == line
        tree = orjson.loads(record.payload)
        assert (record.record_id, record.later_ms) == (event.index << 16, kit.now() + 5)
        assert tree["command"]["people"] == ["otto"]
        assert tree["command"]["actor"] == {"class": "Actor", "principal": "olga", "roles": ["officer"]}
        assert [tree[name]["wall_ms"] for name in ("old", "new")] == [kit.now() + 5, kit.now()]


# Windows and closed actions


def test_windows_are_decided_by_the_corrected_clock() -> None:
    with effects() as kit:
        late, gone = kit.reach(A.AVAILABLE, key="late"), kit.reach(A.AVAILABLE, key="gone")
        kit.ticks.leap(2 * LEAP_MS)  # beyond both windows, and that is what time it is
        assert kit.refused(lambda: kit.do(E.EXPIRE, gone)).code == "clock_untrusted"
        kit.ledger.correct_clock(OFF)
        assert kit.refused(lambda: kit.do(E.CLAIM, late)).code == "expired"
        assert kit.do(E.EXPIRE, gone).state is A.EXPIRED
        kit.ticks.leap(-2 * LEAP_MS)
        kit.ledger.correct_clock(OFF)  # it was not
        assert kit.refused(lambda: kit.do(E.CLAIM, gone)).code == "expired"
        assert kit.look(gone).state is A.EXPIRED, "what is closed stays closed"
        assert kit.do(E.CLAIM, late).granted_now


@pytest.mark.parametrize("state", ActionState)
def test_a_correction_moves_no_action(state: ActionState) -> None:
    with effects() as kit:
        kit.reach(state, TargetClass.F)
        before = rows(kit)
        for ms in (-2 * WINDOW_MS, 2 * LEAP_MS):
            kit.ticks.leap(ms)
            kit.ledger.correct_clock(OFF)
            assert rows(kit) == before


# Permits


def test_a_permit_that_was_prepared_at_a_later_time_is_not_handed_out() -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        kit.ticks.leap(-1)
        kit.ledger.correct_clock(OFF)
        error = kit.refused(lambda: kit.do(E.HAND_OUT, view))
        assert (type(error), error.code) == (Refused, "prepared_later")
        assert "doubt" in error.hint
        assert kit.do(E.DOUBT, view).state is A.UNRESOLVED


def test_the_statement_alone_hands_out_no_permit_of_a_later_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        kit.ticks.leap(-1)
        kit.ledger.correct_clock(OFF)
        monkeypatch.setattr("agent_run_ledger.effects.engine.decide", moved)
        error = kit.refused(lambda: kit.do(E.HAND_OUT, view))
        assert (type(error), error.code) == (Tampered, "rules_disagree")


def test_when_the_corrected_clock_is_there_again_its_permit_lives_no_longer_than_was_asked() -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        kit.ticks.leap(-100)
        kit.ledger.correct_clock(OFF)
        kit.ticks.tick(100)
        assert kit.do(E.HAND_OUT, view).permit.exp == kit.now() + PERMIT_MS


def test_after_a_correction_forward_a_permit_is_over() -> None:
    with effects() as kit:
        view = kit.reach(A.PREPARED)
        kit.ticks.leap(2 * LEAP_MS)
        kit.ledger.correct_clock(OFF)
        assert kit.refused(lambda: kit.do(E.HAND_OUT, view)).code == "permit_expired"


@pytest.mark.parametrize("state", [A.PREPARED, A.CLAIMED])
def test_a_doubt_by_expiry_waits_for_the_corrected_clock(state: ActionState) -> None:
    with effects() as kit:
        view = kit.reach(state)
        end = kit.now() + (PERMIT_MS if state is A.PREPARED else WINDOW_MS) + BOUND_MS
        start_in_2099(kit)
        set_right(kit)
        assert kit.refused(lambda: kit.do(E.DOUBT, view, by=DoubtBy.EXPIRY)).code == "clock_untrusted"
        kit.ledger.correct_clock(OFF)
        kit.ticks.tick(end - kit.now() - 1)
        assert kit.refused(lambda: kit.do(E.DOUBT, view, by=DoubtBy.EXPIRY)).code == "too_early"
        kit.ticks.tick(1)
        assert kit.do(E.DOUBT, view, by=DoubtBy.EXPIRY).state is A.UNRESOLVED


# Drains by expiry


def test_a_drain_by_a_clock_that_was_wrong_ends_nothing() -> None:
    """In 2099 every permit was over, and nothing was seen; back in time the permit is good for its whole life."""
    with effects() as kit:
        view = kit.reach(A.PREPARED, V)
        kit.do(E.HAND_OUT, view)
        over = kit.now() + PERMIT_MS + BOUND_MS
        start_in_2099(kit)
        view = kit.move(E.OBSERVE, timer_drain(kit, view))
        set_right(kit)
        error = kit.refused(lambda: kit.do(E.NOT_EXECUTED, view))
        assert (type(error), error.code) == (Unavailable, "clock_untrusted")
        kit.ledger.correct_clock(OFF)
        kit.ticks.tick(over - kit.now() - 1)
        error = kit.refused(lambda: kit.do(E.NOT_EXECUTED, view))
        assert (type(error), error.code) == (Refused, "drain_before_correction")
        assert "drain" in error.hint
        early = kit.refused(lambda: timer_drain(kit, view))
        assert (type(early), early.code) == (Pending, "permit_may_live")
        kit.ticks.tick(1)
        assert kit.refused(lambda: kit.do(E.NOT_EXECUTED, view)).code == "drain_before_correction"
        view = timer_drain(kit, view)
        assert kit.refused(lambda: kit.do(E.NOT_EXECUTED, view)).code == "observation_before_drain"
        kit.do(E.OBSERVE, view)
        assert kit.do(E.NOT_EXECUTED, view).state is A.NOT_EXECUTED


def test_a_dead_path_stays_dead_whatever_the_clock_was() -> None:
    with effects() as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        kit.ticks.leap(-1)
        kit.ledger.correct_clock(OFF)
        assert kit.do(E.NOT_EXECUTED, view).state is A.NOT_EXECUTED


def test_a_permit_of_2099_may_live_until_then() -> None:
    with effects() as kit:
        start_in_2099(kit)
        view = kit.reach(A.PREPARED, V)
        kit.do(E.HAND_OUT, view)
        set_right(kit)
        kit.ledger.correct_clock(OFF)
        kit.ticks.tick(10 * WINDOW_MS)
        assert kit.refused(lambda: timer_drain(kit, view)).code == "permit_may_live"
        kit.do(E.OBSERVE, view, evidence=kit.drain(view))
        kit.do(E.OBSERVE, view)
        assert kit.do(E.NOT_EXECUTED, view).state is A.NOT_EXECUTED, "there is another way out"


@pytest.mark.parametrize("ms", [-5 * WINDOW_MS, 5 * LEAP_MS])
@pytest.mark.parametrize("doubt_first", [True, False])
def test_a_timer_without_a_permit_waits_behind_every_clock_that_there_was(ms: int, doubt_first: bool) -> None:
    """A lost history may have prepared it by the clock that was set aside, or just before the one that replaced it."""
    with effects() as kit:
        kit.ticks.tick(10 * WINDOW_MS)
        view = kit.reach(A.CLAIMED, V)
        view = kit.move(E.DOUBT, view) if doubt_first else view
        latest = max(kit.now(), kit.now() + ms)
        kit.ticks.leap(ms)
        kit.ledger.correct_clock(OFF)
        view = view if doubt_first else kit.move(E.DOUBT, view)
        kit.ticks.tick(latest + MAX_PERMIT_MS + BOUND_MS - kit.now() - 1)
        assert kit.refused(lambda: timer_drain(kit, view)).code == "permit_may_live"
        kit.ticks.tick(1)
        assert timer_drain(kit, view).state is A.UNRESOLVED


# Who may, and when


def test_a_clock_that_is_trusted_is_not_corrected() -> None:
    with effects() as kit:
        for _ in range(2):  # without a mark, and with one
            error = kit.refused(lambda: kit.ledger.correct_clock(OFF))
            assert (type(error), error.code) == (Refused, "time_trusted")
            assert error.hint
            kit.reach(A.AVAILABLE, key=f"k{size(kit)}")


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OFFICER])
def test_nobody_but_an_officer_corrects_the_clock(role: Role) -> None:
    with effects() as kit:
        kit.propose()
        kit.ticks.leap(-1)
        error = kit.refused(lambda: kit.ledger.correct_clock(actor("olga", role)))
        assert (type(error), error.code) == (Misuse, "wrong_role")


def test_it_takes_as_many_officers_as_the_settings_say() -> None:
    with effects(officers_needed=2) as kit:
        kit.propose()
        kit.ticks.leap(-1)
        for people in (frozenset[str](), frozenset({"olga"})):
            error = kit.refused(lambda people=people: kit.ledger.correct_clock(OFF, people))
            assert (type(error), error.code) == (Refused, "few_officers")
            assert "people" in error.hint
        assert kit.ledger.correct_clock(OFF, frozenset({"otto"})).state is OPEN


def test_a_held_ledger_waits_for_its_witness_first() -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        view = kit.reach(A.AVAILABLE)
        kit.ticks.leap(-WINDOW_MS)
        witness.silent()
        kit.reopen()
        error = kit.refused(lambda: kit.ledger.correct_clock(OFF))
        assert (type(error), error.code) == (Unavailable, "ledger_held")
        witness.says = []
        told = kit.ledger.correct_clock(OFF)  # the witness is asked once more, and answers
        assert told.state is OPEN
        assert kit.refused(lambda: kit.do(E.CLAIM, view)).code == "not_yet_valid"
        kit.ticks.tick(WINDOW_MS)
        assert kit.do(E.CLAIM, view).granted_now


@pytest.mark.parametrize("state", [LedgerState.RECOVERY, LedgerState.FROZEN])
def test_a_ledger_that_waits_for_an_admission_is_not_helped_by_its_clock(state: LedgerState) -> None:
    witness = FakeWitness()
    with effects(witness=witness) as kit:
        kit.propose()
        kit.ticks.leap(-1)
        witness.says = [Seen.FORKED]
        kit.ledger._witnessing.look()
        kit.ledger._witnessing.state = state
        error = kit.refused(lambda: kit.ledger.correct_clock(OFF))
        assert (type(error), error.code) == (NotAdmitted, f"ledger_{state}")


@only_a_file
def test_a_copy_corrects_no_clock(tmp_path: Path) -> None:
    with effects() as kit:
        kit.propose()
        kit.ledger._store.backup(tmp_path / "copy.db")
        kit.ticks.leap(-1)
        with EffectLedger(tmp_path / "copy.db", time=kit.ticks) as copy, pytest.raises(NotAdmitted) as refused:
            copy.correct_clock(OFF)
        assert refused.value.code == "ledger_recovery"


BAD: list[tuple[str, Callable[[Kit], object]]] = [
    ("a list of people", lambda kit: kit.ledger.correct_clock(OFF, ["otto"])),  # type: ignore[arg-type]
    ("a number among people", lambda kit: kit.ledger.correct_clock(OFF, frozenset({7}))),  # type: ignore[arg-type]
    ("nobody", lambda kit: kit.ledger.correct_clock(actor("", Role.OFFICER))),
    ("nobody among people", lambda kit: kit.ledger.correct_clock(OFF, frozenset({""}))),
    ("half a character", lambda kit: kit.ledger.correct_clock(OFF, frozenset({"\ud800"}))),
    ("a NUL", lambda kit: kit.ledger.correct_clock(actor("o\0", Role.OFFICER))),
    ("a short op_id", lambda kit: kit.ledger.correct_clock(OFF, op_id=b"short")),
]


@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in BAD])
def test_what_a_record_could_not_hold_is_misuse(ask: Callable[[Kit], object]) -> None:
    with effects() as kit:
        kit.propose()
        kit.ticks.leap(-1)
        error = kit.refused(lambda: ask(kit))
        assert (error.exit_code, error.code) in {(2, "bad_argument"), (2, "bad_intent"), (2, "bad_op_id")}


def test_a_role_in_words_is_that_role() -> None:
    with effects() as kit:
        kit.propose()
        kit.ticks.leap(-1)
        worded = Actor("olga", frozenset({"officer"}))  # type: ignore[arg-type]
        assert kit.ledger.correct_clock(worded).state is OPEN


# Lost replies


def test_the_same_op_id_tells_and_corrects_nothing_again() -> None:
    with effects() as kit:
        kit.propose()
        kit.ticks.leap(-1)
        op_id, told = kit.id()[:16], kit.ledger.correct_clock
        first = told(OFF, frozenset({"otto"}), op_id=op_id)
        before, kept = size(kit), mark(kit)
        kit.ticks.tick(5)
        assert told(OFF, frozenset({"otto"}), op_id=op_id) == first
        kit.ticks.leap(-100)
        again: LedgerView = told(OFF, frozenset({"otto"}), op_id=op_id)
        assert again.state is UNTRUSTED, "a second correction is a second operation"
        assert (size(kit), mark(kit)) == (before, kept)


def test_an_op_id_belongs_to_one_operation() -> None:
    with effects() as kit:
        op_id, other = kit.id()[:16], kit.id()[:16]
        view = kit.propose()
        kit.do(E.REVOKE, view, op_id=other)
        kit.ticks.leap(-1)
        kit.ledger.correct_clock(OFF, op_id=op_id)
        kit.ticks.leap(-1)
        asked: list[Callable[[], object]] = [
            lambda: kit.ledger.correct_clock(actor("ole", Role.OFFICER), op_id=op_id),
            lambda: kit.ledger.correct_clock(OFF, frozenset({"otto"}), op_id=op_id),
            lambda: kit.ledger.correct_clock(OFF, op_id=other),
            lambda: kit.do(E.OBSERVE, view, op_id=op_id),
        ]
        for one in asked:
            error = kit.refused(one)
            assert (type(error), error.code) == (Refused, "op_id_used")


def test_of_two_corrections_at_once_one_finds_the_clock_trusted() -> None:
    with effects() as kit:
        kit.propose()
        kit.ticks.leap(-1)
        before, answers, start = size(kit), list[object](), Barrier(2)
        with EffectLedger(kit.path, time=kit.ticks) as second:

            def ask(ledger: EffectLedger) -> None:
                start.wait()
                try:
                    answers.append(ledger.correct_clock(OFF).state)
                except LedgerError as error:
                    answers.append(error.code)

            threads = [Thread(target=ask, args=(ledger,)) for ledger in (kit.ledger, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(map(str, answers)) == ["open", "time_trusted"]
        assert size(kit) == before + 1
