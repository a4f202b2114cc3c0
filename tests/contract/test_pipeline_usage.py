"""What a step's body reports, or its result says, is kept in the record of that very try, whichever way it ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, Step, StepTimeout, Unstorable, report_usage
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.usage import Usage, parse_usage
from agent_run_ledger.runs import usage as usage_module
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import records_of, report_of, until

New = Callable[..., RunLedger]
ANSWER = {"id": "chatcmpl-1", "model": "ours", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
ANSWERED = (Usage(model="ours", input_tokens=7, output_tokens=2),)
_CALLS = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED, RecordKind.ABANDONED)


def used(ledger: RunLedger, run_id: str = "r1") -> list[tuple[str, str, tuple[Usage, ...]]]:
    """Return (kind, step, usage) of every call recorded, in order; the log must hold all of it."""
    assert report_of(ledger).ok
    records = records_of(ledger, *_CALLS, run_id=run_id)
    return [(record.kind.name, record.name, parse_usage(record.usage)) for record in records]


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_bodies_of_every_shape_report_into_their_own_record(new_ledger: New, how: str) -> None:
    ledger = new_ledger(max_parallel=4)
    together = threading.Barrier(2)

    @ledger.step
    def one() -> int:
        together.wait(30)
        report_usage(model="one", input_tokens=1)
        return 1

    @ledger.step
    def items() -> Iterator[int]:
        together.wait(30)
        report_usage(model="items", input_tokens=2)
        yield 1
        report_usage(model="items", input_tokens=3)

    @ledger.step
    async def waits() -> int:
        await asyncio.sleep(0)
        report_usage(model="waits", input_tokens=4)
        return 1

    @ledger.step
    async def ticks() -> AsyncIterator[int]:
        report_usage(model="ticks", input_tokens=5)
        await asyncio.sleep(0)
        yield 1

    _ = ledger.execute() if how == "execute" else asyncio.run(ledger.aexecute())
    assert {name: lines for _, name, lines in used(ledger)} == {
        "one": (Usage(model="one", input_tokens=1),),
        "items": (Usage(model="items", calls=2, input_tokens=5),),
        "waits": (Usage(model="waits", input_tokens=4),),
        "ticks": (Usage(model="ticks", input_tokens=5),),
    }


def test_threads_and_tasks_that_carry_the_step_report_for_it(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def threads() -> int:
        def call() -> None:
            for _ in range(100):
                report_usage(model="m", input_tokens=1)

        workers = [threading.Thread(target=contextvars.copy_context().run, args=(call,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return 1

    @ledger.step
    async def tasks() -> int:
        async def call() -> None:
            report_usage(model="m", output_tokens=1)

        await asyncio.gather(*(call() for _ in range(3)), asyncio.to_thread(report_usage, model="m", output_tokens=2))
        return 1

    ledger.execute()
    assert {name: lines for _, name, lines in used(ledger)} == {
        "threads": (Usage(model="m", calls=400, input_tokens=400),),
        "tasks": (Usage(model="m", calls=4, output_tokens=5),),
    }


def test_a_thread_without_the_step_is_told_how_to_carry_it(new_ledger: New) -> None:
    ledger = new_ledger()
    caught: list[Misuse] = []

    @ledger.step
    def ask() -> int:
        def call() -> None:
            try:
                report_usage(input_tokens=1)
            except Misuse as error:
                caught.append(error)

        worker = threading.Thread(target=contextvars.Context().run, args=(call,))
        worker.start()
        worker.join()
        return 1

    ledger.execute()
    assert [error.code for error in caught] == ["no_step"]
    assert "copy_context" in caught[0].hint
    assert used(ledger) == [("RESULT", "ask", ())]


def test_outside_of_a_step_a_report_is_misuse_also_after_one_ran(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(name="s")(lambda: report_usage(input_tokens=1))
    for _ in range(2):
        with pytest.raises(Misuse) as caught:
            report_usage(input_tokens=1)
        assert caught.value.code == "no_step"
        ledger.execute()


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_each_try_has_its_own_usage_and_a_failed_one_keeps_it(new_ledger: New, how: str) -> None:
    ledger = new_ledger()
    tries: list[int] = []

    @ledger.step(retries=2, retry_base_s=0)
    def flaky() -> int:
        tries.append(1)
        report_usage(model="m", input_tokens=10 ** len(tries))
        if len(tries) < 3:
            raise ConnectionError("lost")
        return 1

    _ = ledger.execute() if how == "execute" else asyncio.run(ledger.aexecute())
    assert used(ledger) == [
        ("ERROR", "flaky", (Usage(model="m", input_tokens=10),)),
        ("ERROR", "flaky", (Usage(model="m", input_tokens=100),)),
        ("RESULT", "flaky", (Usage(model="m", input_tokens=1000),)),
    ]


def test_a_result_that_cannot_be_stored_keeps_its_usage(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(name="ask")(lambda: {"response": ANSWER, "handle": object()})
    with pytest.raises(Unstorable):
        ledger.execute()
    assert used(ledger) == [("RESCUED", "ask", ANSWERED)]


def test_what_ended_without_a_record_is_abandoned_without_a_usage(new_ledger: New) -> None:
    def build(*, die: bool) -> RunLedger:
        ledger = new_ledger()

        @ledger.step
        def ask() -> int:
            report_usage(model="m", input_tokens=5)
            if die:
                raise KeyboardInterrupt
            return 1

        return ledger

    with pytest.raises(KeyboardInterrupt):
        build(die=True).execute()
    ledger = build(die=False)
    ledger.execute()
    line = (Usage(model="m", input_tokens=5),)
    assert used(ledger) == [("ABANDONED", "ask", ()), ("RESULT", "ask", line)]


def test_a_result_is_read_only_where_the_body_reported_nothing(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(name="silent")(lambda: ANSWER)

    @ledger.step
    def reports() -> dict[str, Any]:
        report_usage(model="mine", output_tokens=1)
        return ANSWER

    ledger.execute()
    assert {name: lines for _, name, lines in used(ledger)} == {
        "silent": ANSWERED,
        "reports": (Usage(model="mine", output_tokens=1),),
    }


def test_a_response_that_is_passed_on_is_counted_once(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(name="ask")(lambda: ANSWER)
    ledger.step(name="pick", depends_on=["ask"])(lambda ask: {"response": ask, "score": 1})
    ledger.step(name="again", depends_on=["pick"])(lambda pick: [dict(pick["response"])])
    ledger.execute()
    assert used(ledger) == [("RESULT", "ask", ANSWERED), ("RESULT", "pick", ()), ("RESULT", "again", ())]


@pytest.mark.parametrize("how", ["execute", "aexecute"])
def test_what_a_step_got_from_another_ledger_is_counted_there(new_ledger: New, how: str) -> None:
    inner = new_ledger("inner")
    inner.step(name="ask")(lambda: ANSWER)
    outer = new_ledger()
    if how == "execute":
        outer.step(name="delegate")(lambda: inner.execute())
    else:

        async def delegate() -> Any:
            return await inner.aexecute()

        outer.add(Step(delegate))
    outer.execute()
    assert used(inner, "inner") == [("RESULT", "ask", ANSWERED)]
    assert used(outer) == [("RESULT", "delegate", ())]
    restored = new_ledger("r2")
    restored.step(name="delegate")(lambda: inner.execute())
    restored.execute()
    assert used(restored, "r2") == [("RESULT", "delegate", ())]


def test_after_an_inner_run_the_outer_body_reports_for_itself_again(new_ledger: New) -> None:
    inner, outer = new_ledger("inner"), new_ledger()
    inner.step(name="ask")(lambda: report_usage(model="in", input_tokens=1))

    @outer.step
    def both() -> int:
        inner.execute()
        report_usage(model="out", input_tokens=2)
        return 1

    outer.execute()
    assert used(inner, "inner") == [("RESULT", "ask", (Usage(model="in", input_tokens=1),))]
    assert used(outer) == [("RESULT", "both", (Usage(model="out", input_tokens=2),))]


def test_a_restored_result_is_not_read_again(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*, fail: bool) -> RunLedger:
        ledger = new_ledger()
        ledger.step(name="ask")(lambda: ANSWER)

        @ledger.step(depends_on=["ask"])
        def end(ask: dict[str, Any]) -> int:
            if fail:
                raise ValueError("stop")
            return 1

        return ledger

    with pytest.raises(ValueError, match="stop"):
        build(fail=True).execute()
    read: list[object] = []
    monkeypatch.setattr(usage_module, "read_usage", lambda value, given=(): read.append(value) or [])
    ledger = build(fail=False)
    ledger.execute()
    assert read == [1]
    assert used(ledger) == [("RESULT", "ask", ANSWERED), ("ERROR", "end", ()), ("RESULT", "end", ())]


def test_a_report_after_the_end_is_named_in_a_warning(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    ledger = new_ledger()
    go, done = threading.Event(), threading.Event()

    def late() -> None:
        go.wait(30)
        report_usage(model="m", input_tokens=1234)
        report_usage()
        done.set()

    @ledger.step
    def ask() -> int:
        threading.Thread(target=contextvars.copy_context().run, args=(late,)).start()
        return 1

    with caplog.at_level(logging.WARNING):
        ledger.execute()
        go.set()
        until(done.is_set)
    messages = [record.getMessage() for record in caplog.records]
    assert [("step 'ask'" in message, "1,234 input tokens of 'm'" in message) for message in messages] == [
        (True, True),
        (True, False),
    ]
    assert used(ledger) == [("RESULT", "ask", ())]


def test_a_call_that_timed_out_keeps_what_it_had_reported_and_warns_of_the_rest(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()
    go, done = threading.Event(), threading.Event()

    @ledger.step(timeout_s=0.05)
    def slow() -> int:
        report_usage(model="m", input_tokens=1)
        go.wait(30)
        report_usage(model="m", input_tokens=2)
        done.set()
        return 1

    with caplog.at_level(logging.WARNING):
        with pytest.raises(StepTimeout):
            ledger.execute()
        go.set()
        until(done.is_set)
    assert used(ledger) == [("ERROR", "slow", (Usage(model="m", input_tokens=1),))]
    assert "2 input tokens of 'm' is in no record" in caplog.text


def test_a_response_can_be_reported_and_one_that_says_nothing_is_an_unknown_call(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()

    @ledger.step
    def ask() -> int:
        report_usage(ANSWER)
        report_usage(ANSWER, model="alias", provider="p")
        with caplog.at_level(logging.WARNING):
            report_usage({"usage": None}, model="quiet")
        return 1

    ledger.execute()
    assert "says nothing that is known of its usage" in caplog.text
    assert used(ledger)[0][2] == (
        *ANSWERED,
        Usage(model="alias", provider="p", input_tokens=7, output_tokens=2),
        Usage(model="quiet"),
    )


def test_numbers_of_every_kind_are_kept(new_ledger: New) -> None:
    ledger = new_ledger()
    everything = Usage(
        model="m", provider="p", calls=3, input_tokens=10, output_tokens=0, cache_read_tokens=4, cache_write_tokens=1,
        cost_usd=Decimal("0.25"), prices="reported",
    )  # fmt: skip

    @ledger.step
    def ask() -> int:
        report_usage(
            model="m", provider="p", calls=3, input_tokens=10, output_tokens=0, cache_read_tokens=4,
            cache_write_tokens=1, cost_usd=0.25,
        )  # fmt: skip
        for cost in ("0.5", Decimal("0.5"), 1):
            report_usage(model="n", cost_usd=cost)
        return 1

    ledger.execute()
    assert used(ledger)[0][2] == (
        everything,
        Usage(model="n", calls=3, cost_usd=Decimal("2.0"), prices="reported"),
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"input_tokens": -1}, {"output_tokens": 1.0}, {"cache_read_tokens": "7"}, {"cache_write_tokens": True},
        {"input_tokens": 10**12 + 1}, {"input_tokens": 10**5000}, {"calls": 0}, {"calls": None}, {"cost_usd": -0.1},
        {"cost_usd": float("nan")}, {"cost_usd": "much"}, {"cost_usd": True}, {"cost_usd": 10**5000}, {"model": 3},
        {"cost_usd": "1e13"}, {"model": "x" * 201}, {"model": "\ud800"}, {"provider": None},
    ],
    ids=lambda bad: next(iter(bad)),
)  # fmt: skip
def test_numbers_that_cannot_be_meant_are_misuse_and_nothing_is_noted(new_ledger: New, bad: dict[str, Any]) -> None:
    ledger = new_ledger()
    caught: list[Misuse] = []

    @ledger.step
    def ask() -> int:
        try:
            report_usage(**{"model": "m", **bad})
        except Misuse as error:
            caught.append(error)
        return 1

    ledger.execute()
    assert [error.code for error in caught] == ["bad_usage"]
    assert next(iter(bad)) in caught[0].message
    assert used(ledger) == [("RESULT", "ask", ())]


def test_a_response_and_numbers_together_are_misuse(new_ledger: New) -> None:
    ledger = new_ledger()
    ledger.step(name="ask")(lambda: report_usage(ANSWER, input_tokens=1))
    with pytest.raises(Misuse, match="not both"):
        ledger.execute()


@pytest.mark.parametrize("broken", ["read_usage", "price", "usage_bytes"])
def test_paid_work_never_fails_for_its_accounting(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken accounting")

    monkeypatch.setattr(usage_module, broken, fail)
    ledger = new_ledger()
    ledger.step(name="ask")(lambda: ANSWER)
    with caplog.at_level(logging.WARNING):
        assert ledger.execute() == ANSWER
    assert "what step 'ask' used cannot be kept: RuntimeError: broken accounting" in caplog.text
    assert used(ledger) == [("RESULT", "ask", ())]


def test_each_call_is_priced_by_itself_at_its_own_time(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int | None, int]] = []

    def price(line: Usage, at_ms: int) -> Usage:
        asked.append((line.input_tokens, at_ms))
        return line

    monkeypatch.setattr(usage_module, "price", price)
    ledger = new_ledger()

    @ledger.step
    def ask() -> int:
        report_usage(model="m", input_tokens=1)
        report_usage(model="m", input_tokens=2)
        return 1

    ledger.execute()
    record = records_of(ledger, RecordKind.RESULT)[0]
    assert asked == [(1, record.started_at_ms), (2, record.started_at_ms)]
    assert parse_usage(record.usage) == (Usage(model="m", calls=2, input_tokens=3),)


def test_a_cost_from_the_price_table_is_stored_with_its_name(new_ledger: New, db: Any) -> None:
    ledger = new_ledger()
    ledger.step(name="ask")(lambda: {**ANSWER, "model": "gpt-4o-mini"})
    ledger.execute()
    ((line,),) = (lines for _, _, lines in used(ledger))
    assert line.cost_usd == Decimal("0.00000225")
    assert line.prices.startswith("genai-prices ")
    ledger.close()
    check_ledger(db)
