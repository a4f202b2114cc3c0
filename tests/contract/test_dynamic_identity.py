"""Which call is which in a dynamic run: by name, ignored, keyed, changed in place, and diverged with a reason."""

from __future__ import annotations

import json
import logging
import pathlib
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_run_ledger import Diverged, Misuse, RunLedger
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger


class Boom(Exception):
    pass


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "runs.db"


@pytest.fixture
def ledger(path: pathlib.Path) -> RunLedger:
    return RunLedger(run_id="ticket-17", db_path=path)


def test_an_agent_with_the_time_in_its_prompt_is_told_so(ledger: RunLedger, path: pathlib.Path) -> None:
    asked: list[str] = []

    @ledger.step
    def ask(messages: list[dict[str, str]]) -> str:
        asked.append(messages[0]["content"])
        return "an answer"

    def agent(now: str) -> None:
        with ledger.run():
            ask([{"role": "system", "content": f"Today is {now}"}, {"role": "user", "content": "go"}])
            raise Boom

    with pytest.raises(Boom):
        agent("2020-01-31 03:12")
    today = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    with pytest.raises(Diverged) as caught:
        agent(today)
    assert "arguments.messages[0] differs, and arguments.messages[0].content holds what looks like a time" in str(
        caught.value
    )
    assert f"('Today is {today}'): use run.now()" in str(caught.value)
    assert asked == ["Today is 2020-01-31 03:12"]
    check_ledger(path)


def test_with_the_recorded_time_it_is_restored(ledger: RunLedger, path: pathlib.Path) -> None:
    asked: list[str] = []

    @ledger.step
    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "an answer"

    def agent(*, fails: bool) -> None:
        with ledger.run() as run:
            ask(f"Today is {run.now():%Y-%m-%d %H:%M:%S.%f}")
            if fails:
                raise Boom

    with pytest.raises(Boom):
        agent(fails=True)
    agent(fails=False)
    assert len(asked) == 1
    check_ledger(path)


def test_rerun_says_in_the_record_where_it_differed(ledger: RunLedger, path: pathlib.Path) -> None:
    @ledger.step(on_change="rerun")
    def ask(question: dict[str, Any]) -> int:
        return int(question["n"])

    def agent(n: int) -> None:
        with ledger.run():
            assert ask({"n": n, "m": 0}) == n
            raise Boom

    for n in (1, 2):
        with pytest.raises(Boom):
            agent(n)
    store = ledger._opened.context().store
    row = store.reader().find_run("ticket-17")
    assert row is not None
    inputs = [json.loads(one.record.inputs) for one in store.reader().records(row.row_id, kinds=[RecordKind.RESULT])]
    assert [one.get("because") for one in inputs] == [None, ["arguments.question.n"]]
    assert [list(one["c"]["question"]) for one in inputs] == [["n", "m"]] * 2
    check_ledger(path)


def test_calls_by_position_by_name_and_with_other_ignored_arguments_are_one(
    ledger: RunLedger, path: pathlib.Path
) -> None:
    bodies: list[Any] = []

    @ledger.step(ignore=["client"])
    def ask(question: str, *more: int, client: object = None, **options: int) -> str:
        bodies.append((question, more, options))
        return question

    def agent(client: object, *, fails: bool) -> None:
        with ledger.run():
            if fails:
                ask("a", client=client)
                ask("b", 1, 2, top=3, client=client)
                raise Boom
            ask(question="a", client=client)
            ask("b", 1, 2, client=client, top=3)

    with pytest.raises(Boom):
        agent(object(), fails=True)
    agent(object(), fails=False)
    assert bodies == [("a", (), {}), ("b", (1, 2), {"top": 3})]
    check_ledger(path)


def test_a_wrong_call_and_a_wrong_argument_name_the_step_and_run_nothing(ledger: RunLedger) -> None:
    bodies: list[Any] = []

    @ledger.step
    def ask(question: Any) -> None:
        bodies.append(question)

    with ledger.run():
        with pytest.raises(TypeError, match="step 'ask' has no parameter 'questoin'"):
            ask(questoin=1)  # type: ignore[call-arg]
        with pytest.raises(Misuse, match=r"step 'ask', argument 'question': \$: .* ignore=\['question'\]"):
            ask(ledger)
    assert bodies == []


def test_calls_with_keys_are_found_in_any_order(ledger: RunLedger, path: pathlib.Path) -> None:
    paid: list[str] = []

    @ledger.tool(safe=False, key="refund-{order_id}")
    def refund(order_id: str, cents: int = 100) -> str:
        paid.append(order_id)
        return f"paid {order_id}"

    def agent(order: list[str], *, fails: bool) -> list[str]:
        with ledger.run():
            done = [refund(one) for one in order]
            if fails:
                raise Boom
        return done

    with pytest.raises(Boom):
        agent(["a", "b", "a"], fails=True)
    assert agent(["b", "a", "b"], fails=False) == ["paid b", "paid a", "paid b"]
    assert paid == ["a", "b"]
    check_ledger(path)


def test_a_body_that_changes_its_argument_is_warned_of(ledger: RunLedger, caplog: pytest.LogCaptureFixture) -> None:
    @ledger.step
    def ask(messages: list[str], note: dict[str, int]) -> str:
        messages.append("reply")
        return "reply"

    @ledger.step
    def look(messages: list[str]) -> int:
        return len(messages)

    with caplog.at_level(logging.WARNING, "agent_run_ledger"), ledger.run():
        transcript = ["hello"]
        ask(transcript, {"n": 1})
        look(transcript)
    warned = [one.getMessage() for one in caplog.records if "changed in place" in one.getMessage()]
    assert len(warned) == 1
    assert "step 'ask' of run 'ticket-17': its argument was changed in place while it ran ('messages')" in warned[0]
