"""The counters of one budget: what is used, reserved and uncertain, and whether one more call fits (budgets v1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.budget import Budget, Reserve, parse_budget
from agent_run_ledger.kernel.usage import MONEY

WINDOW_S: Final = 61
"""How many one-second buckets count for a minute: with the one that has just begun, any 60 seconds lie within them."""

_NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class Used:
    """What a call used, as its record says. `unknown`: one of its lines has no cost. An unknown number adds nothing."""

    tokens: int = 0
    cost_usd: Decimal = _NOTHING
    unknown: bool = False


NOTHING_USED: Final = Used()


def used_of(lines: Sequence[Mapping[str, Any]]) -> Used:
    """Return the sum of the lines of a record's usage (see `account.read_lines`)."""
    tokens, cost, unknown = 0, _NOTHING, False
    for line in lines:
        tokens += (line.get("input_tokens") or 0) + (line.get("output_tokens") or 0)
        said = line.get("cost_usd")
        if said is None:
            unknown = True
        else:
            cost = MONEY.add(cost, Decimal(said))
    return Used(tokens=tokens, cost_usd=cost, unknown=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """Why a call may not start: the limit, its numbers (whole numbers, and dollars as text), and all of it in words."""

    limit: str
    numbers: Mapping[str, int | str]
    words: str


@dataclass(slots=True, kw_only=True)
class Counters:
    """What is used of one budget, and its limits as of the latest start of its run; None where that gave none.

    `calls` counts every body that was started; of them `calls_in_flight` are not concluded, and of `calls_uncertain`
    nothing says how they ended. `tokens` and `cost_usd` are spent by calls that ended; `reserved_…` by those in flight,
    `uncertain_…` by those in doubt, as far as they had declared it. `cost_unknown`: how many calls have no known cost.
    `seen_ms`: until when `wall_ms` is counted. `window`: (Unix second, calls started in it), ascending.
    """

    limits: Budget | None = None
    calls: int = 0
    calls_in_flight: int = 0
    calls_uncertain: int = 0
    tokens: int = 0
    reserved_tokens: int = 0
    uncertain_tokens: int = 0
    cost_usd: Decimal = _NOTHING
    reserved_cost_usd: Decimal = _NOTHING
    uncertain_cost_usd: Decimal = _NOTHING
    cost_unknown: int = 0
    wall_ms: int = 0
    seen_ms: int = 0
    window: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def tokens_taken(self) -> int:
        """Tokens that are spent, or may be: uncertain and reserved ones count until they are settled."""
        return self.tokens + self.uncertain_tokens + self.reserved_tokens

    @property
    def cost_taken(self) -> Decimal:
        """Dollars that are spent, or may be."""
        return MONEY.add(MONEY.add(self.cost_usd, self.uncertain_cost_usd), self.reserved_cost_usd)

    def calls_lately(self, now_ms: int) -> int:
        """Return how many calls started within the last minute, and up to a second more."""
        first = now_ms // 1000 - WINDOW_S
        return sum(count for second, count in self.window if second > first)

    def pass_time(self, now_ms: int) -> None:
        """Count the time since the budget was last seen."""
        self.wall_ms += max(0, now_ms - self.seen_ms)
        self.seen_ms = max(self.seen_ms, now_ms)

    def refusal(self, mine: Reserve | None, now_ms: int) -> Exceeded | None:
        """Return why a call that reserves `mine` may not start now; None where it may. Changes nothing."""
        limits = self.limits
        if limits is None:
            return None
        if limits.max_calls is not None and self.calls >= limits.max_calls:
            return self._over("max_calls", limits.max_calls, self.calls, "calls", self.calls_uncertain)
        if limits.calls_per_minute is not None and (lately := self.calls_lately(now_ms)) >= limits.calls_per_minute:
            return self._over("calls_per_minute", limits.calls_per_minute, lately, "calls within a minute", 0)
        if limits.max_wall_s is not None and self.wall_ms >= limits.max_wall_s * 1000:
            return _over_wall(limits.max_wall_s, self.wall_ms)
        if limits.max_tokens is not None:
            asked = None if mine is None else mine.tokens
            if (
                self.tokens_taken >= limits.max_tokens
                if asked is None
                else self.tokens_taken + asked > limits.max_tokens
            ):
                return self._over_tokens(limits.max_tokens, asked)
        return None if limits.cost_limit is None else self._refused_cost(limits, limits.cost_limit, mine)

    def begin(self, mine: Reserve | None, now_ms: int) -> None:
        """Count a call that starts, and reserve what it declared."""
        self.calls += 1
        self.calls_in_flight += 1
        if mine is not None:
            self.reserved_tokens += mine.tokens or 0
            self.reserved_cost_usd = MONEY.add(self.reserved_cost_usd, mine.cost or _NOTHING)
        if self.limits is None or self.limits.calls_per_minute is None:
            self.window.clear()
            return
        second = now_ms // 1000
        window = [bucket for bucket in self.window if bucket[0] > second - WINDOW_S]
        if window and window[-1][0] >= second:
            window[-1] = (window[-1][0], window[-1][1] + 1)
        else:
            window.append((second, 1))
        self.window = window

    def settle(self, mine: Reserve | None, used: Used) -> None:
        """A call ended: what it used stands in place of what it had reserved."""
        self._release(mine)
        self._spend(used)

    def take_back(self) -> None:
        """A call that ended only waited, and the same call is made again: only that one counts."""
        self.calls -= 1

    def doubt(self, mine: Reserve | None) -> None:
        """Nothing says how a call ended: what it had reserved stays counted, as uncertain."""
        self._release(mine)
        self.calls_uncertain += 1
        if mine is not None:
            self.uncertain_tokens += mine.tokens or 0
            self.uncertain_cost_usd = MONEY.add(self.uncertain_cost_usd, mine.cost or _NOTHING)

    def settle_doubt(self, mine: Reserve | None, used: Used) -> None:
        """Somebody found out what a call in doubt used: that stands in place of what it had reserved."""
        self.calls_uncertain -= 1
        if mine is not None:
            self.uncertain_tokens -= mine.tokens or 0
            self.uncertain_cost_usd = MONEY.subtract(self.uncertain_cost_usd, mine.cost or _NOTHING)
        self._spend(used)

    def stored(self) -> bytes:
        """Return the stored form: JSON with sorted keys, zeros left out."""
        kept: dict[str, object] = {name: value for name in _NUMBERS if (value := getattr(self, name))}
        for name in _COSTS:
            cost: Decimal = getattr(self, name)
            if cost:
                kept[name] = format(cost, "f")
        if self.window:
            kept["window"] = self.window
        if self.limits is not None:
            kept["limits"] = self.limits.as_stored()
        return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)

    def _spend(self, used: Used) -> None:
        self.tokens += used.tokens
        self.cost_usd = MONEY.add(self.cost_usd, used.cost_usd)
        self.cost_unknown += used.unknown

    def _release(self, mine: Reserve | None) -> None:
        self.calls_in_flight -= 1
        if mine is not None:
            self.reserved_tokens -= mine.tokens or 0
            self.reserved_cost_usd = MONEY.subtract(self.reserved_cost_usd, mine.cost or _NOTHING)

    def _over(self, limit: str, most: int, used: int, what: str, uncertain: int) -> Exceeded:
        numbers: dict[str, int | str] = {"max": most, "used": used}
        words = f"{used:,} of {most:,} {what}"
        if uncertain:
            numbers["uncertain"] = uncertain
            words += f", {uncertain:,} of them uncertain"
        return Exceeded(limit=limit, numbers=numbers, words=words)

    def _over_tokens(self, most: int, asked: int | None) -> Exceeded:
        numbers = {"max": most, "used": self.tokens_taken, "spent": self.tokens}
        parts = [f"{self.tokens:,} spent"]
        for word, number in (("uncertain", self.uncertain_tokens), ("reserved", self.reserved_tokens)):
            if number:
                numbers[word] = number
                parts.append(f"{number:,} {word}")
        if asked is not None:
            numbers["asked"] = asked
            parts.append(f"and the next call may use {asked:,}")
        words = f"{self.tokens_taken:,} of {most:,} tokens ({', '.join(parts)})"
        return Exceeded(limit="max_tokens", numbers=numbers, words=words)

    def _refused_cost(self, limits: Budget, most: Decimal, mine: Reserve | None) -> Exceeded | None:
        taken, asked = self.cost_taken, None if mine is None else mine.cost
        over = taken >= most if asked is None else MONEY.add(taken, asked) > most
        unknown = self.cost_unknown > 0 and not limits.allow_unknown_cost
        if not over and not unknown:
            return None
        numbers: dict[str, int | str] = {
            "max": format(most, "f"),
            "used": format(taken, "f"),
            "spent": format(self.cost_usd, "f"),
        }
        parts = [f"{usd_words(self.cost_usd)} spent"]
        for word, cost in (("uncertain", self.uncertain_cost_usd), ("reserved", self.reserved_cost_usd)):
            if cost:
                numbers[word] = format(cost, "f")
                parts.append(f"{usd_words(cost)} {word}")
        if self.cost_unknown:
            numbers["unknown"] = self.cost_unknown
            parts.append(
                f"and the cost of {self.cost_unknown:,} {'call' if self.cost_unknown == 1 else 'calls'} is unknown"
            )
        if asked is not None:
            numbers["asked"] = format(asked, "f")
            parts.append(f"and the next call may use {usd_words(asked)}")
        words = f"{usd_words(taken)} of {usd_words(most)} ({', '.join(parts)})"
        return Exceeded(limit="max_cost_usd", numbers=numbers, words=words)


_COSTS: Final = ("cost_usd", "reserved_cost_usd", "uncertain_cost_usd")
_NUMBERS: Final = tuple(one.name for one in fields(Counters) if one.type == "int")


def parse_counters(stored: bytes) -> Counters:
    """Return the counters of a stored form; ValueError for bytes that `Counters.stored` cannot write."""
    read: object = orjson.loads(stored)
    if type(read) is not dict:
        raise ValueError("the counters of a budget are an object")
    kept = cast("dict[str, Any]", read)
    counters = Counters()
    for name, value in kept.items():
        if name in _NUMBERS:
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} is a whole number from 0 on")
            setattr(counters, name, value)
        elif name in _COSTS:
            setattr(counters, name, _parse_cost(name, value))
        elif name == "window":
            counters.window = _parse_window(value)
        elif name == "limits":
            counters.limits = parse_budget(value)
        else:
            raise ValueError(f"the counters of a budget have no {name!r}")
    return counters


def usd_words(cost: Decimal) -> str:
    """Return dollars for people, with at least two places and none lost."""
    exponent = cost.as_tuple().exponent
    return f"${cost:,.2f}" if isinstance(exponent, int) and exponent > -2 else f"${cost:,f}"


def _parse_cost(name: str, text: object) -> Decimal:
    try:
        cost = Decimal(text) if type(text) is str else Decimal("NaN")
    except InvalidOperation:
        cost = Decimal("NaN")
    if not cost.is_finite() or cost < 0:
        raise ValueError(f"{name} is a finite number from 0 on, as text")
    return cost


def _parse_window(value: object) -> list[tuple[int, int]]:
    window: list[tuple[int, int]] = []
    for item in cast("list[object]", value) if type(value) is list else [None]:
        pair = cast("list[object]", item) if type(item) is list else []
        if len(pair) != 2 or not all(type(number) is int and number >= 0 for number in pair):
            raise ValueError("a window is a list of pairs of whole numbers")
        window.append(cast("tuple[int, int]", tuple(pair)))
    return window


def _over_wall(most_s: float, used_ms: int) -> Exceeded:
    return Exceeded(
        limit="max_wall_s",
        numbers={"max_ms": round(most_s * 1000), "used_ms": used_ms},
        words=f"{used_ms / 1000:,.1f} of {most_s:,} seconds",
    )
