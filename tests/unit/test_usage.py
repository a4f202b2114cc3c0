"""The stored form of what a call used."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agent_run_ledger.kernel.usage import Usage, parse_usage, usage_bytes

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
