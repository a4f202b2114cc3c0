"""Resolving a call with an unknown outcome: what is recorded by it, what is refused, and what forgeries are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Misuse, Pending, Refused, RunBusy, RunLedger, Superseded, Unavailable, codecs
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent, RunState
from agent_run_ledger.kernel.usage import parse_usage
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.runs.abandoned import after_of, detail_of
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.runs.resolve import find_unknown, resolutions
from agent_run_ledger.testing import check_ledger
from tests.contract.dynamic_kit import Dynamic, left_unknown, open_context, resolve, unknowns
from tests.contract.run_kit import store_exists


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def context(db: Path) -> Iterator[Context]:
    opened = open_context(db)
    yield opened
    opened.store.close()


def stored(context: Context, record_id: int) -> StoredRecord:
    return context.store.reader().record(record_id)


def row(context: Context, run_id: str = "agent") -> Any:
    return context.store.reader().find_run(run_id)


@pytest.mark.parametrize(
    ("outcome", "value", "kind"),
    [
        ("result", {"sent": True, "id": 7}, RecordKind.RESULT),
        ("result", None, RecordKind.RESULT),
        ("error", RuntimeError("the address bounced"), RecordKind.ERROR),
    ],
)
def test_the_outcome_lands_with_the_decision_and_has_the_key_of_the_call(
    context: Context, db: Path, outcome: str, value: object, kind: RecordKind
) -> None:
    second, call = left_unknown(context)
    second.die()
    size = context.store.reader().head().size
    resolved = resolve(context, call, outcome, value, actor="ann", reason="it is in the outbox")
    assert context.store.reader().head().size == size + 1
    assert (resolved.decision_id >> 16, resolved.outcome_id) == (size, resolved.decision_id + 1)
    unknown, made = stored(context, call).record, stored(context, resolved.outcome_id or 0).record
    key = (unknown.scope, unknown.name, unknown.fingerprint, unknown.occurrence)
    assert (made.scope, made.name, made.fingerprint, made.occurrence) == key
    assert made.kind is kind
    assert detail_of(made) == {"resolves": call, "after": after_of(unknown)}
    restored = codecs.unpack(made.encoding, made.payload)
    assert repr(restored) == repr(value)
    said = codecs.unpack(*_payload(stored(context, resolved.decision_id)))
    assert said == {
        "event": "resolve", "reason": "it is in the outbox", "actor": "ann", "record": call, "step": "send_mail",
        "outcome": outcome,
    }  # fmt: skip
    assert [found for _, found in resolutions(context.store.reader(), row(context))] == [call]
    context.store.close()
    check_ledger(db)


def _payload(of: StoredRecord) -> tuple[int, bytes]:
    return of.record.encoding, of.record.payload


def test_not_done_writes_the_decision_alone(context: Context, db: Path) -> None:
    second, call = left_unknown(context)
    second.die()
    resolved = resolve(context, call, "not_done")
    assert resolved.outcome_id is None
    assert stored(context, resolved.decision_id).record.kind is RecordKind.DECISION
    third = Dynamic(context)
    third.call("send_mail", "sent", argument="to ann", safe=False)  # the call is made again, under the same key
    third.end()
    context.store.close()
    assert check_ledger(db).results == 2


def test_a_resolution_is_synced(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    second, call = left_unknown(context)
    second.die()
    synced: list[bool] = []
    whole = type(context.store).transact

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        synced.append(sync)
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(type(context.store), "transact", transact)
    resolve(context, call, "result", 1)
    assert synced == [True]


@pytest.mark.parametrize("event", [RunEvent.QUARANTINE, RunEvent.CANCEL])
def test_it_can_be_resolved_in_quarantine_and_after_a_cancel(context: Context, db: Path, event: RunEvent) -> None:
    second, call = left_unknown(context)
    second.die()
    before = decide(context, "agent", event, reason="look", actor="op").state
    resolve(context, call, "result", "sent")
    assert row(context).state is before
    context.store.close()
    check_ledger(db)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.SUSPENDED])
def test_it_can_be_resolved_when_the_run_stands_still(context: Context, db: Path, state: RunState) -> None:
    second, call = left_unknown(context)
    second.end(state)
    resolve(context, call, "result", "sent")
    assert row(context).state is state
    context.store.close()
    check_ledger(db)


def test_a_call_is_resolved_once(context: Context, db: Path) -> None:
    second, call = left_unknown(context)
    second.die()
    resolve(context, call, "not_done", reason="the outbox is empty", actor="bob")
    for outcome in ("result", "error", "not_done"):
        with pytest.raises(Refused, match=r"not_done, by bob \(the outbox is empty\)") as refused:
            resolve(context, call, outcome, RuntimeError("x"))
        assert refused.value.code == "already_resolved"
    context.store.close()
    check_ledger(db)


def test_what_is_no_unknown_outcome_is_refused(context: Context) -> None:
    first = Dynamic(context)
    result = first.call("look_up")
    error = first.error(first.start("fetch"), ValueError("x"))
    first.start("page", argument="safe")
    second = first.again()
    abandoned = next(
        one.record_id for one in context.store.reader().records(row(context).row_id, kinds=[RecordKind.ABANDONED])
    )
    second.die()
    for record_id, word in ((result, "result"), (error, "failed"), (abandoned, "run again"), (second.last_id, "START")):
        with pytest.raises(Refused, match=word) as refused:
            resolve(context, record_id, "not_done")
        assert refused.value.code == "not_unknown"


def test_a_record_of_another_run_and_none_at_all_are_refused(context: Context) -> None:
    second, call = left_unknown(context)
    second.die()
    Dynamic(context, "other").die()
    for run_id, record_id in (("other", call), ("agent", call + 1), ("agent", 10**18 - 1)):
        with pytest.raises(Refused) as refused:
            resolve(context, record_id, "not_done", run_id=run_id)
        assert refused.value.code == "no_call"
    with pytest.raises(Refused) as refused:
        resolve(context, call, "not_done", run_id="nobody")
    assert refused.value.code == "no_run"


def dead_in_a_tool(context: Context, *, safe: bool = False) -> None:
    first = Dynamic(context)
    first.call("look_up")
    first.start("send_mail", argument="to ann", safe=safe)
    first.die()


@pytest.mark.parametrize("outcome", ["result", "error", "not_done"])
def test_what_a_dead_attempt_left_in_flight_is_resolved_before_the_next_one(
    context: Context, db: Path, outcome: str
) -> None:
    dead_in_a_tool(context)
    (mark,) = context.store.reader().in_flight(row(context).row_id)
    resolved = resolve(context, f"mark-{mark.lane}", outcome, RuntimeError("bounced") if outcome == "error" else "sent")
    assert unknowns(context) == [resolved.record_id]
    assert resolved.decision_id == resolved.record_id + 1
    assert resolved.outcome_id == (None if outcome == "not_done" else resolved.decision_id + 1)
    assert context.store.reader().in_flight(row(context).row_id) == []
    assert row(context).generation == 2  # taken over, so that nobody else can conclude the call
    with pytest.raises(Refused) as refused:
        resolve(context, resolved.record_id, outcome, RuntimeError("x"))
    assert refused.value.code == "already_resolved"
    Dynamic(context).end()
    context.store.close()
    check_ledger(db)


def test_an_attempt_without_its_lock_cannot_conclude_a_call_that_was_resolved(context: Context, db: Path) -> None:
    first = Dynamic(context)
    started = first.start("send_mail", safe=False)
    first.die()  # and goes on all the same, as one does that took over from a process which holds the lock
    first.attempt.closed = False
    resolve(context, "mark-0", "result", "by hand")
    with pytest.raises(Superseded):
        first.result(started, "by itself")
    context.store.close()
    check_ledger(db)


@pytest.mark.parametrize(
    ("prepare", "call", "code"),
    [
        (lambda c: dead_in_a_tool(c), "mark-7", "no_call"),
        (lambda c: dead_in_a_tool(c, safe=True), "mark-1", "not_unknown"),
        (lambda c: (dead_in_a_tool(c), decide(c, "agent", RunEvent.QUARANTINE, reason="x", actor="a")), "mark-1",
         "not_recorded"),
        (lambda c: (dead_in_a_tool(c), decide(c, "agent", RunEvent.CANCEL, reason="x", actor="a")), "mark-1",
         "not_recorded"),
        (lambda c: (dead_in_a_tool(c), erase_run(c, "agent", Selection(), Act(event="erase", reason="x", actor="a"))),
         "mark-1", "erased"),
        (lambda _: None, "mark-0", "no_run"),
    ],
)  # fmt: skip
def test_a_mark_that_cannot_be_resolved_is_refused_and_nothing_changes(
    context: Context, prepare: Any, call: str, code: str
) -> None:
    prepare(context)
    size = context.store.reader().head().size
    with pytest.raises(Refused) as refused:
        resolve(context, call, "not_done")
    assert refused.value.code == code
    assert context.store.reader().head().size == size


def test_an_agent_goes_on_with_what_was_found_out(db: Path) -> None:
    for outcome, said, expected in (
        ("result", "sent", "sent"),
        ("error", RuntimeError("bounced"), "RuntimeError('bounced')"),
        ("not_done", None, "made again"),
    ):
        context = open_context(db)
        ledger = RunLedger(run_id=outcome, db_path=db)
        stop = [True]

        @ledger.tool
        def send_mail(to: str, stop: list[bool] = stop) -> str:
            if stop[0]:
                raise KeyboardInterrupt
            return "made again"

        def agent(ledger: RunLedger = ledger, send_mail: Any = send_mail) -> Any:
            with ledger.run(ticket=17):
                try:
                    return send_mail("ann")
                except RuntimeError as error:
                    return repr(error)

        with pytest.raises(KeyboardInterrupt):
            agent()
        stop[0] = False
        resolve(context, "mark-0", outcome, said, run_id=outcome)
        assert agent() == expected
        assert agent() == expected
        ledger.close()
        context.store.close()
    check_ledger(db)


def test_an_agent_that_went_on_without_knowing_keeps_what_it_was_told(db: Path) -> None:
    context = open_context(db)
    ledger = RunLedger(run_id="agent", db_path=db)
    stop = ["mail"]

    @ledger.tool
    def send_mail(to: str) -> str:
        if stop == ["mail"]:
            raise KeyboardInterrupt
        return "sent twice"

    @ledger.step
    def think(about: object) -> object:
        return about

    def agent() -> Any:
        with ledger.run(ticket=17):
            told = think(send_mail("ann"))
            if stop:
                raise KeyboardInterrupt
            return told

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            agent()
        stop[:] = ["later"]
    (call,) = unknowns(context)
    resolve(context, call, "result", "sent")
    stop.clear()
    assert agent()["call"] == str(call)
    ledger.close()
    context.store.close()
    check_ledger(db)


@pytest.mark.parametrize("call", ["mark-", "mark--1", "-mark-1", "", "abc", "-1", "1.0", "1" * 19, "\u0663", True])
def test_a_call_is_named_by_a_number(context: Context, call: Any) -> None:
    with pytest.raises(Misuse) as refused:
        resolve(context, call, "not_done")
    assert refused.value.code == "bad_call"


def test_a_completed_run_stays_as_it_is(context: Context) -> None:
    second, call = left_unknown(context)
    second.end()
    with pytest.raises(Refused) as refused:
        resolve(context, call, "result", 1)
    assert refused.value.code == "run_completed"


def test_of_a_resolved_call_of_a_completed_run_it_is_said_that_it_is_resolved(context: Context) -> None:
    second, call = left_unknown(context)
    second.die()
    resolve(context, call, "result", 1)
    Dynamic(context).end()
    with pytest.raises(Refused) as refused:
        resolve(context, call, "result", 2)
    assert refused.value.code == "already_resolved"


def test_a_live_attempt_is_not_disturbed(context: Context) -> None:
    second, call = left_unknown(context)
    size = context.store.reader().head().size
    with pytest.raises(RunBusy):
        resolve(context, call, "result", 1)
    assert context.store.reader().head().size == size
    second.die()
    resolve(context, call, "result", 1)


def test_the_lock_is_held_for_the_act_and_given_back(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    second, call = left_unknown(context)
    second.die()
    live: list[bool] = []
    whole = type(context.store).transact

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        live.append(self.is_run_live("agent"))
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(type(context.store), "transact", transact)
    resolve(context, call, "result", 1)
    assert live == [True]
    assert context.store.is_run_live("agent") is False


def test_an_erased_call_is_refused(context: Context, db: Path) -> None:
    second, call = left_unknown(context)
    second.die()
    erase_run(context, "agent", Selection(), Act(event="erase", reason="x", actor="a"))
    with pytest.raises(Refused) as refused:
        resolve(context, call, "result", 1)
    assert refused.value.code == "erased"
    context.store.close()
    check_ledger(db)


@pytest.mark.parametrize("name", [None, "send_mail"])
def test_what_a_resolution_recorded_can_be_erased(context: Context, db: Path, name: str | None) -> None:
    second, call = left_unknown(context)
    second.die()
    resolved = resolve(context, call, "result", "secret")
    steps = None if name is None else (name,)
    erase_run(
        context, "agent", Selection(steps=steps, only=name is not None), Act(event="erase", reason="x", actor="a")
    )
    assert stored(context, resolved.outcome_id or 0).erased
    assert not stored(context, resolved.decision_id).erased
    context.store.close()
    assert b"secret" not in db.read_bytes()
    check_ledger(db)


@pytest.mark.parametrize(
    ("outcome", "more", "code"),
    [
        ("result", {"reason": " "}, "no_reason"),
        ("result", {"reason": "\ud800"}, "bad_reason"),
        ("result", {"actor": "\ud800"}, "bad_reason"),
        ("result", {"value": object()}, "unstorable"),
        ("error", {"value": "text"}, "bad_error"),
        ("error", {"value": KeyboardInterrupt()}, "bad_error"),
        ("error", {"value": Pending("later")}, "bad_error"),
        ("error", {"value": Unavailable("later")}, "bad_error"),
        ("not_done", {"usage": b'[{"calls":1}]'}, "bad_usage"),
    ],
)
def test_a_finding_that_says_nothing_is_misuse(context: Context, outcome: str, more: dict[str, Any], code: str) -> None:
    second, call = left_unknown(context)
    second.die()
    size = context.store.reader().head().size
    with pytest.raises(LedgerError) as refused:
        resolve(context, call, outcome, **more)
    assert refused.value.code == code
    assert context.store.reader().head().size == size


def test_the_handle_takes_each_of_the_three_answers(db: Path) -> None:
    for outcome, said in (
        ("RESULT", {"result": None, "input_tokens": 5, "cost_usd": "0.25"}),
        ("ERROR", {"error": "bounced"}),
        ("ERROR", {"error": ValueError("bounced")}),
        ("none", {"not_done": True}),
    ):
        run_id = f"run {outcome} {said}"[:60]
        context = open_context(db)
        second, call = left_unknown(context, run_id=run_id)
        second.die()
        context.store.close()
        with RunLedger(db_path=db) as ledger:
            ledger.bind(run_id).resolve(str(call), reason="looked", actor="ann", **said)  # type: ignore[arg-type]
        context = open_context(db)
        last = list(context.store.reader().records(row(context, run_id).row_id, kinds=tuple(RecordKind)))[-1].record
        assert last.kind.name == ("DECISION" if outcome == "none" else outcome)
        if "cost_usd" in said:
            (usage,) = parse_usage(last.usage)
            assert (usage.input_tokens, usage.output_tokens, str(usage.cost_usd)) == (5, None, "0.25")
            assert usage.prices == "reported"
        if "error" in said:
            error = codecs.unpack(last.encoding, last.payload)
            assert type(error) is (RuntimeError if isinstance(said["error"], str) else ValueError)
            assert str(error) == "bounced"
        context.store.close()
    check_ledger(db)


@pytest.mark.parametrize(
    "said", [{}, {"result": 1, "error": "x"}, {"result": 1, "not_done": True}, {"error": "x", "not_done": True}]
)
def test_the_handle_wants_exactly_one_answer(db: Path, said: dict[str, Any]) -> None:
    with RunLedger(db_path=db) as ledger, pytest.raises(Misuse) as refused:
        ledger.bind("agent").resolve(1, reason="x", **said)
    assert refused.value.code == "bad_outcome"


def test_a_ledger_without_a_store_has_no_run_to_resolve(db: Path) -> None:
    with RunLedger(db_path=db) as ledger, pytest.raises(Refused) as refused:
        ledger.bind("agent").resolve(1, not_done=True, reason="x")
    assert refused.value.code == "no_run"
    assert not store_exists(db)


def test_two_unknown_outcomes_are_resolved_one_by_one(context: Context, db: Path) -> None:
    first = Dynamic(context)
    first.start("send_mail", argument="ann", safe=False)
    first.start("send_mail", argument="bob", safe=False)
    first.start("look_up")
    first.again().die()
    ann, bob = unknowns(context)
    resolve(context, bob, "result", "sent")
    assert find_unknown(context.store, row(context), ann).record_id == ann
    resolve(context, ann, "not_done")
    report = verify_log(context.store.reader())
    assert report.ok, report.problems
    context.store.close()
    check_ledger(db)
