"""Budgets: what can be meant, the arithmetic of the counters, and that no interleaving gets over a limit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger import Budget, Misuse, Reserve, Step
from agent_run_ledger.kernel.budget import parse_budget, parse_reserve, reserve_bytes
from agent_run_ledger.kernel.counters import NOTHING_USED, Counters, Used, parse_counters, usd_words, used_of

NOW = 1_700_000_000_000
COSTS = st.decimals(min_value=0, max_value=1000, places=4)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"allow_unknown_cost": True},
        {"max_calls": 0},
        {"max_calls": True},
        {"max_calls": 1.0},
        {"max_calls": 10**12 + 1},
        {"max_tokens": -1},
        {"calls_per_minute": 0},
        {"max_cost_usd": 0},
        {"max_cost_usd": -1},
        {"max_cost_usd": "NaN"},
        {"max_cost_usd": "a lot"},
        {"max_cost_usd": True},
        {"max_wall_s": 0},
        {"max_wall_s": float("nan")},
        {"max_wall_s": True},
        {"max_wall_s": 1_000_000_001},
        {"max_calls": 1, "allow_unknown_cost": 1},
    ],
)
def test_a_budget_that_cannot_be_meant_is_misuse(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as raised:
        Budget(**settings)
    assert raised.value.code == "bad_budget"


@pytest.mark.parametrize("settings", [{}, {"tokens": -1}, {"tokens": 1.5}, {"cost_usd": -1}, {"cost_usd": "x"}])
def test_a_reserve_that_cannot_be_meant_is_misuse(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as raised:
        Reserve(**settings)
    assert raised.value.code == "bad_budget"


@pytest.mark.parametrize("settings", [{"budget": 10}, {"reserves": 10}, {"budget": Reserve(tokens=1)}])
def test_a_step_takes_nothing_else_for_a_budget(settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as raised:
        Step(lambda: None, name="ask", **settings)
    assert raised.value.code == "bad_budget"


def test_a_step_cannot_have_a_name_of_the_runs_own_values() -> None:
    with pytest.raises(Misuse, match="own values"):
        Step(lambda: None, name="run.now")


def test_dollars_are_kept_exactly_whatever_they_were_given_as() -> None:
    budgets = [Budget(max_cost_usd=given) for given in (0.1, "0.1", Decimal("0.1"))]
    assert {budget.cost_limit for budget in budgets} == {Decimal("0.1")}
    assert [budget.as_stored() for budget in budgets] == [{"max_cost_usd": "0.1"}] * 3
    assert Reserve(cost_usd=0.3).cost == Decimal("0.3")


@given(
    calls=st.none() | st.integers(1, 10**12),
    tokens=st.integers(1, 10**12),
    cost=st.none() | COSTS.filter(bool),
    wall=st.none() | st.floats(0.001, 1e9),
    allow=st.booleans(),
)
def test_limits_and_reserves_come_back_from_their_stored_forms(
    calls: int | None, tokens: int, cost: Decimal | None, wall: float | None, allow: bool
) -> None:
    budget = Budget(max_calls=calls, max_tokens=tokens, max_cost_usd=cost, max_wall_s=wall, allow_unknown_cost=allow)
    assert parse_budget(budget.as_stored()) == budget
    reserve = Reserve(tokens=tokens, cost_usd=cost)
    assert parse_reserve(reserve_bytes(reserve)) == reserve
    assert parse_reserve(reserve_bytes(None)) is None


def test_counters_come_back_from_their_one_stored_form() -> None:
    counters = Counters(limits=Budget(max_tokens=500, calls_per_minute=5), seen_ms=NOW)
    assert parse_counters(Counters().stored()) == Counters()
    assert Counters().stored() == b"{}"
    for step in range(3):
        counters.begin(Reserve(tokens=10, cost_usd="0.01"), NOW + 1000 * step)
    counters.settle(Reserve(tokens=10, cost_usd="0.01"), Used(tokens=7, cost_usd=Decimal("0.003"), unknown=True))
    counters.doubt(Reserve(tokens=10, cost_usd="0.01"))
    counters.pass_time(NOW + 3000)
    assert parse_counters(counters.stored()) == counters
    assert parse_counters(counters.stored()).stored() == counters.stored()
    assert counters.stored() == (
        b'{"calls":3,"calls_in_flight":1,"calls_uncertain":1,"cost_unknown":1,"cost_usd":"0.003",'
        b'"limits":{"calls_per_minute":5,"max_tokens":500},"reserved_cost_usd":"0.01","reserved_tokens":10,'
        b'"seen_ms":1700000003000,"tokens":7,"uncertain_cost_usd":"0.01","uncertain_tokens":10,"wall_ms":3000,'
        b'"window":[[1700000000,1],[1700000001,1],[1700000002,1]]}'
    )


@pytest.mark.parametrize(
    "stored",
    [
        b"[]",
        b'{"calls":-1}',
        b'{"calls":true}',
        b'{"calls":"1"}',
        b'{"cost_usd":1}',
        b'{"cost_usd":"-1"}',
        b'{"cost_usd":"NaN"}',
        b'{"cost_usd":"x"}',
        b'{"window":1}',
        b'{"window":[[1]]}',
        b'{"window":[[1,-1]]}',
        b'{"limits":{}}',
        b'{"limits":{"max_calls":0}}',
        b'{"limits":{"max_hours":1}}',
        b'{"other":1}',
        b"{",
    ],
)
def test_what_no_counters_were_stored_as_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_counters(stored)


@pytest.mark.parametrize("stored", [b"[1]", b'{"tokens":-1}', b'{"cost_usd":"x"}', b"{}"])
def test_what_no_reserve_was_stored_as_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_reserve(stored)


def test_tokens_are_input_and_output_and_one_line_without_a_cost_makes_it_unknown() -> None:
    priced = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 90, "cost_usd": "0.5"}
    assert used_of([priced, priced]) == Used(tokens=240, cost_usd=Decimal("1.0"))
    assert used_of([priced, {"input_tokens": 1}]) == Used(tokens=121, cost_usd=Decimal("0.5"), unknown=True)
    assert used_of([]) == NOTHING_USED


# -- one call more? -------------------------------------------------------------------------------------------------


def counters(**settings: Any) -> Counters:
    limits = Budget(**{name: value for name, value in settings.items() if name in Budget.__dataclass_fields__})
    rest = {name: value for name, value in settings.items() if name not in Budget.__dataclass_fields__}
    return Counters(limits=limits, **rest)


@pytest.mark.parametrize(
    ("held", "mine", "words"),
    [
        (counters(max_calls=10, calls=9), None, None),
        (counters(max_calls=10, calls=10), None, "10 of 10 calls"),
        (counters(max_calls=10, calls=10, calls_uncertain=3), None, "10 of 10 calls, 3 of them uncertain"),
        (counters(max_tokens=100, tokens=99), None, None),
        (counters(max_tokens=100, tokens=100), None, "100 of 100 tokens (100 spent)"),
        (counters(max_tokens=100, tokens=40), Reserve(tokens=60), None),
        (
            counters(max_tokens=100, tokens=40),
            Reserve(tokens=61),
            "40 of 100 tokens (40 spent, and the next call may use 61)",
        ),
        (
            counters(max_tokens=100, tokens=40, uncertain_tokens=20, reserved_tokens=40),
            None,
            "100 of 100 tokens (40 spent, 20 uncertain, 40 reserved)",
        ),
        (counters(max_tokens=100, tokens=100), Reserve(tokens=0), None),
        (
            counters(max_tokens=100, tokens=101),
            Reserve(tokens=0),
            "101 of 100 tokens (101 spent, and the next call may use 0)",
        ),
        (counters(max_tokens=100, tokens=100), Reserve(cost_usd=1), "100 of 100 tokens (100 spent)"),
        (counters(max_cost_usd=1, cost_usd=Decimal("0.9")), Reserve(cost_usd="0.1"), None),
        (
            counters(max_cost_usd=1, cost_usd=Decimal("0.9")),
            Reserve(cost_usd="0.1001"),
            "$0.90 of $1.00 ($0.90 spent, and the next call may use $0.1001)",
        ),
        (counters(max_cost_usd=1, cost_usd=Decimal("0.9")), None, None),
        (
            counters(
                max_cost_usd=1,
                cost_usd=Decimal("0.5"),
                uncertain_cost_usd=Decimal("0.3"),
                reserved_cost_usd=Decimal("0.2"),
            ),
            None,
            "$1.00 of $1.00 ($0.50 spent, $0.30 uncertain, $0.20 reserved)",
        ),
        (
            counters(max_cost_usd=1, cost_usd=Decimal("0.5"), cost_unknown=1),
            None,
            "$0.50 of $1.00 ($0.50 spent, and the cost of 1 call is unknown)",
        ),
        (counters(max_cost_usd=1, cost_usd=Decimal("0.5"), cost_unknown=1, allow_unknown_cost=True), None, None),
        (counters(max_calls=5, cost_unknown=1), None, None),
        (counters(max_wall_s=2.5, wall_ms=2499), None, None),
        (counters(max_wall_s=2.5, wall_ms=2500), None, "2.5 of 2.5 seconds"),
        (Counters(calls=10**6), Reserve(tokens=10**9), None),
    ],
)
def test_whether_one_more_call_fits_and_in_which_words_not(
    held: Counters, mine: Reserve | None, words: str | None
) -> None:
    before = held.stored()
    exceeded = held.refusal(mine, NOW)
    assert (None if exceeded is None else exceeded.words) == words
    assert held.stored() == before


def test_the_numbers_of_a_refusal_are_kept_beside_its_words() -> None:
    held = counters(max_cost_usd=1, cost_usd=Decimal("0.5"), reserved_cost_usd=Decimal("0.5"), cost_unknown=2)
    exceeded = held.refusal(Reserve(cost_usd="0.25"), NOW)
    assert exceeded is not None
    assert exceeded.limit == "max_cost_usd"
    assert exceeded.numbers == {
        "max": "1", "used": "1.0", "spent": "0.5", "reserved": "0.5", "unknown": 2, "asked": "0.25",
    }  # fmt: skip


def test_within_any_sixty_seconds_no_more_calls_start_than_the_limit() -> None:
    held = counters(calls_per_minute=2)
    started: list[int] = []
    for now_ms in range(NOW + 700, NOW + 400_000, 331):
        if held.refusal(None, now_ms) is None:
            held.begin(None, now_ms)
            started.append(now_ms)
    gaps = [later - earlier for earlier, later in zip(started, started[2:], strict=False)]
    assert len(started) > 8, "the window never opens again"
    assert min(gaps) >= 60_000
    assert max(gaps) <= 61_000 + 331


def test_the_window_keeps_one_bucket_for_each_second_of_a_minute() -> None:
    held = counters(calls_per_minute=10**6)
    for now_ms in range(NOW, NOW + 300_000, 50):
        held.begin(None, now_ms)
    assert len(held.window) == 61
    assert held.calls_lately(NOW + 300_000) == 60 * 20


def test_without_such_a_limit_no_window_is_kept() -> None:
    held = counters(max_calls=5)
    held.begin(None, NOW)
    assert held.window == []


def test_time_that_goes_back_takes_nothing_away() -> None:
    held = Counters(seen_ms=NOW, wall_ms=5)
    held.pass_time(NOW - 1000)
    assert (held.wall_ms, held.seen_ms) == (5, NOW)


@pytest.mark.parametrize(
    ("cost", "words"),
    [("0", "$0.00"), ("1", "$1.00"), ("1.5", "$1.50"), ("1234.567", "$1,234.567"), ("0.000001", "$0.000001")],
)
def test_dollars_in_words_lose_no_place(cost: str, words: str) -> None:
    assert usd_words(Decimal(cost)) == words


# -- any interleaving -----------------------------------------------------------------------------------------------

DECLARED = st.tuples(st.integers(0, 60), COSTS)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), DECLARED),
        st.tuples(st.just("settle"), st.tuples(st.integers(0, 10), st.fractions(0, 1))),
        st.tuples(st.just("doubt"), st.tuples(st.integers(0, 10), st.just(0))),
    ),
    max_size=60,
)


def dollars(calls: list[Reserve]) -> Decimal:
    return sum((mine.cost or Decimal(0) for mine in calls), Decimal(0))


@given(events=EVENTS, max_calls=st.integers(1, 12), max_tokens=st.integers(1, 200), max_cost=COSTS.filter(bool))
def test_with_declared_reserves_no_interleaving_is_ever_over_a_limit(
    events: list[tuple[str, tuple[Any, Any]]], max_calls: int, max_tokens: int, max_cost: Decimal
) -> None:
    """Calls that use no more than they declared, ended or left in any order, in any number at once."""
    held = Counters(limits=Budget(max_calls=max_calls, max_tokens=max_tokens, max_cost_usd=max_cost))
    open_calls: list[Reserve] = []
    doubts: list[Reserve] = []
    started = spent = 0
    spent_usd = Decimal(0)
    for what, (first, second) in events:
        if what == "begin":
            mine = Reserve(tokens=first, cost_usd=second)
            if held.refusal(mine, NOW) is None:
                held.begin(mine, NOW)
                open_calls.append(mine)
                started += 1
        elif open_calls:
            mine = open_calls.pop(first % len(open_calls))
            if what == "settle":
                share = int((mine.tokens or 0) * second)
                spent += share
                spent_usd += mine.cost or Decimal(0)
                held.settle(mine, Used(tokens=share, cost_usd=mine.cost or Decimal(0)))
            else:
                doubts.append(mine)
                held.doubt(mine)
        held = parse_counters(held.stored())
        assert held.calls == started <= max_calls
        assert spent + sum(mine.tokens or 0 for mine in open_calls + doubts) == held.tokens_taken <= max_tokens
        assert spent_usd + dollars(open_calls) + dollars(doubts) == held.cost_taken <= max_cost
        assert (held.calls_in_flight, held.calls_uncertain) == (len(open_calls), len(doubts))
        assert (held.tokens, held.cost_usd) == (spent, spent_usd)
        assert held.reserved_cost_usd == dollars(open_calls)


@given(uses=st.lists(st.integers(0, 50), max_size=30), max_tokens=st.integers(1, 300))
def test_without_reserves_one_after_the_other_stops_at_the_first_that_finds_it_used_up(
    uses: list[int], max_tokens: int
) -> None:
    held = Counters(limits=Budget(max_tokens=max_tokens))
    spent = 0
    for tokens in uses:
        refused = held.refusal(None, NOW) is not None
        assert refused == (spent >= max_tokens)
        if refused:
            break
        held.begin(None, NOW)
        held.settle(None, Used(tokens=tokens))
        spent += tokens
    assert held.tokens == spent < max_tokens + 50
