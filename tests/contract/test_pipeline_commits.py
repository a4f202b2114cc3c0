"""What one commit of a pipeline holds, when it is written, and what is not written to a run that was stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from agent_run_ledger import Diverged, RunCancelled, RunLedger, RunQuarantined, RunState, Step, codecs
from agent_run_ledger.errors import Superseded
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from tests.contract.run_kit import (
    calls_of,
    leaves_of,
    marks_of,
    operate,
    records_of,
    report_of,
    row_of,
    stored_of,
    until,
    watch_sync,
)

New = Callable[..., RunLedger]
START = ("step", "none", "started")
RECORDED = ("step", "started", "recorded")


def two_steps(ledger: RunLedger, first: Callable[[], Any], second: Callable[[int], Any]) -> None:
    ledger.add(Step(first, name="first"))
    ledger.add(Step(second, name="second", depends_on=["first"]))


def test_a_start_is_committed_before_its_body_and_goes_with_the_result_before_it(new_ledger: New) -> None:
    ledger = new_ledger()
    seen: list[Any] = []

    def look(after: int = 0) -> int:
        seen.append((len(leaves_of(ledger)), [mark.name for mark in marks_of(ledger)]))
        return after + 1

    two_steps(ledger, look, lambda first: look(first))
    assert ledger.execute() == 2
    begun, started, fused, ended = leaves_of(ledger)[-4:]
    assert begun == [("run", "none", "running")]
    assert started == [START]
    assert fused == [RECORDED, START]
    assert ended == [RECORDED, ("run", "running", "completed")]
    whole = len(leaves_of(ledger))
    assert seen == [(whole - 2, ["first"]), (whole - 1, ["second"])]
    assert marks_of(ledger) == []


def test_only_a_commit_of_nothing_but_starts_is_left_unsynced(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = new_ledger()
    two_steps(ledger, lambda: 1, lambda first: first)
    synced = watch_sync(ledger, monkeypatch)
    ledger.execute()
    assert synced == [True, False, True, True]  # START, start of first, result of first with start of second, the end


def test_a_restored_runs_end_is_synced(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_ledger()
    two_steps(first, lambda: 1, lambda first: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        first.execute()
    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="first"))
    synced = watch_sync(ledger, monkeypatch)
    assert ledger.execute() == 1
    assert synced == [True, True]


def test_a_run_with_a_failure_a_death_and_an_end_has_a_lawful_log(new_ledger: New) -> None:
    def life(second: Callable[[int], Any]) -> RunLedger:
        ledger = new_ledger()
        two_steps(ledger, lambda: 1, second)
        return ledger

    def die(first: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError):
        life(lambda first: first // 0).execute()
    with pytest.raises(KeyboardInterrupt):
        life(die).execute()
    assert report_of(life(die)).problems == ()
    ledger = life(lambda first: first + 1)
    assert ledger.execute() == 2
    assert report_of(ledger).problems == ()
    assert calls_of(ledger) == [
        ("RESULT", "first"), ("ERROR", "second"), ("ABANDONED", "second"), ("RESULT", "second"),
    ]  # fmt: skip


def test_every_record_has_a_salt_of_its_own(new_ledger: New) -> None:
    ledger = new_ledger()
    two_steps(ledger, lambda: 1, lambda first: 1)
    ledger.execute()
    salts = [record.salt for record in records_of(ledger)]
    assert len(salts) == 4
    assert len({bytes(salt) for salt in salts}) == 4
    assert {len(salt) for salt in salts} == {32}


def test_the_end_names_the_result_and_every_record_it_rests_on(new_ledger: New) -> None:
    for version in ("1", "2"):
        ledger = new_ledger()
        ledger.add(Step(lambda: int(version), name="first", version=version))
        ledger.add(Step(lambda first: first // (first - 1), name="second", depends_on=["first"]))
        if version == "1":
            with pytest.raises(ZeroDivisionError):
                ledger.execute()
    assert ledger.execute() == 2
    results = stored_of(ledger, RecordKind.RESULT)
    assert [stored.record.name for stored in results] == ["first", "first", "second"]
    end = records_of(ledger, RecordKind.END)[-1]
    content: Any = codecs.unpack(end.encoding, end.payload)
    assert content["used"] == [stored.record_id for stored in results[1:]]
    assert content["results"] == {"second": results[2].record_id}


def test_a_failed_run_says_which_step_and_why(new_ledger: New) -> None:
    ledger = new_ledger()
    two_steps(ledger, lambda: 1, lambda first: first // 0)
    with pytest.raises(ZeroDivisionError):
        ledger.execute()
    assert row_of(ledger).reason == "step 'second': ZeroDivisionError"


def test_why_a_step_ran_again_is_kept_beside_its_record(new_ledger: New) -> None:
    for prompt in ("x", "y"):
        ledger = new_ledger()
        ledger.add(Step(lambda: 1, name="first", environment={"prompt": prompt}))
        ledger.add(Step(lambda first: first // 0, name="second", depends_on=["first"]))
        with pytest.raises(ZeroDivisionError):
            ledger.execute()
    kept = [orjson.loads(record.inputs).get("because") for record in records_of(ledger, RecordKind.RESULT)]
    assert kept == [None, ["environment.prompt"]]


# -- runs that were stopped or taken over ------------------------------------------------------------------------------


def test_a_superseded_attempt_writes_nothing_in_the_middle_of_its_run(new_ledger: New) -> None:
    ledger, ran = new_ledger(), list[str]()

    def overtaken() -> int:
        operate(ledger, RunEvent.TAKEOVER)
        return 1

    two_steps(ledger, overtaken, lambda first: ran.append("second"))
    with pytest.raises(Superseded):
        ledger.execute()
    assert ran == []
    assert calls_of(ledger) == []
    assert leaves_of(ledger)[-1] == [("run", "running", "running")]


@pytest.mark.parametrize("event", [RunEvent.CANCEL, RunEvent.QUARANTINE])
def test_a_stopped_run_keeps_the_result_and_starts_nothing(new_ledger: New, event: RunEvent) -> None:
    ledger, ran = new_ledger(), list[str]()

    def stop() -> int:
        operate(ledger, event)
        return 1

    two_steps(ledger, stop, lambda first: ran.append("second"))
    with pytest.raises((RunCancelled, RunQuarantined), match="while it ran"):
        ledger.execute()
    assert ran == []
    assert leaves_of(ledger)[-1] == [RECORDED]
    assert marks_of(ledger) == []
    assert records_of(ledger, RecordKind.END) == []
    assert report_of(ledger).problems == ()


def test_a_stopped_run_starts_nothing_while_a_sibling_still_runs(new_ledger: New) -> None:
    ledger, ran = new_ledger(max_parallel=2), list[str]()

    def stop() -> int:
        operate(ledger, RunEvent.CANCEL)
        return 1

    def after(stop: int) -> int:
        ran.append("after")
        return 1

    def sibling() -> int:
        until(lambda: ("RESULT", "stop") in calls_of(ledger))
        return 2

    ledger.add(Step(stop))
    ledger.add(Step(sibling))
    ledger.add(Step(after, depends_on=["stop"]))
    with pytest.raises(RunCancelled):
        ledger.execute()
    assert ran == []
    assert calls_of(ledger) == [("RESULT", "stop"), ("RESULT", "sibling")]


def test_a_run_that_is_cancelled_and_whose_step_fails_says_that_it_was_cancelled(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def stop() -> int:
        operate(ledger, RunEvent.CANCEL)
        raise ValueError("too late")

    with pytest.raises(RunCancelled):
        ledger.execute()
    assert calls_of(ledger) == [("ERROR", "stop")]
    assert row_of(ledger).state is RunState.CANCELLED


def test_a_release_while_a_body_runs_lets_the_attempt_go_on(new_ledger: New) -> None:
    ledger = new_ledger()

    def stop() -> int:
        operate(ledger, RunEvent.QUARANTINE)
        operate(ledger, RunEvent.RELEASE)
        return 1

    two_steps(ledger, stop, lambda first: first + 1)
    assert ledger.execute() == 2


def test_a_refused_change_starts_nothing_not_even_a_step_beside_it(new_ledger: New) -> None:
    def build(prompt: str, beside: bool) -> RunLedger:
        ledger = new_ledger(on_change="refuse")
        if beside:
            ledger.add(Step(lambda: ran.append("beside"), name="beside"))
        ledger.add(Step(lambda: prompt, name="answer", environment={"prompt": prompt}))
        ledger.add(Step(lambda answer: 1 // 0, name="end", depends_on=["answer"]))
        return ledger

    ran: list[str] = []
    with pytest.raises(ZeroDivisionError):
        build("x", False).execute()
    ledger = build("y", True)
    before = len(leaves_of(ledger))
    with pytest.raises(Diverged):
        ledger.execute()
    assert ran == []
    assert leaves_of(ledger)[before:] == []


# -- failures beside each other ----------------------------------------------------------------------------------------


def both_end_at_once(ledger: RunLedger, *bodies: Callable[[], Any], **settings: Any) -> None:
    """Add async steps a, b, … that end in one turn of the loop, so that their outcomes come in one batch."""
    for name, body in zip("abcdef", bodies, strict=False):

        async def step(body: Callable[[], Any] = body) -> Any:
            return body()

        ledger.add(Step(step, name=name, **settings.get(name, {})))


def fail() -> int:
    raise ValueError("bad")


def test_what_waited_for_a_good_step_does_not_start_beside_a_failure(new_ledger: New) -> None:
    ledger, ran = new_ledger(), list[str]()
    both_end_at_once(ledger, lambda: 1, fail)
    ledger.add(Step(lambda a: ran.append("after"), name="after", depends_on=["a"]))
    with pytest.raises(ValueError, match="bad"):
        asyncio.run(ledger.aexecute())
    assert ran == []
    assert calls_of(ledger) == [("RESULT", "a"), ("ERROR", "b")]


def test_a_step_that_waits_to_be_tried_again_is_not_tried_after_a_failure(new_ledger: New) -> None:
    ledger, tries = new_ledger(), list[str]()
    failed = asyncio.Event()

    def flaky() -> int:
        tries.append("a")
        raise ConnectionError

    both_end_at_once(ledger, flaky, lambda: (failed.set(), fail()), a={"retries": 5, "retry_base_s": 0})

    @ledger.step
    async def runs_on() -> int:
        await failed.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        return 3

    with pytest.raises(ValueError, match="bad"):
        asyncio.run(ledger.aexecute())
    assert tries == ["a"]
    assert ("RESULT", "runs_on") in calls_of(ledger)
    assert leaves_of(ledger)[-1] == [RECORDED, ("run", "running", "failed")]


def test_a_step_that_fails_after_another_is_not_tried_again(new_ledger: New) -> None:
    ledger, tries = new_ledger(), list[str]()

    def flaky() -> int:
        tries.append("b")
        raise ConnectionError

    both_end_at_once(ledger, fail, flaky, lambda: 1, b={"retries": 5, "retry_base_s": 0})
    with pytest.raises(ValueError, match="bad") as caught:
        asyncio.run(ledger.aexecute())
    assert tries == ["b"]
    assert caught.value.__notes__[1:] == ["step 'b' failed too: ConnectionError()"]


def test_after_a_failure_the_steps_that_had_no_lane_yet_do_not_start(new_ledger: New) -> None:
    ledger, ran = new_ledger(max_parallel=1), list[str]()
    ledger.add(Step(fail, name="bad"))
    ledger.add(Step(lambda: ran.append("other"), name="other"))
    with pytest.raises(ValueError, match="bad"):
        ledger.execute()
    assert ran == []


def test_an_exception_that_cannot_be_printed_is_recorded_beside_a_failure(new_ledger: New) -> None:
    class Unprintable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    def fail_too() -> int:
        raise Unprintable

    ledger = new_ledger()
    both_end_at_once(ledger, fail, fail_too)
    with pytest.raises(ValueError, match="bad") as caught:
        asyncio.run(ledger.aexecute())
    assert caught.value.__notes__[1:] == ["step 'b' failed too: Unprintable"]
    assert calls_of(ledger) == [("ERROR", "a"), ("ERROR", "b")]
    assert row_of(ledger).state is RunState.FAILED


def test_an_exception_that_has_no_stored_form_is_kept_readable(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    def bad() -> int:
        raise ValueError("half an answer", threading.Lock())

    with pytest.raises(ValueError, match="half an answer"):
        ledger.execute()
    (error,) = records_of(ledger, RecordKind.ERROR)
    assert b"half an answer" in error.payload


# -- results between steps ---------------------------------------------------------------------------------------------


def test_a_launch_that_is_refused_takes_the_others_of_its_commit_back(new_ledger: New) -> None:
    ledger, ran = new_ledger(), list[str]()
    ledger.add(Step(lambda: {"n": float("nan")}, name="measure"))
    ledger.add(Step(lambda: ran.append("beside"), name="beside", depends_on=["measure"]))
    ledger.add(Step(lambda measure: ran.append("use"), name="use", depends_on=["measure"]))
    with pytest.raises(Exception, match=r"'use'.*'measure'"):
        ledger.execute()
    assert ran == []
    assert leaves_of(ledger)[-1] == [RECORDED, ("run", "running", "failed")]
    assert marks_of(ledger) == []


def test_three_consumers_of_one_result_get_three_copies(new_ledger: New) -> None:
    ledger = new_ledger(max_parallel=8)

    def use(source: list[int], n: int) -> list[int]:
        source.append(n)
        return source

    ledger.add(Step(lambda: [0], name="source"))
    for n in (1, 2, 3):
        ledger.add(Step(lambda source, n=n: use(source, n), name=f"use{n}", depends_on=["source"]))
    assert ledger.execute() == {"use1": [0, 1], "use2": [0, 2], "use3": [0, 3]}


def test_a_second_try_gets_its_arguments_as_the_first_one_did(new_ledger: New) -> None:
    ledger, seen = new_ledger(), list[list[int]]()
    ledger.add(Step(lambda: [0], name="source"))

    @ledger.step(depends_on=["source"], retries=1, retry_base_s=0)
    def use(source: list[int], given: list[int]) -> int:
        seen.append([*source, *given])
        source.append(9)
        given.append(9)
        if len(seen) == 1:
            raise ConnectionError
        return 1

    ledger.execute(given=[7])
    assert seen == [[0, 7], [0, 7]]


def test_nan_in_a_restored_result_is_refused_as_an_argument(new_ledger: New) -> None:
    def build(end: Callable[[Any], Any]) -> RunLedger:
        ledger = new_ledger()
        ledger.add(Step(lambda: [float("inf")], name="measure"))
        ledger.add(Step(end, name="end", depends_on=["measure"]))
        return ledger

    ledger = new_ledger()
    ledger.add(Step(lambda: [float("inf")], name="measure"))
    ledger.add(Step(lambda: 1 // 0, name="end", depends_on=["measure"]))
    with pytest.raises(ZeroDivisionError):
        ledger.execute()
    with pytest.raises(Exception, match=r"'end'.*'measure'.*\[0\]"):
        build(lambda measure: pytest.fail("must not run")).execute()
