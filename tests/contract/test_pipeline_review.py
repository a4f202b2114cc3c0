"""Corners that a reviewer found: takeovers, aborts beside siblings, stopped runs, changed programs."""

from __future__ import annotations

import asyncio
import contextvars
import pathlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent_run_ledger import (
    Diverged,
    From,
    Misuse,
    RunBusy,
    RunLedger,
    RunQuarantined,
    RunState,
    Step,
    Unavailable,
    Uncertain,
    Unstorable,
)
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.operate import decide

New = Callable[..., RunLedger]


def operate(ledger: RunLedger, event: RunEvent) -> None:
    decide(ledger._opened.context(), "r1", event, reason="because", actor="op")


class Held:
    """A run whose step waits in a thread until it is told to go on."""

    def __init__(self, ledger: RunLedger, **bind: Any) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.outcome: list[Any] = []
        ledger.add(Step(self._body, name="wait"))
        self._run = ledger.bind("r1", **bind)
        self._thread = threading.Thread(target=self._execute)
        self._thread.start()
        assert self.entered.wait(30)

    def _body(self) -> str:
        self.entered.set()
        self.go.wait(30)
        return "done"

    def _execute(self) -> None:
        try:
            self.outcome.append(self._run.execute())
        except Exception as error:
            self.outcome.append(error)

    def finish(self) -> Any:
        self.go.set()
        self._thread.join(30)
        return self.outcome[0]


def test_a_recorded_takeover_lets_a_plain_execute_in_beside_a_hung_attempt(new_ledger: New) -> None:
    hung = Held(new_ledger())
    other = new_ledger()
    other.add(Step(lambda: "new", name="wait"))
    with pytest.raises(RunBusy):
        other.execute()
    operate(other, RunEvent.TAKEOVER)
    assert other.execute() == "new"
    assert hung.finish().code == "attempt_superseded"


def test_an_attempt_that_took_over_holds_the_lock_once_the_old_one_is_gone(new_ledger: New) -> None:
    old = Held(new_ledger())
    ledger = new_ledger()
    first_done, go = threading.Event(), threading.Event()

    def second(first: str) -> str:
        first_done.set()
        go.wait(30)
        return first

    ledger.add(Step(lambda: "x", name="before"))
    ledger.add(Step(lambda before: old.finish() and "first", name="first", depends_on=["before"]))
    ledger.add(Step(second, name="second", depends_on=["first"]))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(ledger.bind("r1", takeover=True).execute()))
    thread.start()
    assert first_done.wait(30)
    third = new_ledger()
    third.add(Step(lambda: pytest.fail("must not run beside a live attempt"), name="wait"))
    with pytest.raises(RunBusy):
        third.execute()
    go.set()
    thread.join(30)
    assert results == ["first"]


@pytest.mark.parametrize("shape", ["sync", "async"])
def test_a_sibling_that_ended_with_an_abort_is_recorded(new_ledger: New, shape: str) -> None:
    ledger = new_ledger()

    def recorded() -> list[str]:
        reader = ledger._opened.context().store.reader()
        row = reader.find_run("r1")
        return [] if row is None else [key.name for key in reader.result_keys(row.row_id)]

    async def good() -> str:
        return "good"

    async def bad() -> str:
        raise SystemExit(3)

    def sync_good() -> str:
        return "good"

    def sync_bad() -> str:
        while recorded() != ["good"]:
            pass
        raise SystemExit(3)

    ledger.add(Step(good if shape == "async" else sync_good, name="good"))
    ledger.add(Step(bad if shape == "async" else sync_bad, name="bad"))
    with pytest.raises(SystemExit):
        ledger.execute()
    assert recorded() == ["good"]
    assert ledger.bind("r1").state is RunState.RUNNING


def test_no_thread_for_one_branch_fails_the_run_and_keeps_the_other(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "arl-step-b":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="a"))
    ledger.add(Step(lambda: 2, name="b"))
    with pytest.raises(RuntimeError, match="new thread"):
        ledger.execute()
    assert ledger.bind("r1").state is RunState.FAILED
    reader = ledger._opened.context().store.reader()
    row = reader.find_run("r1")
    assert row is not None
    assert [key.name for key in reader.result_keys(row.row_id)] == ["a"]


def test_a_run_released_before_its_siblings_end_is_not_failed_by_the_quarantine(new_ledger: New) -> None:
    ledger = new_ledger()
    first, second = threading.Event(), threading.Event()

    def one() -> int:
        operate(ledger, RunEvent.QUARANTINE)
        first.set()
        return 1

    def two() -> int:
        first.wait(30)
        second.wait(30)
        operate(ledger, RunEvent.RELEASE)
        return 2

    def watch() -> None:
        reader = ledger._opened.context().store.reader()
        while True:
            row = reader.find_run("r1")
            if row is not None and reader.result_keys(row.row_id):
                second.set()
                return

    ledger.add(Step(one, name="one"))
    ledger.add(Step(two, name="two"))
    watcher = threading.Thread(target=watch)
    watcher.start()
    with pytest.raises(RunQuarantined):
        ledger.execute()
    watcher.join(30)
    assert ledger.bind("r1").state is RunState.RUNNING
    assert ledger.execute() == {"one": 1, "two": 2}


def test_a_completed_run_returns_its_result_though_its_steps_can_no_longer_be_bound(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = new_ledger()
    ledger.add(Step(lambda n: n + 1, name="one"))
    assert ledger.execute(n=1) == 2
    changed = new_ledger()
    changed.add(Step(lambda n, more: n + more, name="one"))
    assert changed.execute(n=1) == 2
    assert "can no longer be bound" in caplog.text
    with pytest.raises(Misuse):
        changed.bind("r2").execute(n=1)


def test_a_divergence_behind_a_live_result_fails_the_run_and_starts_nothing(new_ledger: New) -> None:
    def life(value: int, stop: bool, **settings: Any) -> RunLedger:
        ledger = new_ledger()
        ledger.add(Step(lambda: value, name="source", environment={"value": value}))

        def use(source: int) -> int:
            if stop:
                return source
            pytest.fail("must not run")

        def end(use: int) -> int:
            raise ValueError("stop")

        ledger.add(Step(use, name="use", depends_on=["source"], **settings))
        ledger.add(Step(end, name="end", depends_on=["use"]))
        return ledger

    with pytest.raises(ValueError, match="stop"):
        life(1, True).execute()
    later = life(2, False, on_change="refuse")
    with pytest.raises(Diverged, match=r"'use'.*arguments\.source"):
        later.execute()
    assert later.bind("r1").state is RunState.FAILED


def test_an_environment_sees_the_callers_context_under_aexecute(new_ledger: New) -> None:
    model: contextvars.ContextVar[str] = contextvars.ContextVar("model")
    asked: list[str] = []

    def life(name: str) -> RunLedger:
        ledger = new_ledger()

        @ledger.step(environment=lambda: {"model": model.get()})
        async def ask() -> str:
            asked.append(name)
            return name

        @ledger.step(depends_on=["ask"])
        def end(ask: str) -> str:
            raise ValueError(ask)

        return ledger

    for name in ("a", "b"):
        model.set(name)
        with pytest.raises(ValueError, match=name):
            asyncio.run(life(name).aexecute())
    assert asked == ["a", "b"]


def test_an_unknown_outcome_is_not_called_unrecorded(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = new_ledger()

    def refuse(*_: Any, **__: Any) -> None:
        raise Uncertain("nobody knows", code="commit_unknown")

    def paid() -> int:
        monkeypatch.setattr(type(ledger._opened.context().store), "transact", refuse)
        return 42

    ledger.add(Step(paid, name="paid"))
    with pytest.raises(Uncertain) as caught:
        ledger.execute()
    assert caught.value.unrecorded == {"paid": 42}
    assert any("perhaps not recorded" in note for note in caught.value.__notes__)


PROGRAM = """
from __future__ import annotations
from typing import TYPE_CHECKING, Annotated
from agent_run_ledger import From
if TYPE_CHECKING:
    from nowhere import Ledger
def good(plus: Annotated[str, From("credit")], minus: str, ledger: Ledger = None): return plus + minus
def bad(plus: Annotated[Ledger, From("credit")]): return plus
"""


def test_one_annotation_that_cannot_be_evaluated_never_drops_another_ones_from(
    new_ledger: New, tmp_path: pathlib.Path
) -> None:
    space: dict[str, Any] = {}
    exec(compile(PROGRAM, "<program>", "exec"), space)
    ledger = new_ledger()
    ledger.add(Step(lambda: "debit", name="debit"))
    ledger.add(Step(lambda: "credit", name="credit"))
    ledger.add(Step(space["good"], name="good", depends_on=["debit", "credit"]))
    assert ledger.execute() == "creditdebit"
    with pytest.raises(Misuse, match=r"'plus'.*Ledger"):
        Step(space["bad"], name="bad")


@pytest.mark.parametrize("depends_on", [{"a", "b"}, "a", None, 5, {"a": 1}])
def test_dependencies_without_an_order_are_refused(depends_on: Any) -> None:
    with pytest.raises(Misuse, match="depends_on"):
        Step(lambda a, b: a, depends_on=depends_on)


@pytest.mark.parametrize("depends_on", [[None], [len], [5]])
def test_a_dependency_that_names_no_step_is_refused(depends_on: Any) -> None:
    with pytest.raises(Misuse, match="named by a string"):
        Step(lambda a: a, depends_on=depends_on)


def test_from_takes_a_step_and_refuses_anything_else() -> None:
    one = Step(lambda: 1, name="one")
    assert From(one) == From(one)
    with pytest.raises(Misuse):
        From(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"timeout_s": "1"},
        {"timeout_s": True},
        {"retry_base_s": "1"},
        {"retry_cap_s": float("inf")},
    ],
)
def test_waits_that_no_clock_can_hold_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Step(lambda: 1, name="one", **settings)


@pytest.mark.parametrize("wait_s", ["1", None, float("nan"), -1, True])
def test_a_wait_for_a_run_is_a_number_of_seconds(new_ledger: New, wait_s: Any) -> None:
    with pytest.raises(Misuse, match="wait_s"):
        new_ledger().bind("r1", wait_s=wait_s)


def test_paths_may_be_bytes_and_nothing_odd(tmp_path: pathlib.Path) -> None:
    assert RunLedger("r", bytes(tmp_path / "x.db")).db_path == str(tmp_path / "x.db")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="db_path"):
        RunLedger("r", 5)  # type: ignore[arg-type]


def test_many_results_and_a_list_of_them_are_two_calls(new_ledger: New) -> None:
    def life(many: bool) -> Any:
        ledger = new_ledger()
        ledger.add(Step(lambda: "B", name="b"))
        ledger.add(Step(lambda: "A", name="a"))
        ledger.add(Step(lambda: ["B", "A"], name="both"))

        def join_many(*xs: str) -> Any:
            return type(xs).__name__

        def join_one(xs: list[str]) -> Any:
            return type(xs).__name__

        if many:
            ledger.add(Step(join_many, name="join", depends_on=["b", "a"]))
        else:
            ledger.add(Step(join_one, name="join", depends_on=["both"]))
        seen: list[str] = []

        def end(join: str) -> None:
            seen.append(join)
            raise ValueError("stop")

        ledger.add(Step(end, name="end", depends_on=["join"]))
        with pytest.raises(ValueError, match="stop"):
            ledger.execute()
        return seen

    assert life(True) == ["tuple"]
    assert life(False) == ["list"]


def test_an_environment_that_raises_names_its_step_and_does_not_hide_a_completed_run(new_ledger: New) -> None:
    def down() -> dict[str, str]:
        raise OSError("config server down")

    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="one"))
    assert ledger.execute() == 1
    later = new_ledger()
    later.add(Step(lambda: 1, name="one", environment=down))
    assert later.execute() == 1
    with pytest.raises(Unavailable, match=r"'one'.*config server down") as caught:
        later.bind("r2").execute()
    assert caught.value.code == "environment_failed"
    assert later.bind("r2").state is None


def test_a_step_that_changed_since_it_was_begun_is_said(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    for prompt in ("x", "y"):
        ledger = new_ledger()

        def ask() -> str:
            if prompt == "x":
                raise KeyboardInterrupt
            return prompt

        ledger.add(Step(ask, name="ask", environment={"prompt": prompt}))
        if prompt == "x":
            with pytest.raises(KeyboardInterrupt):
                ledger.execute()
        else:
            assert ledger.execute() == "y"
    assert "step 'ask' of run 'r1' changed since it was begun and left" in caplog.text


def test_what_says_that_trying_later_is_safe_is_tried_again(new_ledger: New) -> None:
    ledger, tries = new_ledger(), list[int]()

    def busy() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable("busy")
        return 7

    ledger.add(Step(busy, name="busy", retries=2, retry_base_s=0))
    assert ledger.execute() == 7


def test_an_exception_says_whose_it_is(new_ledger: New) -> None:
    ledger = RunLedger(db_path=new_ledger().db_path)
    ledger.add(Step(lambda: 1 // 0, name="divide"))
    with pytest.raises(ZeroDivisionError) as caught:
        ledger.execute()
    ledger.close()
    assert caught.value.__notes__ == [
        f"raised by step 'divide' of run {ledger.run_id!r}; the next execute goes on from here"
    ]


def test_our_errors_travel_between_processes() -> None:
    error = Unstorable("no", path="$.a", type_name="x", hint="h")
    error.unrecorded["s"] = 1
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.type_name, again.code, again.unrecorded) == (
        str(error), "$.a", "x", "unstorable", {"s": 1},
    )  # fmt: skip


def test_a_result_that_became_a_float_is_another_argument(new_ledger: New) -> None:
    for value, expected in ((1, "1"), (1.0, "1.0")):
        ledger = new_ledger()
        seen: list[str] = []
        ledger.add(Step(lambda: value, name="source", environment={"value": value}))
        ledger.add(Step(lambda source: repr(source), name="text", depends_on=["source"]))

        def end(text: str) -> None:
            seen.append(text)
            raise ValueError("stop")

        ledger.add(Step(end, name="end", depends_on=["text"]))
        with pytest.raises(ValueError, match="stop"):
            ledger.execute()
        assert seen == [expected]
