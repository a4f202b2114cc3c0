"""The stored form of what a call used."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest

from agent_run_ledger.kernel.usage import MAX_LINES, SEVERAL, Usage, exact_cost, merged, parse_usage, usage_bytes

LINE = Usage(model="m", provider="p", input_tokens=3, output_tokens=0, cost_usd=Decimal("0.00120"), prices="reported")


def test_a_usage_comes_back_as_it_was() -> None:
    lines = (LINE, Usage(calls=2), Usage(cache_read_tokens=7, cache_write_tokens=2**40))
    assert parse_usage(usage_bytes(lines)) == lines


def test_unknown_is_left_out_and_is_not_zero() -> None:
    assert usage_bytes([Usage(output_tokens=0)]) == b'[{"output_tokens":0}]'
    assert parse_usage(b"[{}]") == (Usage(),)
    assert parse_usage(b"[{}]")[0].input_tokens is None


def test_a_cost_keeps_its_digits() -> None:
    assert b'"cost_usd":"0.00120"' in usage_bytes([LINE])
    assert b'"cost_usd":"0.0000001"' in usage_bytes([Usage(cost_usd=Decimal("1E-7"))])


def test_no_lines_are_no_bytes() -> None:
    assert usage_bytes([]) == b""
    assert parse_usage(b"") == ()


@pytest.mark.parametrize(
    "stored",
    [
        b"{}",
        b"[]",
        b"[1]",
        b'[{"input_tokens":-1}]',
        b'[{"input_tokens":true}]',
        b'[{"input_tokens":1.5}]',
        b'[{"calls":0}]',
        b'[{"calls":1}]',
        b'[{"model":3}]',
        b'[{"cost_usd":1}]',
        b'[{"cost_usd":"-1"}]',
        b'[{"cost_usd":"NaN"}]',
        b'[{"cost_usd":"much"}]',
        b'[{"more":1}]',
        b'[{ "calls":2}]',
        b"nothing",
    ],
)
def test_other_bytes_are_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_usage(stored)


def test_lines_of_one_model_are_added_where_they_know_the_same_numbers() -> None:
    lines = [
        Usage(model="m", input_tokens=1, cost_usd=Decimal("0.1"), prices="reported"),
        Usage(model="n", input_tokens=5),
        Usage(model="m", calls=2, input_tokens=2, cost_usd=Decimal("0.2"), prices="reported"),
        Usage(model="m", input_tokens=4),
        Usage(model="m"),
    ]
    assert merged(lines) == (
        Usage(model="m", calls=3, input_tokens=3, cost_usd=Decimal("0.3"), prices="reported"),
        Usage(model="n", input_tokens=5),
        Usage(model="m", input_tokens=4),
        Usage(model="m"),
    )


def test_more_models_than_lines_end_in_a_line_without_a_model() -> None:
    lines = [Usage(model=f"m{n}", provider="p", input_tokens=1, output_tokens=1) for n in range(70)]
    kept = merged([*lines, Usage(model="last", provider="p", input_tokens=1)])
    assert len(kept) == MAX_LINES
    assert kept[-1] == Usage(provider="p", calls=8, input_tokens=8)
    assert sum(line.calls for line in kept) == 71


def test_costs_of_several_tables_are_said_to_be_of_several() -> None:
    lines = [Usage(model=f"m{n}", cost_usd=Decimal(1), prices=f"table {n}") for n in range(65)]
    assert merged(lines)[-1] == Usage(calls=2, cost_usd=Decimal(2), prices=SEVERAL)


def test_money_is_added_exactly_whatever_the_context_of_the_program() -> None:
    lines = [Usage(cost_usd=Decimal("1234567.000000000001"))] * 3
    with localcontext(prec=3):
        assert merged(lines)[0].cost_usd == Decimal("3703701.000000000003")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("0.00120", "0.00120"),
        ("1E+3", "1000.000000000000"),
        ("1E-13", "0.000000000000"),
        ("1E-999999", "0.000000000000"),
        ("0E+999999", "0.000000000000"),
        ("-0", "0"),
    ],
)
def test_a_cost_has_at_most_twelve_places(given: str, kept: str) -> None:
    cost = exact_cost(Decimal(given))
    assert cost is not None
    assert format(cost, "f") == kept


@pytest.mark.parametrize("given", ["-0.1", "NaN", "Infinity", "1000000000001", "1E+999999"])
def test_what_is_no_cost_is_none(given: str) -> None:
    assert exact_cost(Decimal(given)) is None
