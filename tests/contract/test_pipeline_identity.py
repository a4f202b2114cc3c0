"""Which record belongs to which step, whatever happens to the program between two lives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent_run_ledger import Diverged, Misuse, RunLedger, Step, Verdict

New = Callable[..., RunLedger]


class Stop(Exception):
    """Ends a life in the step that raises it."""


def build(ledger: RunLedger, order: str, ran: list[str], **settings: Mapping[str, Any]) -> None:
    """Register the steps named by `order`: a and b are sources, c takes both, d takes c and stops while `stop`."""

    def a() -> int:
        ran.append("a")
        return 1

    def b() -> int:
        ran.append("b")
        return 2

    def c(a: int, b: int) -> int:
        ran.append("c")
        return a + b

    def d(c: int) -> int:
        ran.append("d")
        return c * 10

    def e(c: int) -> int:
        ran.append("e")
        raise Stop

    depends = {"a": [], "b": [], "c": ["a", "b"], "d": ["c"], "e": ["c"]}
    functions: dict[str, Callable[..., Any]] = {"a": a, "b": b, "c": c, "d": d, "e": e}
    for name in order:
        ledger.add(Step(functions[name], name=name, depends_on=depends[name], **settings.get(name, {})))


def first_life(new_ledger: New, order: str = "abce", **settings: Mapping[str, Any]) -> None:
    ledger = new_ledger()
    build(ledger, order, [], **settings)
    with pytest.raises(Stop):
        ledger.execute()


@pytest.mark.parametrize("order", ["bacd", "abcd", "cbad"[::-1], "dcba"])
def test_registering_in_another_order_moves_no_record(new_ledger: New, order: str) -> None:
    first_life(new_ledger)
    ledger, ran = new_ledger(), list[str]()
    build(ledger, order, ran)
    assert ledger.execute() == 30
    assert ran == ["d"]


def test_a_new_step_runs_and_the_rest_is_restored(new_ledger: New) -> None:
    first_life(new_ledger)
    ledger, ran = new_ledger(), list[str]()
    build(ledger, "abcd", ran)

    @ledger.step(depends_on=["c", "d"])
    def extra(c: int, d: int) -> int:
        ran.append("extra")
        return c + d

    assert ledger.execute() == 33
    assert ran == ["d", "extra"]


def test_a_removed_step_takes_nobodys_record(new_ledger: New) -> None:
    first_life(new_ledger)
    ledger, ran = new_ledger(), list[str]()
    build(ledger, "ab", ran)
    assert ledger.execute() == {"a": 1, "b": 2}
    assert ran == []


def test_a_swapped_dependency_does_not_swap_results(new_ledger: New) -> None:
    """Two steps with equal code and inputs but different names keep their own records."""
    answers = iter([1, 2])
    for order in (["left", "right"], ["right", "left"]):
        ledger = new_ledger()
        for name in order:
            ledger.add(Step(lambda: next(answers), name=name))
        seen: list[tuple[int, int]] = []

        @ledger.step(depends_on=["left", "right"])
        def pair(x: int, y: int) -> None:
            seen.append((x, y))
            raise Stop

        with pytest.raises(Stop):
            ledger.execute()
        assert seen == [(1, 2)]


def test_ordering_only_dependencies_do_not_enter_the_fingerprint(new_ledger: New) -> None:
    ran: list[str] = []
    for value in (1, 2):
        ledger = new_ledger()

        @ledger.step(environment={"value": value})
        def setup() -> int:
            ran.append("setup")
            return value

        @ledger.step(depends_on=["setup"])
        def work() -> int:
            ran.append("work")
            return 5

        @ledger.step(depends_on=["work"])
        def end(work: int) -> int:
            raise Stop

        with pytest.raises(Stop):
            ledger.execute()
    assert ran == ["setup", "work", "setup"]


def test_a_changed_environment_reruns_the_step_and_what_takes_a_changed_result(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    def life(prompt: str, stop: bool) -> tuple[list[str], Any]:
        ran: list[str] = []
        ledger = new_ledger()

        @ledger.step
        def source() -> str:
            ran.append("source")
            return "text"

        @ledger.step(depends_on=["source"], environment={"model": "m", "prompt": prompt})
        def summary(source: str) -> dict[str, str]:
            ran.append("summary")
            return {"text": f"{prompt}: {source}", "lang": "en"}

        @ledger.step(depends_on=["summary"])
        def length(summary: dict[str, str]) -> int:
            ran.append("length")
            return len(summary["text"])

        @ledger.step(depends_on=["source"])
        def other(source: str) -> str:
            ran.append("other")
            return source.upper()

        @ledger.step(depends_on=["length", "other"])
        def end(length: int, other: str) -> str:
            ran.append("end")
            if stop:
                raise Stop
            return f"{length} {other}"

        return ran, (ledger,)

    ran, (ledger,) = life("short", True)
    with pytest.raises(Stop):
        ledger.execute()
    assert ran.count("summary") == 1
    caplog.set_level(logging.WARNING, "agent_run_ledger")
    ran, (ledger,) = life("long one", False)
    explained = {step.name: step for step in ledger.bind("r1").explain()}
    assert explained["source"].verdict is Verdict.RESTORED
    assert explained["summary"].because == ("environment.prompt",)
    assert explained["length"].verdict is Verdict.DEPENDS
    assert explained["length"].waits_for == ("summary",)
    assert ran == []
    assert ledger.execute() == "14 TEXT"
    assert ran == ["summary", "length", "end"]
    assert "step 'summary' of run 'r1' runs again: environment.prompt changed" in caplog.text
    assert "arguments.summary.text changed" in caplog.text


def test_a_rerun_with_an_equal_result_restores_what_depends_on_it(new_ledger: New) -> None:
    for prompt, expected in (("one", ["answer", "after", "end"]), ("two", ["answer", "end"])):
        ran: list[str] = []
        ledger = new_ledger()

        @ledger.step(environment={"prompt": prompt})
        def answer() -> int:
            ran.append("answer")
            return 42

        @ledger.step(depends_on=["answer"])
        def after(answer: int) -> int:
            ran.append("after")
            return answer + 1

        @ledger.step(depends_on=["after"])
        def end(after: int) -> int:
            ran.append("end")
            raise Stop

        with pytest.raises(Stop):
            ledger.execute()
        assert ran == expected


def test_going_back_to_an_earlier_prompt_finds_its_record_again(new_ledger: New) -> None:
    ran: list[str] = []
    for prompt in ("a", "b", "a"):
        ledger = new_ledger()

        @ledger.step(environment=lambda: {"prompt": prompt})
        def answer() -> str:
            ran.append(prompt)
            return prompt

        @ledger.step(depends_on=["answer"])
        def end(answer: str) -> None:
            raise Stop

        with pytest.raises(Stop):
            ledger.execute()
    assert ran == ["a", "b"]


def test_a_changed_version_runs_again_and_says_so(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    first_life(new_ledger)
    ledger, ran = new_ledger(), list[str]()
    build(ledger, "abcd", ran, a={"version": "2"})
    assert ledger.execute() == 30
    assert ran == ["a", "d"]
    assert "version changed" in caplog.text


def test_on_change_refuse_names_the_path_and_runs_nothing(new_ledger: New) -> None:
    first_life(new_ledger, a={"environment": {"prompt": "x"}})
    ledger, ran = new_ledger(on_change="refuse"), list[str]()
    build(ledger, "abcd", ran, a={"environment": {"prompt": "y"}})
    with pytest.raises(Diverged, match=r"environment\.prompt"):
        ledger.execute()
    assert ran == []
    assert ledger.bind("r1", on_change="rerun").execute() == 30


def test_a_steps_own_on_change_wins(new_ledger: New) -> None:
    first_life(new_ledger, a={"environment": {"prompt": "x"}})
    ledger, ran = new_ledger(), list[str]()
    build(ledger, "abcd", ran, a={"environment": {"prompt": "y"}, "on_change": "refuse"})
    with pytest.raises(Diverged):
        ledger.execute()
    assert ran == []


def test_changed_code_is_warned_of_and_the_record_is_used(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    def life(source: str) -> Any:
        space: dict[str, Any] = {}
        exec(compile(source, "<test>", "exec"), space)
        ledger = new_ledger()
        ledger.add(Step(space["work"], name="work"))

        @ledger.step(depends_on=["work"])
        def end(work: int) -> int:
            raise Stop

        with pytest.raises(Stop):
            ledger.execute()
        return caplog.text

    assert "code changed" not in life("def work():\n    return 1\n")
    assert "code changed" not in life("# a comment\n\n\ndef work():\n    'and a docstring'\n    return 1  # more\n")
    assert "code changed" in life("def work():\n    return 1 + len('')\n")


def test_a_completed_run_returns_its_result_and_says_what_changed(
    new_ledger: New, caplog: pytest.LogCaptureFixture
) -> None:
    for prompt in ("x", "y"):
        ledger = new_ledger()

        @ledger.step(environment={"prompt": prompt})
        def answer() -> str:
            return prompt

        assert ledger.execute() == "x"
    assert "environment.prompt" in caplog.text


def test_steps_are_bound_before_anything_runs(new_ledger: New) -> None:
    ran: list[str] = []
    ledger = new_ledger()

    @ledger.step
    def first() -> int:
        ran.append("first")
        return 1

    @ledger.step(depends_on=["frist"])
    def second(first: int) -> int:
        return first

    with pytest.raises(Misuse, match=r"'second'.*'frist'") as caught:
        ledger.execute()
    assert caught.value.code == "unknown_step"
    assert ran == []
    assert ledger.bind("r1").state is None


def test_two_ledgers_with_many_runs_share_nothing_but_the_store(new_ledger: New) -> None:
    ledger, ran = new_ledger("unused"), list[int]()

    @ledger.step
    def square(n: int) -> int:
        ran.append(n)
        return n * n

    assert [ledger.bind(f"run-{n}").execute(n=n) for n in (1, 2, 3)] == [1, 4, 9]
    assert [ledger.bind(f"run-{n}").execute(n=n) for n in (1, 2, 3)] == [1, 4, 9]
    assert ran == [1, 2, 3]


def test_a_changed_step_is_compared_with_its_latest_record(new_ledger: New) -> None:
    for prompt, model in (("a", "m"), ("b", "m")):
        ledger = new_ledger()
        ledger.add(Step(lambda: 1, name="answer", environment={"prompt": prompt, "model": model}))
        ledger.add(Step(lambda answer: 1 // 0, name="end", depends_on=["answer"]))
        with pytest.raises(ZeroDivisionError):
            ledger.execute()
    ledger = new_ledger()
    ledger.add(Step(lambda: 1, name="answer", environment={"prompt": "b", "model": "n"}))
    assert [step.because for step in ledger.bind("r1").explain()] == [("environment.model",)]


def test_explaining_writes_nothing_and_warns_of_nothing(new_ledger: New, caplog: pytest.LogCaptureFixture) -> None:
    first_life(new_ledger, a={"environment": {"prompt": "x"}})
    ledger = new_ledger()
    build(ledger, "bcd", [])
    ledger.add(Step(lambda: 2 - 1, name="a", environment={"prompt": "x"}))
    before = ledger._opened.context().store.reader().head()
    explained = {step.name: step for step in ledger.bind("r1").explain()}
    assert explained["a"].because == ("code",)
    assert explained["a"].verdict is Verdict.RESTORED
    assert ledger._opened.context().store.reader().head() == before
    assert caplog.text == ""


def test_a_path_with_a_key_that_is_no_text_is_kept_beside_the_record(new_ledger: New) -> None:
    for number in (1, 2):
        ledger = new_ledger()
        ledger.add(Step(lambda: {"\ud800": number}, name="source", environment={"number": number}))
        ledger.add(Step(lambda source: len(source), name="use", depends_on=["source"]))
        ledger.add(Step(lambda use: 1 // 0, name="end", depends_on=["use"]))
        with pytest.raises(ZeroDivisionError):
            ledger.execute()
    reader = ledger._opened.context().store.reader()
    last = reader.result_keys(1)[-1]
    assert last.name == "use"
    assert b"arguments.source[" in reader.record(last.record_id).record.inputs


def test_a_changed_step_runs_again_beside_one_that_must_not_change(new_ledger: New) -> None:
    first_life(new_ledger, a={"environment": {"prompt": "x"}})
    ledger, ran = new_ledger(), list[str]()
    build(ledger, "abcd", ran, a={"environment": {"prompt": "y"}}, b={"on_change": "refuse"})
    assert ledger.execute() == 30
    assert ran == ["a", "d"]
