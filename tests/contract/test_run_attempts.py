"""A run's live attempt: becoming it, giving it back, decisions meanwhile, records that are not what they were."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger import InputsChanged, Misuse, Refused, RunCancelled, RunLedger, RunState, Step, Tampered, codecs
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ports import RecordKey, StoredRecord
from agent_run_ledger.runs.attempt import Attempt, Context, Definition, Finished, open_attempt, start_detail
from agent_run_ledger.runs.calls import identify
from agent_run_ledger.runs.execute import completed_result
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.leaf_check import load_value, record_of_run
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.runs.recorded import Recorded
from tests.contract.run_kit import (
    LyingStore,
    calls_of,
    keep_locks,
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


def failing(new_ledger: New, run_id: str = "r1", **inputs: Any) -> RunLedger:
    """Return a ledger whose run has one result, of a step named one, and failed in the next step."""
    ledger = new_ledger(run_id)

    @ledger.step
    def one(n: int) -> int:
        return n

    @ledger.step(depends_on=["one"])
    def end(one: int) -> int:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        ledger.execute(**{"n": 1, **inputs})
    return ledger


def open_(context: Context, n: int = 1) -> Attempt | Finished:
    definition = Definition(steps=[], policy=None, max_parallel=1)
    return open_attempt(context, "r1", inputs=Inputs({"n": n}, limit_bytes=1000), definition=definition, takeover=False)


class Interrupting(SystemClock):
    """A clock in which something happens whenever the time of a start is asked for."""

    def __init__(self, happens: Callable[[], Any], times: int = 1) -> None:
        self._happens = happens
        self._left = times

    def now_ms(self) -> int:
        if self._left:
            self._left -= 1
            self._happens()
        return super().now_ms()


def test_a_run_cancelled_between_the_look_and_the_start_is_not_started(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    context = replace(ledger._opened.context(), clock=Interrupting(lambda: operate(ledger, RunEvent.CANCEL)))
    with pytest.raises(RunCancelled):
        open_(context)
    assert row_of(ledger).state is RunState.CANCELLED
    assert len(records_of(ledger, RecordKind.START)) == 1


def test_a_run_that_keeps_changing_is_unavailable_and_given_back(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    clock = Interrupting(lambda: operate(ledger, RunEvent.TAKEOVER), times=100)
    with pytest.raises(Unavailable, match="kept changing"):
        open_(replace(ledger._opened.context(), clock=clock))
    attempt = open_(ledger._opened.context())
    assert isinstance(attempt, Attempt)
    attempt.close()


def test_a_run_that_ends_while_its_lock_is_waited_for_is_finished_and_given_back(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(new_ledger)
    ledger = new_ledger()
    ledger.add(Step(lambda n: n + 1, name="one"))
    kind = type(store_of(ledger))
    whole, kept = kind.lock_run, list[Any]()

    def lock_run(self: Any, run_id: str) -> Any:
        monkeypatch.setattr(kind, "lock_run", whole)
        assert ledger.execute(n=1) == 1
        kept.append(whole(self, run_id))  # a lock that is forgotten is let go too
        return kept[0]

    monkeypatch.setattr(kind, "lock_run", lock_run)
    assert isinstance(open_(ledger._opened.context()), Finished)
    lock = store_of(ledger).lock_run("r1")
    assert lock is not None
    lock.release()


def test_a_stopped_run_is_refused_and_not_called_busy_while_its_attempt_lives(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    attempt = open_(ledger._opened.context())
    assert isinstance(attempt, Attempt)
    operate(ledger, RunEvent.CANCEL)
    with pytest.raises(RunCancelled):
        ledger.execute(n=1)
    attempt.close()


def test_a_refused_start_gives_the_run_back(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = failing(new_ledger)
    keep_locks(ledger, monkeypatch)
    with pytest.raises(InputsChanged):
        ledger.execute(n=2)
    with pytest.raises(ValueError, match="stop"):
        ledger.execute(n=1)


def test_a_failed_attempt_gives_its_run_back(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = failing(new_ledger)
    keep_locks(ledger, monkeypatch)
    for _ in range(2):
        with pytest.raises(ValueError, match="stop"):
            ledger.execute(n=1)


def test_an_attempt_gives_its_run_back_once(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    attempt = open_(ledger._opened.context())
    assert isinstance(attempt, Attempt)
    assert store_of(ledger).lock_run("r1") is None
    attempt.close()
    lock = store_of(ledger).lock_run("r1")
    assert lock is not None
    attempt.close()
    assert store_of(ledger).lock_run("r1") is None
    lock.release()


def test_a_lock_is_released_by_its_attempt_once(new_ledger: New) -> None:
    class Lock:
        released = 0

        def release(self) -> None:
            self.released += 1

    lock = Lock()
    attempt = Attempt(row=row_of(failing(new_ledger)), lock=lock)
    attempt.close()
    attempt.close()
    assert lock.released == 1


def test_an_exception_after_the_start_gives_the_run_back(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = failing(new_ledger)
    kind = type(store_of(ledger).reader())
    with monkeypatch.context() as patch:
        patch.setattr(kind, "result_keys", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            ledger.execute(n=1)
    with pytest.raises(ValueError, match="stop"):
        ledger.execute(n=1)


def test_every_attempt_counts_and_the_first_start_is_kept(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    with pytest.raises(ValueError, match="stop"):
        ledger.execute(n=1)
    row = row_of(ledger)
    starts = [stored.record_id for stored in stored_of(ledger, RecordKind.START)]
    ends = [stored.record_id for stored in stored_of(ledger, RecordKind.END)]
    assert (row.attempt, row.generation) == (2, 2)
    assert (row.start_record_id, row.last_start_record_id, row.end_record_id) == (starts[0], starts[1], ends[1])
    assert [record.attempt for record in records_of(ledger, RecordKind.START)] == [1, 2]
    attempt = open_(ledger._opened.context())
    assert isinstance(attempt, Attempt)
    assert (attempt.row.end_record_id, attempt.row.state, attempt.row.attempt) == (None, RunState.RUNNING, 3)
    attempt.close()
    assert report_of(ledger).problems == ()


def test_what_was_in_flight_in_every_lane_is_abandoned_by_the_next_start(new_ledger: New) -> None:
    both = threading.Barrier(2)

    def die() -> int:
        both.wait(30)
        raise KeyboardInterrupt

    first = new_ledger(max_parallel=2)
    for name in ("a", "b"):
        first.add(Step(die, name=name))
    with pytest.raises(KeyboardInterrupt):
        first.execute()
    assert [mark.name for mark in marks_of(first)] == ["a", "b"]
    ledger = new_ledger(max_parallel=1)
    for name in ("a", "b"):
        ledger.add(Step(lambda: 1, name=name))
    assert ledger.execute() == {"a": 1, "b": 1}
    assert calls_of(ledger) == [("ABANDONED", "a"), ("ABANDONED", "b"), ("RESULT", "a"), ("RESULT", "b")]
    assert marks_of(ledger) == []
    assert [record.attempt for record in records_of(ledger, RecordKind.ABANDONED)] == [1, 1]
    assert report_of(ledger).problems == ()


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_an_input_less_and_an_input_more_are_other_inputs(new_ledger: New) -> None:
    ledger = failing(new_ledger, note="x")
    with pytest.raises(InputsChanged, match=r"inputs\.note \(missing\)"):
        ledger.execute(n=1)
    with pytest.raises(InputsChanged, match=r"inputs\.extra \(new\)"):
        ledger.execute(n=1, note="x", extra=1)


def test_a_change_at_the_front_of_a_long_list_is_another_input(new_ledger: New) -> None:
    ledger = failing(new_ledger, numbers=list(range(200)))
    with pytest.raises(InputsChanged, match=r"inputs\.numbers differs"):
        ledger.execute(n=1, numbers=[7, *range(1, 200)])
    with pytest.raises(InputsChanged, match=r"inputs\.numbers\[150\] differs"):
        ledger.execute(n=1, numbers=[*range(150), 7, *range(151, 200)])


def test_inputs_are_kept_as_salted_digests_only(new_ledger: New) -> None:
    details = []
    for run_id in ("r1", "r2"):
        ledger = failing(new_ledger, run_id, secret="0000")
        details.append(start_detail(store_of(ledger), row_of(ledger, run_id))[0]["inputs"]["secret"])
    assert details[0] != details[1]
    plain = codecs.value_digest("0000")
    assert plain.hex() not in str(details)
    assert hashlib.sha256(plain).hexdigest() not in str(details)


def test_a_key_that_is_no_text_is_an_input_like_any_other(new_ledger: New) -> None:
    ledger = failing(new_ledger, given={"\ud800": "\udfff"})
    with pytest.raises(ValueError, match="stop"):
        ledger.execute(n=1, given={"\ud800": "\udfff"})
    with pytest.raises(InputsChanged, match=r"inputs\.given"):
        ledger.execute(n=1, given={"\ud800": "other"})


# -- what people decide ------------------------------------------------------------------------------------------------


def test_a_decision_needs_a_reason_a_run_and_an_arrow(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    context = ledger._opened.context()
    for reason, code in (("  ", "no_reason"), ("a\ud800", "bad_reason")):
        with pytest.raises(Misuse) as caught:
            decide(context, "r1", RunEvent.CANCEL, reason=reason, actor="op")
        assert caught.value.code == code
    with pytest.raises(Misuse) as caught:
        decide(context, "r1", RunEvent.COMPLETE, reason="x", actor="op")
    assert caught.value.code == "bad_event"
    for run_id, event, code in (("r2", RunEvent.CANCEL, "no_run"), ("r1", RunEvent.RELEASE, "bad_transition")):
        with pytest.raises(Refused) as refused:
            decide(context, run_id, event, reason="x", actor="op")
        assert refused.value.code == code
    assert records_of(ledger, RecordKind.DECISION) == []


def test_decisions_are_recorded_with_reason_and_actor_and_change_only_what_they_say(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    before = row_of(ledger)
    decide(ledger._opened.context(), "r1", RunEvent.QUARANTINE, reason="looks odd", actor="ann")
    row = row_of(ledger)
    assert (row.state, row.reason, row.generation) == (RunState.QUARANTINED, "operator: looks odd", before.generation)
    assert (row.end_record_id, row.attempt) == (before.end_record_id, before.attempt)
    (decision,) = records_of(ledger, RecordKind.DECISION)
    kept = codecs.unpack(decision.encoding, decision.payload)
    assert kept == {"event": "quarantine", "reason": "looks odd", "actor": "ann"}
    operate(ledger, RunEvent.RELEASE)
    assert row_of(ledger).reason == ""
    operate(ledger, RunEvent.TAKEOVER)
    assert row_of(ledger).generation == before.generation + 1
    assert leaves_of(ledger)[-3:] == [
        [("run", "failed", "quarantined")], [("run", "quarantined", "running")], [("run", "running", "running")],
    ]  # fmt: skip
    assert report_of(ledger).problems == ()


# -- records that are not what they were -------------------------------------------------------------------------------


def changed(**fields: Any) -> Callable[[StoredRecord], StoredRecord]:
    return lambda stored: replace(stored, record=replace(stored.record, **fields))


def lying(ledger: RunLedger, change: Callable[[StoredRecord], StoredRecord]) -> LyingStore:
    """Return the ledger's store, with every record changed on the way."""
    store = store_of(ledger)
    return LyingStore(store, record=lambda record_id: change(store.reader().record(record_id)))


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": b"2"},
        {"value_sha256": bytes(32)},
        {"encoding": 1},
        {"name": "two"},
        {"name": b"one"},
        {"tries": 2},
        {"tries": None},
        {"salt": bytes(32)},
        {"attempt": 1 << 80},
    ],
)
def test_a_value_whose_record_was_changed_is_never_read(new_ledger: New, fields: dict[str, Any]) -> None:
    ledger = failing(new_ledger)
    (result,) = stored_of(ledger, RecordKind.RESULT)
    assert load_value(store_of(ledger), "r1", result.record_id) == 1
    with pytest.raises(Tampered, match="does not match its leaf"):
        load_value(lying(ledger, changed(**fields)), "r1", result.record_id)


def test_a_record_that_stands_in_another_place_of_its_leaf_is_never_read(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.add(Step(lambda n: n, name="one"))
    assert ledger.execute(n=1) == 1
    result, end = stored_of(ledger, RecordKind.RESULT)[0], stored_of(ledger, RecordKind.END)[0]
    assert result.leaf_index == end.leaf_index
    moved = LyingStore(store_of(ledger), record=lambda _: replace(result, record_id=end.record_id))
    with pytest.raises(Tampered):
        load_value(moved, "r1", end.record_id)
    beyond = LyingStore(store_of(ledger), record=lambda _: replace(result, record_id=result.record_id + 9))
    with pytest.raises(Tampered):
        load_value(beyond, "r1", result.record_id + 9)
    missing = LyingStore(store_of(ledger), record=lambda _: result, events=lambda **_: [])
    with pytest.raises(Tampered):
        load_value(missing, "r1", result.record_id)


def test_a_record_of_another_run_is_never_read_for_this_one(new_ledger: New) -> None:
    mine, other = failing(new_ledger), failing(new_ledger, "r2")
    (theirs,) = stored_of(other, RecordKind.RESULT, run_id="r2")
    with pytest.raises(Tampered, match="another run"):
        load_value(store_of(mine), "r1", theirs.record_id, run_uid=row_of(mine).run_uid)
    row = row_of(mine)
    assert row.start_record_id is not None
    assert record_of_run(store_of(mine), row, row.start_record_id, RecordKind.START).kind is RecordKind.START
    start = stored_of(other, RecordKind.START, run_id="r2")[0].record_id
    end = stored_of(mine, RecordKind.END)[0].record_id
    for record_id in (start, end, theirs.record_id):
        with pytest.raises(Tampered, match="as its START, which it is not"):
            record_of_run(store_of(mine), row, record_id, RecordKind.START)
    with pytest.raises(Tampered, match="does not match its leaf"):
        record_of_run(lying(mine, changed(tries=9)), row, row.start_record_id, RecordKind.START)
    with pytest.raises(Tampered, match="no START record"):
        start_detail(store_of(mine), replace(row, start_record_id=None))


def test_a_run_never_takes_the_record_of_another_run(new_ledger: New) -> None:
    """Its rows are changed so that its result is that of another run: the leaf of that one still vouches for it."""
    mine, other = failing(new_ledger), failing(new_ledger, "r2")
    (theirs,) = stored_of(other, RecordKind.RESULT, run_id="r2")
    attempt = open_(mine._opened.context())
    assert isinstance(attempt, Attempt)
    journal = Journal(mine._opened.context(), attempt)
    try:
        with pytest.raises(Tampered, match="another run"):
            journal.load(theirs.record_id)
        assert journal.load(stored_of(mine, RecordKind.RESULT)[0].record_id) == 1
    finally:
        attempt.close()


def test_a_completed_run_without_an_end_is_tampered(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    with pytest.raises(Tampered, match="no END record"):
        completed_result(ledger._opened.context(), replace(row_of(ledger), end_record_id=None))


def recorded_of(store: Any, ledger: RunLedger, keys: list[RecordKey] | None = None) -> tuple[Recorded, Any, bytes]:
    """Return the run's records as `store` gives them, the identity of the call one(n=1), and its code."""
    found = store.reader().result_keys(row_of(ledger).row_id) if keys is None else keys
    step = next(step for step in ledger.steps if step.name == "one")
    return Recorded(store, found), identify(step, {"n": codecs.value_digest(1)}, {}), step.code


def test_a_record_that_was_made_unfindable_is_no_reason_to_run_again(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    (key,) = store_of(ledger).reader().result_keys(row_of(ledger).row_id)
    store = lying(ledger, changed(fingerprint=bytes(32)))
    recorded, identity, code = recorded_of(store, ledger, [replace(key, fingerprint=bytes(32))])
    with pytest.raises(Tampered):
        recorded.take(identity, code)


def test_a_record_is_consumed_once_and_no_longer_compared_with(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    recorded, identity, code = recorded_of(store_of(ledger), ledger)
    other = replace(identity, fingerprint=bytes(32), version="2")
    assert recorded.why_not(other, {}) == ["version"]
    assert recorded.take(identity, code) is not None
    assert recorded.why_not(other, {}) is None


@pytest.mark.parametrize(("code", "changed_code"), [(b"other", ["one"]), (b"", []), (None, [])])
def test_changed_code_is_noted_only_where_both_codes_are_known(
    new_ledger: New, code: bytes | None, changed_code: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    ledger = failing(new_ledger)
    recorded, identity, own = recorded_of(store_of(ledger), ledger)
    assert recorded.take(identity, own if code is None else code) is not None
    assert recorded.code_changed == changed_code
    assert ("code changed" in caplog.text) is bool(changed_code)


def test_the_mac_in_the_leaf_is_that_of_the_record(new_ledger: New) -> None:
    ledger = failing(new_ledger)
    for stored in stored_of(ledger):
        (event,) = store_of(ledger).reader().events(first=stored.leaf_index, stop=stored.leaf_index + 1)
        assert record_mac(stored.record).hex().encode() in event.envelope
