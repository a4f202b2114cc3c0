"""Costs by the table of genai-prices: known models, unknown ones, a broken or missing table, and never the network."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from decimal import Decimal, localcontext
from importlib.metadata import version
from types import SimpleNamespace

import genai_prices.data_snapshot
import pytest

from agent_run_ledger import prices
from agent_run_ledger.kernel.usage import Usage

NOW_MS = 1_767_225_600_000
LINE = Usage(model="gpt-4o-mini", input_tokens=1000, output_tokens=100)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Let each test load the table anew and forget which models were named."""
    prices._table.cache_clear()
    prices._named.clear()
    yield
    prices._table.cache_clear()


def test_a_known_model_has_a_cost_and_the_name_of_the_table() -> None:
    priced = prices.price(LINE, NOW_MS)
    assert priced.cost_usd == Decimal("0.00021")  # 0.15 and 0.60 dollars per million, openai.com/api/pricing
    assert priced.prices == f"genai-prices {version('genai-prices')}"
    assert (priced.model, priced.input_tokens) == ("gpt-4o-mini", 1000)


def test_cached_input_has_its_own_price() -> None:
    cached = Usage(model="gpt-4o-mini", input_tokens=1000, output_tokens=100, cache_read_tokens=1000)
    assert prices.price(cached, NOW_MS).cost_usd == Decimal("0.000135")


@pytest.mark.parametrize(
    "line",
    [
        Usage(input_tokens=1, output_tokens=1),
        Usage(model="gpt-4o-mini", input_tokens=1),
        Usage(model="gpt-4o-mini", output_tokens=1),
        Usage(model="gpt-4o-mini", input_tokens=1, output_tokens=1, cost_usd=Decimal(7), prices="reported"),
    ],
)
def test_a_line_without_model_or_numbers_or_with_a_cost_comes_back_as_it_was(line: Usage) -> None:
    assert prices.price(line, NOW_MS) is line


def test_an_unknown_model_or_provider_stays_unknown_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    ours = Usage(model="our-own-7b", input_tokens=1, output_tokens=1)
    strange = Usage(model="gpt-4o-mini", provider="nobody", input_tokens=1, output_tokens=1)
    with caplog.at_level(logging.WARNING):
        for line in (ours, ours, strange):
            assert prices.price(line, NOW_MS) is line
    assert [record.getMessage().count("cost stays unknown") for record in caplog.records] == [1, 1]


def test_numbers_that_contradict_each_other_have_no_price() -> None:
    line = Usage(model="gpt-4o-mini", input_tokens=5, output_tokens=1, cache_read_tokens=10)
    assert prices.price(line, NOW_MS) is line


def test_without_the_package_costs_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "PACKAGE", "genai_prices_that_nobody_has")
    assert prices.price(LINE, NOW_MS) is LINE


def test_a_package_that_cannot_be_imported_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data", None)
    with caplog.at_level(logging.WARNING):
        assert prices.price(LINE, NOW_MS) is LINE
        assert prices.price(LINE, NOW_MS) is LINE
    assert len(caplog.records) == 1


def test_the_table_is_the_packages_own_also_where_the_program_set_another(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(calc=lambda *_: SimpleNamespace(total_price=Decimal(99)))
    monkeypatch.setattr(genai_prices.data_snapshot, "_custom_snapshot", other)
    assert prices.price(LINE, NOW_MS).cost_usd == Decimal("0.00021")


def test_the_decimal_context_of_the_program_does_not_round_a_cost() -> None:
    line = Usage(model="gpt-4o-mini", input_tokens=1_234_567, output_tokens=1)
    with localcontext(prec=2):
        assert prices.price(line, NOW_MS).cost_usd == Decimal("0.18518565")


def test_nothing_is_asked_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert prices.price(LINE, NOW_MS).cost_usd is not None
