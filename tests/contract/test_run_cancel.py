"""Cancelling: recorded at once; bodies that run are left to finish, their results are evidence, nothing else starts."""

from __future__ import annotations

import asyncio
import getpass
import pathlib
import threading
from collections.abc import Callable

import pytest

from agent_run_ledger import Misuse, Refused, RunCancelled, RunLedger, RunState, Step, codecs
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger
from tests.contract.fork_kit import Program
from tests.contract.run_kit import calls_of, marks_of, records_of, row_of, store_exists, until

New = Callable[..., RunLedger]
EIGHT = [f"branch {number}" for number in range(8)]


def decision_of(ledger: RunLedger) -> dict[str, object]:
    (record,) = records_of(ledger, RecordKind.DECISION)
    content = codecs.unpack(record.encoding, record.payload)
    assert isinstance(content, dict)
    return content


def test_cancel_while_eight_bodies_run_keeps_their_results_and_starts_nothing_more(
    new_ledger: New, db: pathlib.Path
) -> None:
    ledger, ended, leave = new_ledger(max_parallel=8), list[BaseException](), threading.Event()

    def body() -> int:
        leave.wait(30)
        return 1

    for name in EIGHT:
        ledger.add(Step(body, name=name))
    ledger.add(Step(lambda *parts: ended.append(AssertionError("ran")), name="join", depends_on=EIGHT))

    def work() -> None:
        try:
            ledger.execute()
        except RunCancelled as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        until(lambda: ledger.bind("r1").state is not None and len(marks_of(ledger)) == 8)
        new_ledger().bind("r1").cancel("too dear", actor="ann")
        assert row_of(ledger).state is RunState.CANCELLED, "at once, while all bodies run"
        assert len(marks_of(ledger)) == 8
    finally:
        leave.set()
        worker.join(30)
    (error,) = ended
    assert "was cancelled while it ran (operator: too dear)" in str(error)
    assert "fork it" in str(error)
    assert sorted(calls_of(ledger)) == [("RESULT", name) for name in EIGHT]
    assert row_of(ledger).state is RunState.CANCELLED
    assert decision_of(ledger) == {"event": "cancel", "reason": "too dear", "actor": "ann"}
    ledger.close()
    check_ledger(db)


def test_a_cancel_is_told_once_however_many_bodies_end_after_it(new_ledger: New) -> None:
    ledger, ended = new_ledger(max_parallel=2), list[BaseException]()
    leave = {"a": threading.Event(), "b": threading.Event()}
    for name, event in leave.items():
        ledger.add(Step(lambda event=event: event.wait(30), name=name))

    def work() -> None:
        try:
            ledger.execute()
        except RunCancelled as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        until(lambda: ledger.bind("r1").state is not None and len(marks_of(ledger)) == 2)
        new_ledger().bind("r1").cancel("too dear")
        leave["a"].set()
        until(lambda: ("RESULT", "a") in calls_of(ledger))
    finally:
        for event in leave.values():
            event.set()
        worker.join(30)
    (error,) = ended
    assert sorted(calls_of(ledger)) == [("RESULT", "a"), ("RESULT", "b")]
    assert getattr(error, "__notes__", []) == [], "it is no failure of a step"


def test_cancel_of_an_async_run_lets_its_bodies_finish(new_ledger: New, db: pathlib.Path) -> None:
    ledger, ran = new_ledger(), list[str]()

    async def on_a_loop() -> None:
        leave = asyncio.Event()

        async def branch() -> int:
            ran.append("in")
            if len(ran) == 3:
                ledger.bind("r1").cancel("enough")
                leave.set()
            await leave.wait()
            return len(ran)

        for name in "abc":
            ledger.add(Step(branch, name=name))
        ledger.add(Step(lambda *parts: ran.append("after"), name="after", depends_on=list("abc")))
        with pytest.raises(RunCancelled, match="while it ran"):
            await ledger.aexecute()

    asyncio.run(on_a_loop())
    assert ran == ["in"] * 3
    assert sorted(calls_of(ledger)) == [("RESULT", name) for name in "abc"]
    assert decision_of(ledger)["actor"] == getpass.getuser()
    ledger.close()
    check_ledger(db)


def test_cancelling_a_fork_leaves_the_other_run_alone_and_the_other_way_round(db: pathlib.Path) -> None:
    def stop() -> None:
        raise ValueError("later")

    first = Program(db, ends=stop)
    first.run()
    fork = first.ledger.fork("a", from_step="judge", new_run_id="b")
    second = first.ledger.fork("a", from_step="judge", new_run_id="c")
    fork.cancel("not that way")
    assert isinstance(first.run("b"), RunCancelled)
    assert row_of(first.ledger, "a").state is RunState.FAILED
    first.ledger.bind("a").cancel("nor that")
    first.ledger.close()
    program = Program(db)
    assert second.state is RunState.SUSPENDED
    assert program.run("c") == "yes to v1 on acme in 2026"
    assert program.ran == ["judge", "publish"]
    program.ledger.close()
    check_ledger(db)


def test_what_cannot_be_cancelled_is_refused(new_ledger: New, db: pathlib.Path) -> None:
    ledger = new_ledger()
    with pytest.raises(Refused) as nobody:
        ledger.bind("r1").cancel("x")
    assert nobody.value.code == "no_run"
    assert not store_exists(db), "looking for a run to cancel makes no store"
    ledger.add(Step(lambda: 1, name="one"))
    ledger.execute()
    with pytest.raises(Refused) as completed:
        ledger.bind("r1").cancel("x")
    assert completed.value.code == "bad_transition"
    with pytest.raises(Misuse):
        ledger.bind("r1").cancel(" ")


def test_a_user_without_a_name_is_recorded_as_unknown(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise OSError("no such uid")

    ledger = new_ledger()

    @ledger.step
    def stop() -> int:
        ledger.bind("r1").cancel("enough")
        return 1

    monkeypatch.setattr(getpass, "getuser", nobody)
    with pytest.raises(RunCancelled):
        ledger.execute()
    assert decision_of(ledger)["actor"] == "unknown"
