"""Erasing what was recorded of a run: every proof holds after it, and nothing that is erased is ever run again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Misuse, Refused, RunBusy, RunLedger, Step, Tampered, Verdict, codecs
from agent_run_ledger.kernel.erasure import erased_form
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs import erase as erasing
from agent_run_ledger.runs.erase import Act, Erased, Selection, erase_run, plan_erasure
from agent_run_ledger.runs.leaf_check import load_value
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import (
    LyingStore,
    in_a_file,
    leaves_of,
    marks_of,
    operate,
    records_of,
    report_of,
    row_of,
    store_of,
    stored_of,
)

New = Callable[..., RunLedger]
K = RecordKind
ACT = Act(event="erase", reason="asked to", actor="ann")
SECRET = b"4111-1111-1111-1111"


class Program:
    """fetch -> review -> publish, with `audit` that only waits for fetch; `stops_at` raises there."""

    def __init__(
        self, new_ledger: New, run_id: str = "r1", *, stops_at: str = "", crash: bool = False, **settings: Any
    ):
        self.ran: list[str] = []
        self.ledger = new_ledger(run_id, max_parallel=1, **settings)

        def body(name: str, value: object) -> object:
            self.ran.append(name)
            if name == stops_at:
                raise KeyboardInterrupt if crash else ValueError(f"no {SECRET.decode()}")
            return value

        @self.ledger.step
        def fetch(who: str) -> object:
            return body("fetch", {"card": who, "pad": "x" * 200})

        @self.ledger.step(depends_on=["fetch"])
        def audit() -> object:
            return body("audit", "nobody's")

        @self.ledger.step(depends_on=["fetch"])
        def review(document: dict[str, str]) -> object:
            return body("review", f"of {document['card']}")

        @self.ledger.step(depends_on=["review", "audit"])
        def publish(text: str, note: str) -> object:
            return body("publish", text + note)

    def execute(self) -> object:
        return self.ledger.execute(who=SECRET.decode())

    def stopped(self) -> Program:
        with pytest.raises((ValueError, KeyboardInterrupt)):
            self.execute()
        return self

    def done(self) -> Program:
        assert self.execute() == f"of {SECRET.decode()}nobody's"
        return self

    def erase(self, *steps: str, only: bool = False, **settings: Any) -> Erased:
        selection = Selection(steps=steps or None, only=only)
        return erase_run(self.ledger._opened.context(), self.ledger.run_id, selection, ACT, **settings)

    def states(self) -> dict[str, bool]:
        """Whether each step's result is erased."""
        kept = stored_of(self.ledger, K.RESULT, run_id=self.ledger.run_id)
        return {stored.record.name: stored.erased for stored in kept}

    def refused(self) -> Refused:
        with pytest.raises(Refused) as caught:
            self.execute()
        assert caught.value.code == "erased"
        return caught.value

    def is_whole(self) -> None:
        report = report_of(self.ledger)
        assert report.ok, report.problems
        path = self.ledger.db_path
        self.ledger.close()
        check_ledger(path)


def test_a_whole_run_is_erased_and_the_log_verifies(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    erased = program.erase()
    assert (erased.plan.records, erased.plan.steps, erased.plan.forks) == (5, None, ())
    for stored in stored_of(program.ledger, K.START, K.RESULT):
        assert stored.record == erased_form(stored.record_id, stored.record)
        assert stored.erased
    assert report_of(program.ledger).erased == 5
    assert leaves_of(program.ledger)[-1] == [("step", "recorded", "erased")]
    (decision,) = records_of(program.ledger, K.DECISION)
    assert (decision.name, decision.attempt) == ("erase", 1)
    program.is_whole()


def test_an_erased_run_is_refused_before_anything_runs_or_is_written(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    program.erase()
    size = store_of(program.ledger).reader().head().size
    error = program.refused()
    assert "start of run 'r1' was erased" in error.message
    assert "new run_id" in error.hint
    again = Program(new_ledger)
    again.refused()
    assert again.ran == []
    assert store_of(program.ledger).reader().head().size == size
    program.is_whole()


@pytest.mark.parametrize("crash", [False, True])
def test_an_unfinished_run_that_is_erased_never_goes_on(new_ledger: New, crash: bool) -> None:
    program = Program(new_ledger, stops_at="review", crash=crash).stopped()
    program.erase()
    assert all(mark.fingerprint == b"" for mark in marks_of(program.ledger))
    assert len(marks_of(program.ledger)) == crash
    again = Program(new_ledger)
    again.refused()
    assert again.ran == []
    program.is_whole()


def test_steps_are_erased_with_those_that_take_their_results_and_not_with_those_that_wait(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    plan = plan_erasure(store_of(program.ledger), "r1", Selection(steps=("fetch",)))
    assert (plan.steps, plan.dependants, plan.records) == (("fetch", "publish", "review"), ("publish", "review"), 3)
    program.erase("fetch")
    assert program.states() == {"fetch": True, "audit": False, "review": True, "publish": True}
    assert not stored_of(program.ledger, K.START)[0].erased
    error = program.refused()
    assert "step 'publish' of run 'r1'" in error.message
    program.is_whole()


def test_a_start_says_which_dependencies_are_for_the_order_only(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    content: Any = codecs.unpack(*_packed(records_of(program.ledger, K.START)[0]))
    assert content["order_only"] == {"audit": ["fetch"]}
    plain = new_ledger("plain")
    plain.add(Step(lambda who: who, name="one"))
    plain.execute(who="x")
    assert "order_only" not in codecs.unpack(*_packed(records_of(plain, K.START, run_id="plain")[0]))  # type: ignore[operator]


def test_a_step_that_only_waits_is_erased_with_what_takes_its_result(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    program.erase("audit")
    assert program.states() == {"fetch": False, "audit": True, "review": False, "publish": True}
    program.is_whole()


def test_only_the_named_step_is_erased_and_the_result_that_is_there_is_returned(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    assert program.erase("fetch", only=True).plan.dependants == ()
    assert program.states() == {"fetch": True, "audit": False, "review": False, "publish": False}
    program.done()
    assert program.ran == ["fetch", "audit", "review", "publish"]
    program.is_whole()


@pytest.mark.parametrize("stops_at", ["review", "publish"])
def test_a_run_goes_nowhere_without_an_erased_step_and_nothing_is_written(new_ledger: New, stops_at: str) -> None:
    program = Program(new_ledger, stops_at=stops_at).stopped()
    program.erase("fetch", only=True)
    size = store_of(program.ledger).reader().head().size
    again = Program(new_ledger)
    assert "step 'fetch' of run 'r1' was erased" in again.refused().message
    assert again.ran == []
    assert store_of(program.ledger).reader().head().size == size
    program.is_whole()


def test_a_changed_step_is_refused_too_for_nobody_can_say_that_it_changed(new_ledger: New) -> None:
    program = Program(new_ledger, stops_at="review").stopped()
    program.erase("fetch")
    ledger, ran = new_ledger(max_parallel=1), list[str]()
    ledger.add(Step(lambda who: ran.append(who), name="fetch", version="2", environment={"model": "other"}))
    with pytest.raises(Refused) as caught:
        ledger.execute(who=SECRET.decode())
    assert caught.value.code == "erased"
    assert ran == []


def test_an_attempt_that_did_not_see_the_erasure_coming_is_refused_at_the_call(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the start is the first of two: here it is blind, as it is for an erasure right after it."""
    program = Program(new_ledger, stops_at="publish").stopped()
    program.erase("review", only=True)
    monkeypatch.setattr("agent_run_ledger.runs.execute.Session._refuse_erased", lambda *_: None)
    again = Program(new_ledger)
    assert "step 'review'" in again.refused().message
    assert again.ran == []
    program.is_whole()


def test_a_program_without_the_erased_steps_goes_on(new_ledger: New) -> None:
    program = Program(new_ledger, stops_at="review").stopped()
    program.erase("fetch", only=True)
    ledger, ran = new_ledger(max_parallel=1), list[str]()
    ledger.add(Step(lambda: ran.append("audit"), name="audit"))
    ledger.add(Step(lambda who: ran.append("other") or who, name="other"))
    assert ledger.execute(who=SECRET.decode()) == {"audit": "nobody's", "other": SECRET.decode()}
    assert ran == ["other"]
    program.is_whole()


def test_an_error_of_an_erased_call_is_gone_and_the_step_is_tried_again(new_ledger: New) -> None:
    program = Program(new_ledger, stops_at="review").stopped()
    program.erase("review")
    (error,) = records_of(program.ledger, K.ERROR)
    assert error.payload == b""
    again = Program(new_ledger).done()
    assert again.ran == ["review", "publish"]
    program.is_whole()


def test_what_was_in_flight_and_never_recorded_loses_its_fingerprint(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(new_ledger, stops_at="review", crash=True).stopped()
    assert program.erase("review").plan.records == 0
    (mark,) = marks_of(program.ledger)
    assert mark.fingerprint == b""
    assert report_of(program.ledger).ok
    size = store_of(program.ledger).reader().head().size
    program.erase("review")
    assert store_of(program.ledger).reader().head().size == size
    with caplog.at_level(logging.WARNING):
        assert Program(new_ledger).done().ran == ["review", "publish"]
    assert "since it was begun" not in caplog.text
    program.is_whole()


def test_explain_says_what_is_erased(new_ledger: New) -> None:
    program = Program(new_ledger, stops_at="publish").stopped()
    program.erase("fetch", only=True)
    said = {one.name: one for one in program.ledger.bind("r1").explain(who=SECRET.decode())}
    assert said["fetch"].verdict is Verdict.ERASED
    assert said["audit"].verdict is Verdict.RESTORED
    assert (said["review"].verdict, said["review"].waits_for) == (Verdict.DEPENDS, ("fetch",))
    program.erase()
    assert {one.verdict for one in program.ledger.bind("r1").explain(who=SECRET.decode())} == {Verdict.ERASED}


def test_an_erasure_comes_in_batches_and_killed_between_two_it_goes_on(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "BATCH_RECORDS", 2)
    program = Program(new_ledger).done()
    shown: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        shown.append((done, total))
        if len(shown) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.erase(progress=stop)
    assert shown == [(2, 5), (4, 5)]
    assert report_of(program.ledger).ok
    program.refused()
    assert program.erase().plan.records == 1
    assert program.erase().plan.records == 0
    assert [len(leaf) for leaf in leaves_of(program.ledger)[-3:]] == [1, 1, 1]
    program.is_whole()


def test_a_batch_has_a_bound_of_bytes(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "BATCH_BYTES", 100)
    program = Program(new_ledger).done()
    erased = program.erase("fetch", "audit", only=True)
    assert erased.payload_bytes > 200
    assert len(records_of(program.ledger, K.DECISION)) == 2
    program.is_whole()


def test_a_run_that_lives_is_not_erased(new_ledger: New) -> None:
    ledger, said = new_ledger(), list[str]()

    @ledger.step
    def one() -> int:
        with pytest.raises(RunBusy) as caught:
            erase_run(ledger._opened.context(), "r1", Selection(), ACT)
        said.append(caught.value.message)
        return 1

    assert ledger.execute() == 1
    assert "live attempt" in said[0]
    assert report_of(ledger).erased == 0


def test_a_run_that_went_on_since_it_was_looked_at_is_left(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    looked_at = row_of(program.ledger)
    program.erase("audit", only=True, unchanged=looked_at)
    with pytest.raises(RunBusy, match="went on"):
        program.erase(unchanged=replace(looked_at, updated_at_ms=1))
    assert report_of(program.ledger).erased == 1


@pytest.mark.parametrize("state", [RunEvent.QUARANTINE, RunEvent.CANCEL, RunEvent.TAKEOVER])
def test_a_run_is_erased_in_every_state(new_ledger: New, state: RunEvent) -> None:
    program = Program(new_ledger, stops_at="review").stopped()
    operate(program.ledger, state)
    program.erase()
    with pytest.raises(Refused) as caught:
        program.execute()
    assert caught.value.code == {RunEvent.QUARANTINE: "run_quarantined", RunEvent.CANCEL: "run_cancelled"}.get(
        state, "erased"
    )
    program.is_whole()


def test_another_run_is_not_touched(new_ledger: New) -> None:
    program, other = Program(new_ledger).done(), Program(new_ledger, "r2").done()
    program.erase()
    assert not any(stored.erased for stored in stored_of(other.ledger, run_id="r2"))
    other.done()
    assert other.ran == ["fetch", "audit", "review", "publish"]


@pytest.mark.parametrize(
    ("act", "selection", "code"),
    [
        (replace(ACT, reason="  "), Selection(), "no_reason"),
        (replace(ACT, reason="\ud800"), Selection(), "bad_reason"),
        (replace(ACT, event="cancel"), Selection(), "bad_event"),
        (ACT, Selection(steps=("nothing",)), "no_step"),
    ],
)
def test_what_cannot_be_erased_changes_nothing(new_ledger: New, act: Act, selection: Selection, code: str) -> None:
    program = Program(new_ledger).done()
    with pytest.raises((Misuse, Refused)) as caught:
        erase_run(program.ledger._opened.context(), "r1", selection, act)
    assert caught.value.code == code
    assert report_of(program.ledger).erased == 0


def test_an_unknown_run_is_refused(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    with pytest.raises(Refused) as caught:
        erase_run(program.ledger._opened.context(), "nobody", Selection(), ACT)
    assert caught.value.code == "no_run"


def test_steps_of_a_run_whose_graph_is_erased_are_erased_one_by_one_or_all(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    store = store_of(program.ledger)
    (start,) = stored_of(program.ledger, K.START)
    lying = LyingStore(store, records=lambda *_, **__: [replace(start, record=replace(start.record, salt=b""))])
    with pytest.raises(Refused) as caught:
        plan_erasure(lying, "r1", Selection(steps=("fetch",)))  # type: ignore[arg-type]
    assert caught.value.code == "graph_erased"
    assert plan_erasure(lying, "r1", Selection(steps=("fetch",), only=True)).records == 1  # type: ignore[arg-type]
    assert plan_erasure(lying, "r1", Selection()).records == 5  # type: ignore[arg-type]


def test_a_decision_never_claims_more_than_was_erased(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(new_ledger).done()
    kind = type(store_of(program.ledger).reader())
    whole, twice = kind.record_names, []

    def names(self: Any, run_row_id: int, **kinds: Any) -> Any:
        twice[:] = whole(self, run_row_id, **kinds)
        return iter([*twice, twice[-1]])

    monkeypatch.setattr(kind, "record_names", names)
    with pytest.raises(Tampered, match="6 records of run 'r1' were to be erased, and 5 could be"):
        program.erase()
    assert report_of(program.ledger).erased == 0
    program.done()


def test_several_steps_far_apart_are_erased_exactly(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    program.erase("fetch", "review", only=True)
    assert program.states() == {"fetch": True, "audit": False, "review": True, "publish": False}
    (decision,) = records_of(program.ledger, K.DECISION)
    said: Any = codecs.unpack(decision.encoding, decision.payload)
    ids = [stored.record_id for stored in stored_of(program.ledger, K.RESULT) if stored.erased]
    assert (said["count"], said["ranges"]) == (2, [[one, one] for one in ids])
    assert (said["steps"], said["run_id"], said["forked_from"]) == (["fetch", "review"], "r1", None)
    program.erase()
    said = codecs.unpack(*_packed(records_of(program.ledger, K.DECISION)[1]))
    starts = stored_of(program.ledger, K.START)
    assert (said["count"], said["ranges"]) == (3, [[starts[0].record_id, ids[-1] + (1 << 16)]])
    program.is_whole()


def _packed(record: Record) -> tuple[int, bytes]:
    return record.encoding, record.payload


def test_an_erased_value_is_refused_by_name(new_ledger: New) -> None:
    program = Program(new_ledger).done()
    program.erase("audit", only=True)
    erased = next(stored for stored in stored_of(program.ledger, K.RESULT) if stored.erased)
    with pytest.raises(Refused, match="step 'audit' of run 'r1' was erased"):
        load_value(store_of(program.ledger), "r1", erased.record_id)


@pytest.mark.parametrize("durability", ["full", "extra"])
@pytest.mark.parametrize("steps", [(), ("fetch",)], ids=["whole", "a step"])
@in_a_file
def test_no_byte_of_what_was_erased_is_left_in_any_file(
    new_ledger: New, db: Path, durability: str, steps: tuple[str, ...]
) -> None:
    settings = {"durability": durability, "keep_inputs": not steps}
    program = Program(new_ledger, stops_at="publish", **settings).stopped()
    Program(new_ledger, "big", **settings).done()
    assert _files_with(db, SECRET)
    fingerprints = [s.record.fingerprint for s in stored_of(program.ledger, K.RESULT) if s.record.name == "fetch"]
    assert _files_with(db, fingerprints[0])
    selection = ("fetch", "publish") if steps else ()
    program.erase(*selection)
    erase_run(program.ledger._opened.context(), "big", Selection(steps=steps or None), ACT)
    assert store_of(program.ledger).scrub()
    assert _files_with(db, SECRET) == []
    assert _files_with(db, fingerprints[0]) == []
    report = report_of(program.ledger)
    assert report.ok, report.problems


def _files_with(db: Path, secret: bytes) -> list[str]:
    return [path.name for path in db.parent.iterdir() if path.name.startswith(db.name) and secret in path.read_bytes()]
