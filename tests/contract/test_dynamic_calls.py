"""Calls of a dynamic run: which call is which, what is restored, tried again, raised again or refused."""

from __future__ import annotations

import asyncio
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agent_run_ledger import Diverged, Misuse, Pending, RunLedger, Unavailable, Unstorable
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.agent_kit import Crash, New, alive, live
from tests.contract.run_kit import calls_of, store_exists


@pytest.fixture(autouse=True)
def _the_ledger_holds(db: pathlib.Path) -> Iterator[None]:
    yield
    if store_exists(db):
        check_ledger(db)


@pytest.fixture
def bodies() -> Counter[str]:
    return Counter()


class NoTicketsError(Exception):
    """An error of the program's own."""


def test_equal_calls_are_counted(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def roll(die: int) -> int:
            bodies["roll"] += 1
            return bodies["roll"]

        return [roll(6), roll(6), roll(8), roll(6)]

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == [1, 2, 3, 4]


def test_the_way_in_which_arguments_are_given_says_nothing(new_ledger: New, bodies: Counter[str]) -> None:
    calls = iter([lambda add: add(1, 2), lambda add: add(b=2, a=1)])

    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def add(a: int, b: int) -> int:
            bodies["add"] += 1
            return a + b

        return next(calls)(add)

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == 3
    assert bodies == {"add": 1}


@pytest.mark.parametrize("key", ["order-{order_id}", lambda order_id, note="": f"order-{order_id}"])
def test_calls_of_one_key_are_one_call(new_ledger: New, bodies: Counter[str], key: Any) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool(key=key)
        def ship(order_id: int, note: str = "") -> int:
            bodies["ship"] += 1
            return bodies["ship"]

        orders = [7, 8, 7] if bodies["lives"] % 2 else [8, 7, 7]
        bodies["lives"] += 1
        return sorted({(order, ship(order)) for order in orders})

    first = live(new_ledger, agent, crash=True)
    assert live(new_ledger, agent) == first == [(7, 2), (8, 1)]
    assert bodies["ship"] == 2


def test_a_key_with_other_arguments_is_another_call(new_ledger: New) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        put = ledger.step(lambda key, wall: wall, name="put", key="{key}")
        return [put("k1", 1), put("k1", 1), put("k1", 2)]

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == [1, 1, 2]


def test_ignored_arguments_say_nothing(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(ignore=("client",))
        def ask(client: object, prompt: str) -> str:
            bodies["ask"] += 1
            return prompt.upper()

        return ask(object(), "hi")

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == "HI"
    assert bodies == {"ask": 1}


@pytest.mark.parametrize("settings", [{}, {"key": "k"}, {"key": "k", "interchangeable": True}])
def test_equal_calls_at_once_are_misuse(new_ledger: New, settings: dict[str, Any]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(**settings)
        async def ask(prompt: str) -> str:
            await asyncio.sleep(0)
            return prompt

        return await asyncio.gather(ask("a"), ask("a"), ask("b"), return_exceptions=True)

    first, second, other = alive(new_ledger, agent)
    assert (first, other) == ("a", "b")
    assert isinstance(second, Misuse)
    assert second.code == "equal_calls"


def test_interchangeable_calls_may_be_open_at_once(new_ledger: New, bodies: Counter[str]) -> None:
    async def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(interchangeable=True)
        async def draw(deck: str) -> int:
            bodies["draw"] += 1
            card = bodies["draw"]
            await asyncio.sleep(0)
            return card

        return sorted(await asyncio.gather(draw("d"), draw("d"), draw("d")))

    assert alive(new_ledger, agent, crash=True) == alive(new_ledger, agent) == [1, 2, 3]
    assert bodies == {"draw": 3}


def test_two_steps_of_one_name_are_misuse(new_ledger: New) -> None:
    one, other = new_ledger("r1"), new_ledger("r2")
    with one.run():
        one.step(lambda: 1, name="same")()
        with pytest.raises(Misuse) as refused:
            other.step(lambda: 2, name="same")()
    assert refused.value.code == "duplicate_step"


def test_a_step_may_call_itself(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def down(n: int) -> int:
            bodies["down"] += 1
            return 0 if n == 0 else 1 + down(n - 1)

        return down(30)

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == 30
    assert bodies == {"down": 31}


def test_a_body_that_died_goes_on_from_what_it_called(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def inner(n: int) -> int:
            bodies["inner"] += 1
            return bodies["inner"]

        @ledger.step
        def outer() -> list[int]:
            bodies["outer"] += 1
            got = [inner(1), inner(1), inner(2)]
            if bodies["outer"] == 1:
                raise Crash
            return got

        return outer()

    assert live(new_ledger, agent) is None
    assert live(new_ledger, agent) == [1, 2, 3]
    assert bodies == {"inner": 3, "outer": 2}


def test_a_body_that_is_tried_again_gets_what_it_called_before(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        inner = ledger.step(lambda n: bodies.update([f"inner {n}"]) or bodies[f"inner {n}"], name="inner")

        @ledger.step(retries=2, retry_base_s=0)
        def outer() -> list[int]:
            bodies["outer"] += 1
            got = [inner(1), inner(1), *run.map(inner, [2, 3])]
            if bodies["outer"] < 3:
                raise ConnectionError("again")
            return got

        return outer(), outer()

    first = live(new_ledger, agent, crash=True)
    assert first == live(new_ledger, agent) == ([1, 2, 1, 1], [3, 4, 2, 2])
    assert bodies["outer"] == 4


def test_a_hundred_threads_call_at_once(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        square = ledger.step(lambda n: bodies.update([str(n)]) or n * n, name="square")
        return run.map(square, range(100), limit=100)

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == [n * n for n in range(100)]
    assert set(bodies.values()) == {1}


# -- errors ---------------------------------------------------------------------------------------------------


def test_an_error_that_was_handled_is_raised_again_with_its_arguments(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def book() -> None:
            bodies["book"] += 1
            raise NoTicketsError("row", 7)

        try:
            book()
        except Exception as error:
            said = (type(error), error.args)
        return said, ledger.step(lambda: bodies.update(["tell"]) or "told", name="tell")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == ((NoTicketsError, ("row", 7)), "told")
    assert bodies == {"book": 1, "tell": 1}


def test_an_error_that_ended_the_run_is_tried_again(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def flaky() -> int:
            bodies["flaky"] += 1
            if bodies["flaky"] == 1:
                raise ConnectionError("no route")
            return 5

        return flaky()

    with pytest.raises(ConnectionError):
        live(new_ledger, agent)
    assert live(new_ledger, agent) == 5


def test_an_unsafe_tools_error_is_raised_again(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool
        def pay(cents: int) -> None:
            bodies["pay"] += 1
            raise ValueError(cents)

        pay(7)

    for _ in range(3):
        with pytest.raises(ValueError, match="7"):
            live(new_ledger, agent)
    assert bodies == {"pay": 1}


@pytest.mark.parametrize("error", [Pending, Unavailable])
def test_an_unsafe_tool_that_did_nothing_is_tried_again(
    new_ledger: New, bodies: Counter[str], error: type[Exception]
) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool
        def pay() -> str:
            bodies["pay"] += 1
            if bodies["pay"] < 3:
                raise error("not yet")
            return "paid"

        return pay()

    for _ in range(2):
        with pytest.raises(error):
            live(new_ledger, agent)
    assert live(new_ledger, agent) == live(new_ledger, agent) == "paid"
    assert bodies == {"pay": 3}


def test_an_unsafe_tool_with_retries_is_misuse(new_ledger: New) -> None:
    with pytest.raises(Misuse, match="not safe and has retries"):
        new_ledger().tool(lambda: 1, name="pay", retries=1)
    new_ledger().tool(lambda: 1, name="look", retries=1, safe=True)


def test_a_result_without_a_stored_form_is_an_error_that_names_it(new_ledger: New, bodies: Counter[str]) -> None:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.tool
        def open_file() -> Any:
            bodies["open"] += 1
            return {"handle": object()}

        try:
            open_file()
        except Unstorable as error:
            return "open_file" in error.message, ledger.step(lambda: 1, name="next")()

    assert live(new_ledger, agent, crash=True) == live(new_ledger, agent) == (True, 1)
    assert bodies == {"open": 1}
    assert calls_of(new_ledger()) == [("RESCUED", "open_file"), ("RESULT", "next")]


def test_an_argument_without_a_digest_is_misuse_and_runs_nothing(new_ledger: New, bodies: Counter[str]) -> None:
    with new_ledger().run():
        ask = new_ledger().step(lambda prompt: bodies.update(["ask"]) or 1, name="ask")
        with pytest.raises(Misuse, match=r"'ask'.*'prompt'"):
            ask(object())
        assert ask("hi") == 1
    assert bodies == {"ask": 1}


# -- divergence -----------------------------------------------------------------------------------------------


def _asking(bodies: Counter[str], prompts: list[str], **settings: Any) -> Any:
    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step(**settings)
        def ask(prompt: str) -> str:
            bodies[prompt] += 1
            return prompt.upper()

        return [ask(prompt) for prompt in prompts]

    return agent


def test_a_call_that_differs_from_its_record_is_refused(new_ledger: New, bodies: Counter[str]) -> None:
    live(new_ledger, _asking(bodies, ["a", "b"]), crash=True)
    with pytest.raises(Diverged, match=r"'ask'.*arguments\.prompt"):
        live(new_ledger, _asking(bodies, ["a", "c"]))
    assert bodies == {"a": 1, "b": 1}
    assert live(new_ledger, _asking(bodies, ["a", "b", "c"])) == ["A", "B", "C"]


def test_who_swallows_a_divergence_gets_no_further(new_ledger: New, bodies: Counter[str]) -> None:
    live(new_ledger, _asking(bodies, ["a"]), crash=True)
    ledger = new_ledger()
    ask = ledger.step(lambda prompt: bodies.update([prompt]) or prompt, name="ask")
    other = ledger.step(lambda: bodies.update(["other"]), name="other")
    with pytest.raises(Diverged) as left, ledger.run() as run:  # noqa: PT012 - an agent that swallows it
        for call in (lambda: ask("b"), lambda: ask("a"), other, run.now):
            with pytest.raises(Diverged):
                call()
    assert left.value.code == "diverged"
    assert bodies == {"a": 1}


def test_what_a_body_makes_of_a_swallowed_divergence_is_no_result(new_ledger: New, bodies: Counter[str]) -> None:
    prompts = iter(["a", "b", "a"])

    def agent(ledger: RunLedger, run: Run) -> Any:
        ask = ledger.step(lambda prompt: prompt.upper(), name="ask")

        @ledger.tool(safe=True)
        def outer() -> str:
            bodies["outer"] += 1
            try:
                said = run.gather(lambda: ask(next(prompts)))[0]
            except Exception:
                said = "swallowed"
            if bodies["outer"] == 1:
                raise Crash
            return str(said)

        return outer()

    assert live(new_ledger, agent) is None
    with pytest.raises(Diverged):
        live(new_ledger, agent)
    assert live(new_ledger, agent) == "A"


def test_rerun_runs_what_differs(new_ledger: New, bodies: Counter[str]) -> None:
    live(new_ledger, _asking(bodies, ["a"]), crash=True)
    assert live(new_ledger, _asking(bodies, ["b"], on_change="rerun")) == ["B"]
    assert bodies == {"a": 1, "b": 1}


@pytest.mark.parametrize("setting", ["ledger", "bound"])
def test_the_runs_own_setting_decides_where_the_step_has_none(
    new_ledger: New, bodies: Counter[str], setting: str
) -> None:
    live(new_ledger, _asking(bodies, ["a"]), crash=True)
    ledger = new_ledger("r1", on_change="rerun" if setting == "ledger" else None)
    entering = ledger.run() if setting == "ledger" else ledger.bind("r1", on_change="rerun").run()
    with entering as run:
        assert _asking(bodies, ["b"])(ledger, run) == ["B"]
    assert bodies == {"a": 1, "b": 1}


def test_a_call_that_was_begun_before_does_not_diverge(new_ledger: New, bodies: Counter[str]) -> None:
    """What is asked for again was begun, whatever else is on record."""

    def agent(ledger: RunLedger, run: Run) -> Any:
        @ledger.step
        def work(n: int) -> int:
            bodies[str(n)] += 1
            if n == 1 and bodies["1"] == 1:
                raise Crash
            return n

        return [work(2), work(1)] if not bodies else [work(1), work(2)]

    assert live(new_ledger, agent) is None
    assert live(new_ledger, agent) == [1, 2]
    assert bodies == {"1": 2, "2": 1}


@pytest.mark.filterwarnings("ignore:coroutine 'ask' was never awaited")
def test_a_call_that_nobody_awaits_is_named_by_its_step(new_ledger: New) -> None:
    ledger = new_ledger()

    @ledger.step
    async def ask() -> int:
        return 1

    with ledger.run():
        call = ask()
        assert call.__qualname__ == "ask"
        call.close()
