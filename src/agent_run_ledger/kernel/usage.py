"""What one call used of models: tokens and cost, and the compact JSON that a record keeps of it (format: usage v1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

import orjson

MAX_LINES: Final = 64
"""Different models in one record; further ones are added to the last line, without a model."""

_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What `calls` model calls used, all of one model. None is unknown and never 0.

    `input_tokens` counts all input, what was read from and written to a cache included (OpenTelemetry's GenAI
    conventions); `cost_usd` is in US dollars; `prices` says where the cost comes from: "reported", or the name and
    version of a price table. `model` and `provider` are as the provider names them, empty where nobody said.
    """

    model: str = ""
    provider: str = ""
    calls: int = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None = None
    prices: str = ""


def usage_bytes(lines: Sequence[Usage]) -> bytes:
    """Return the stored form: a JSON array of objects with sorted keys, defaults left out; empty for no lines."""
    if not lines:
        return b""
    return orjson.dumps([_stored(line) for line in lines], option=orjson.OPT_SORT_KEYS)


def parse_usage(stored: bytes) -> tuple[Usage, ...]:
    """Return the lines of a stored form, () for an empty one; ValueError for bytes that `usage_bytes` cannot write."""
    if not stored:
        return ()
    read: Any = orjson.loads(stored)
    if type(read) is not list or not read:
        raise ValueError("a usage is a list of lines")
    lines = tuple(_line(item) for item in cast("list[object]", read))
    if usage_bytes(lines) != stored:
        raise ValueError("the usage is not in its one form")
    return lines


def _stored(line: Usage) -> dict[str, object]:
    kept: dict[str, object] = {name: value for name in _TOKENS if (value := getattr(line, name)) is not None}
    if line.calls != 1:
        kept["calls"] = line.calls
    if line.cost_usd is not None:
        kept["cost_usd"] = format(line.cost_usd, "f")
    return kept | {name: text for name in ("model", "provider", "prices") if (text := getattr(line, name))}


def _line(item: object) -> Usage:
    if type(item) is not dict:
        raise ValueError("a line of a usage is an object")
    fields = cast("dict[str, Any]", item)
    numbers: dict[str, Any] = {name: fields.get(name) for name in _TOKENS}
    texts: dict[str, Any] = {name: fields.get(name, "") for name in ("model", "provider", "prices")}
    calls, cost = fields.get("calls", 1), fields.get("cost_usd")
    if any(value is not None and (type(value) is not int or value < 0) for value in numbers.values()):
        raise ValueError("a number of tokens is a whole number from 0 on")
    if type(calls) is not int or calls < 1 or any(type(text) is not str for text in texts.values()):
        raise ValueError("a line of a usage has a field of another type")
    return Usage(calls=calls, cost_usd=_cost(cost), **numbers, **texts)


def _cost(text: object) -> Decimal | None:
    if text is None:
        return None
    try:
        cost = Decimal(text) if type(text) is str else Decimal("NaN")
    except InvalidOperation as error:
        raise ValueError("a cost is a decimal number as text") from error
    if not cost.is_finite() or cost < 0:
        raise ValueError("a cost is a finite number from 0 on, as text")
    return cost
