"""What one call used of models: tokens and cost, and the compact JSON that a record keeps of it (format: usage v1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation
from typing import Any, Final, cast

import orjson

MAX_LINES: Final = 64
"""Different models in one record; further ones are added to the last line, without a model."""

MAX_COUNT: Final = 10**12
"""The largest number of tokens or calls that one line may say: nobody has used more, and sums of it stay 64 bits."""

MAX_COST_USD: Final = Decimal(10) ** 12
SEVERAL: Final = "several"
"""Where a cost comes from that was added up from lines of different price tables."""

MONEY: Final = Context(prec=60, rounding=ROUND_HALF_EVEN, Emax=MAX_EMAX, traps=[InvalidOperation, DivisionByZero])
"""How money is added: exactly, whatever decimal context the calling program has set for itself."""

_SMALLEST: Final = Decimal("1e-12")
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


def merged(lines: Sequence[Usage]) -> tuple[Usage, ...]:
    """Return the lines with those of one model added up, at most MAX_LINES, in the order in which models came first.

    Only lines are added that know the same numbers, from the same prices: an unknown number is never taken for 0.
    """
    if len(lines) < 2:
        return tuple(lines)
    groups: dict[tuple[object, ...], list[Usage]] = {}
    for line in lines:
        known = tuple(getattr(line, name) is None for name in (*_TOKENS, "cost_usd"))
        groups.setdefault((line.model, line.provider, line.prices, known), []).append(line)
    sums = [_sum(group) for group in groups.values()]
    if len(sums) <= MAX_LINES:
        return tuple(sums)
    return (*sums[: MAX_LINES - 1], _sum(sums[MAX_LINES - 1 :]))


def exact_cost(cost: Decimal) -> Decimal | None:
    """Return a cost in US dollars with at most 12 places; None for what is no finite number from 0 to MAX_COST_USD."""
    if not cost.is_finite() or not 0 <= cost <= MAX_COST_USD:
        return None
    exponent = cost.as_tuple().exponent
    if isinstance(exponent, int) and -12 <= exponent <= 0:
        return cost.copy_abs()
    return cost.quantize(_SMALLEST, context=MONEY).copy_abs()


def cost_of(value: object) -> Decimal | None:
    """Return a number of US dollars as the exact cost that is kept; None for what is none (see `exact_cost`)."""
    if not isinstance(value, Decimal | float | int | str) or isinstance(value, bool):
        return None
    try:
        return exact_cost(value if isinstance(value, Decimal) else Decimal(str(value)))
    except (InvalidOperation, ValueError):
        return None


def _sum(lines: Sequence[Usage]) -> Usage:
    """Return the sum of lines; a number that one of them does not know is unknown, a text they differ in is empty."""
    first = lines[0]
    if len(lines) == 1:
        return first
    numbers: dict[str, Any] = {}
    for name in _TOKENS:
        values = [getattr(line, name) for line in lines]
        numbers[name] = None if None in values else sum(values)
    cost: Decimal | None = Decimal(0)
    for line in lines:
        cost = None if cost is None or line.cost_usd is None else MONEY.add(cost, line.cost_usd)
    texts: dict[str, Any] = {
        name: getattr(first, name) if len({getattr(line, name) for line in lines}) == 1 else ""
        for name in ("model", "provider", "prices")
    }
    if cost is None:
        texts["prices"] = ""
    elif not texts["prices"] and any(line.prices for line in lines):
        texts["prices"] = SEVERAL
    return Usage(calls=sum(line.calls for line in lines), cost_usd=cost, **numbers, **texts)


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
