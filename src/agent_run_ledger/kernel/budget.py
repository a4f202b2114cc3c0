"""Budgets: what a run or a step may use, and what one call says it may use."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final, cast

import orjson

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.usage import MAX_COUNT, cost_of

MAX_WALL_S: Final = 1_000_000_000
_COUNTS: Final = ("max_calls", "max_tokens", "calls_per_minute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run, with the runs within it, or a step may use. None is no limit; at least one is set.

    `max_calls`: bodies that are started, each try counted. `max_tokens`: input and output together. `max_cost_usd`: US
    dollars; once the price of a call is unknown nothing more starts, unless `allow_unknown_cost`. `max_wall_s`: seconds
    within attempts of the run, or in calls of the step. `calls_per_minute`: how many may start within any 60 seconds.
    Misuse("bad_budget") for what cannot be meant.
    """

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: Decimal | float | str | None = None
    max_wall_s: float | None = None
    calls_per_minute: int | None = None
    allow_unknown_cost: bool = False

    def __post_init__(self) -> None:
        """Refuse limits outside their range; a cost becomes a Decimal."""
        for name in _COUNTS:
            _check_count(name, getattr(self, name), least=1)
        if self.max_cost_usd is not None:
            cost = _checked_cost("max_cost_usd", self.max_cost_usd)
            if not cost:
                raise _bad("max_cost_usd must be above 0")
            object.__setattr__(self, "max_cost_usd", cost)
        wall: object = self.max_wall_s
        if wall is not None and (type(wall) not in (int, float) or not 0 < (self.max_wall_s or 0) <= MAX_WALL_S):
            raise _bad(f"max_wall_s must be above 0 and at most {MAX_WALL_S:,} seconds, not {wall!r}")
        if type(self.allow_unknown_cost) is not bool:
            raise _bad(f"allow_unknown_cost must be True or False, not {self.allow_unknown_cost!r}")
        if all(getattr(self, name) is None for name in (*_COUNTS, "max_cost_usd", "max_wall_s")):
            raise _bad("a budget needs a limit")

    @property
    def cost_limit(self) -> Decimal | None:
        """`max_cost_usd` as the exact number it is kept as."""
        return cast("Decimal | None", self.max_cost_usd)

    def as_stored(self) -> dict[str, object]:
        """Return the plain form that is kept in the START record and with the counters; what is not set is left out."""
        kept: dict[str, object] = {name: getattr(self, name) for name in (*_COUNTS, "max_wall_s")}
        kept["max_cost_usd"] = None if self.cost_limit is None else format(self.cost_limit, "f")
        kept["allow_unknown_cost"] = self.allow_unknown_cost or None
        return {name: value for name, value in kept.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What one call of a step may use at most, as its author says: reserved before it starts, settled after it.

    None is undeclared: nothing of it is reserved. Misuse("bad_budget") for what cannot be meant.
    """

    tokens: int | None = None
    cost_usd: Decimal | float | str | None = None

    def __post_init__(self) -> None:
        """Refuse numbers below 0; a cost becomes a Decimal."""
        _check_count("tokens", self.tokens, least=0)
        if self.cost_usd is not None:
            object.__setattr__(self, "cost_usd", _checked_cost("cost_usd", self.cost_usd))
        elif self.tokens is None:
            raise _bad("a reserve needs tokens or cost_usd")

    @property
    def cost(self) -> Decimal | None:
        """`cost_usd` as the exact number it is kept as."""
        return cast("Decimal | None", self.cost_usd)


def check_budget(budget: object) -> Budget | None:
    """Return the budget that a run or a step was given; Misuse("bad_budget") for what is none."""
    if budget is None or isinstance(budget, Budget):
        return budget
    raise _bad(f"budget must be a Budget, not {type(budget).__name__}")


def check_reserve(reserve: object) -> Reserve | None:
    """Return the reserve that a step was given; Misuse("bad_budget") for what is none."""
    if reserve is None or isinstance(reserve, Reserve):
        return reserve
    raise _bad(f"reserves must be a Reserve, not {type(reserve).__name__}")


def reserve_bytes(reserve: Reserve | None) -> bytes:
    """Return the stored form of what a call reserved: compact JSON, empty where it reserved nothing."""
    if reserve is None:
        return b""
    kept: dict[str, object] = {}
    if reserve.cost is not None:
        kept["cost_usd"] = format(reserve.cost, "f")
    if reserve.tokens is not None:
        kept["tokens"] = reserve.tokens
    return orjson.dumps(kept)


def parse_reserve(stored: object) -> Reserve | None:
    """Return what a call reserved from its stored form, bytes or read already; ValueError for what is none."""
    read: object = orjson.loads(stored or b"null") if isinstance(stored, bytes) else stored
    if read is None:
        return None
    if not isinstance(read, dict):
        raise ValueError("a reserve is an object")
    kept = cast("dict[str, Any]", read)
    try:
        return Reserve(tokens=kept.get("tokens"), cost_usd=kept.get("cost_usd"))
    except Misuse as error:
        raise ValueError(error.message) from error


_LIMITS: Final = tuple(one.name for one in fields(Budget))


def parse_budget(stored: object) -> Budget:
    """Return the limits of a stored form (see `Budget.as_stored`); ValueError for what is none."""
    if type(stored) is not dict or not cast("dict[str, Any]", stored).keys() <= set(_LIMITS):
        raise ValueError("the limits of a budget are an object with their names")
    try:
        return Budget(**cast("dict[str, Any]", stored))
    except Misuse as error:
        raise ValueError(error.message) from error


def _check_count(name: str, value: object, *, least: int) -> None:
    if value is not None and not (type(value) is int and least <= value <= MAX_COUNT):
        raise _bad(f"{name} must be a whole number from {least} to {MAX_COUNT:,}, not {value!r}")


def _checked_cost(name: str, value: object) -> Decimal:
    cost = cost_of(value)
    if cost is None:
        raise _bad(f"{name} must be a number of US dollars from 0 on, not {value!r}")
    return cost


def _bad(words: str) -> Misuse:
    return Misuse(words, code="bad_budget")
