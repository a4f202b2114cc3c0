"""Sums over usages: what is unknown is counted beside the sum and never taken for 0."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_run_ledger.kernel.account import Book, By, Entry, Total, read_lines
from agent_run_ledger.kernel.usage import Usage, usage_bytes

NUMBER = st.none() | st.integers(0, 10**12)
USAGES = st.builds(
    Usage,
    model=st.sampled_from(["", "m", "n"]),
    calls=st.integers(1, 9),
    input_tokens=NUMBER,
    output_tokens=NUMBER,
    cache_read_tokens=NUMBER,
    cost_usd=st.none() | st.decimals(0, 1000, places=6),
)


def _lines(*usages: Usage) -> list[dict[str, object]]:
    return [dict(line) for line in read_lines(usage_bytes(usages))]


def test_unknown_numbers_are_counted_and_not_added() -> None:
    total = Total()
    for line in _lines(Usage(input_tokens=5, output_tokens=1), Usage(calls=3, input_tokens=7), Usage(output_tokens=2)):
        total.add(line)
    assert (total.calls, total.input_tokens, total.output_tokens) == (5, 12, 3)
    assert (total.input_unknown, total.output_unknown, total.cost_unknown) == (1, 3, 5)
    assert total.cost_usd is None
    assert total.cache_read_tokens is None
    assert total.tokens == 15


def test_a_sum_of_nothing_is_unknown_and_not_zero() -> None:
    assert (Total().input_tokens, Total().cost_usd, Total().tokens) == (None, None, None)
    known = Total()
    known.add({"input_tokens": 0, "output_tokens": 0, "cost_usd": "0"})
    assert (known.input_tokens, known.cost_usd, known.tokens) == (0, Decimal(0), 0)


@settings(deadline=None, derandomize=True)
@given(st.lists(USAGES, max_size=8), st.integers(0, 8))
def test_a_sum_does_not_depend_on_how_it_was_put_together(usages: list[Usage], cut: int) -> None:
    whole, first, second = Total(), Total(), Total()
    for at, line in enumerate(_lines(*usages) if usages else []):
        whole.add(line)
        (first if at < cut else second).add(line)
    first.merge(second)
    assert first == whole
    assert whole.calls == sum(usage.calls for usage in usages)
    costs = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
    assert whole.cost_usd == (sum(costs, Decimal(0)) if costs else None)
    inputs = [usage.input_tokens for usage in usages if usage.input_tokens is not None]
    assert whole.input_tokens == (sum(inputs) if inputs else None)


def test_costs_are_added_exactly_whatever_the_context_of_the_program() -> None:
    one, other = Total(), Total()
    with localcontext(prec=2):
        for total in (one, other, other):
            total.add({"cost_usd": "1.234567890123"})
        one.merge(other)
    assert one.cost_usd == Decimal("3.703703670369")


def test_a_book_sums_its_rows() -> None:
    book = Book(By.STEP)
    book.spend("a", _lines(Usage(model="m", input_tokens=1), Usage(model="n", input_tokens=2)))
    book.restore("a", _lines(Usage(input_tokens=4)))
    book.doubt("b")
    book.estimate("b", _lines(Usage(input_tokens=8)))
    assert list(book.entries) == ["a", "b"]
    assert book.spent_records == 1
    whole = book.whole()
    assert (whole.spent.calls, whole.spent.input_tokens, whole.restored.input_tokens) == (2, 3, 4)
    assert (whole.uncertain.calls, whole.uncertain.repeated, whole.uncertain.estimate.input_tokens) == (1, 1, 8)
    assert book.entries["b"].spent == Entry().spent


def test_a_book_by_model_has_a_row_for_what_names_none() -> None:
    book = Book(By.MODEL)
    book.spend("step", _lines(Usage(model="m", input_tokens=1), Usage(input_tokens=2)))
    book.doubt("step")
    assert set(book.entries) == {"m", ""}
    assert book.entries[""].uncertain.calls == 1
    assert book.entries["m"].spent.input_tokens == 1


@settings(deadline=None, derandomize=True)
@given(st.lists(USAGES, min_size=1, max_size=4))
def test_what_is_stored_can_be_read_for_sums(usages: list[Usage]) -> None:
    assert len(read_lines(usage_bytes(usages))) == len(usages)


@pytest.mark.parametrize(
    "stored",
    [
        b"{}", b"[]", b"[1]", b"null", b"[{}", b'[{"input_tokens":-1}]', b'[{"output_tokens":true}]', b'[{"calls":0}]',
        b'[{"input_tokens":1.5}]', b'[{"model":1}]', b'[{"cost_usd":1}]', b'[{"cost_usd":"-1"}]', b'[{"cost_usd":""}]',
        b'[{"cost_usd":"NaN"}]', b'[{"cost_usd":"1e5"}]', b'[{"cost_usd":"1.2.3"}]', b'[{"cache_read_tokens":"1"}]',
        '[{"cost_usd":"١"}]'.encode(),
    ],
)  # fmt: skip
def test_what_is_no_usage_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_lines(stored)
