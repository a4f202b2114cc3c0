"""Sums of what calls used: spent, restored and uncertain; an unknown number is counted and never taken for 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, cast

import orjson

from agent_run_ledger.kernel.usage import MONEY, parse_usage


class By(StrEnum):
    """What the rows of an account stand for. A day is one of UTC."""

    STEP = "step"
    MODEL = "model"
    RUN = "run"
    DAY = "day"


Lines = Sequence[Mapping[str, Any]]
"""The lines of one record's usage, as `read_lines` returns them."""


def read_lines(stored: bytes) -> Lines:
    """Return the lines of a stored usage (docs/formats/record.md); ValueError for what is none.

    Quicker than `parse_usage`, for sums over many: the numbers are checked, that there are no other keys is not.
    """
    read: Any = orjson.loads(stored)
    if type(read) is list and read:
        lines = cast("Lines", read)
        if all(type(line) is dict and _is_plain(line) for line in lines):
            return lines
    parse_usage(stored)  # says what is wrong
    raise ValueError("the usage is not in its one form")


def _is_plain(line: Mapping[str, Any]) -> bool:
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        if name in line and (type(line[name]) is not int or line[name] < 0):
            return False
    calls, model, cost = line.get("calls", 1), line.get("model", ""), line.get("cost_usd", "0")
    if type(calls) is not int or calls < 1 or type(model) is not str or type(cost) is not str:
        return False
    whole, _, fraction = cost.partition(".")
    return whole.isdecimal() and whole.isascii() and (not fraction or (fraction.isdecimal() and fraction.isascii()))


@dataclass(slots=True, kw_only=True)
class Total:
    """A sum over calls of models. Each number is what is known of it, None where nobody said any.

    `input_unknown`, `output_unknown`, `cost_unknown`: of how many calls nobody said it; the sums are too low by theirs.
    Cache numbers are parts of the input, as far as they were said.
    """

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    input_unknown: int = 0
    output_unknown: int = 0
    cost_usd: Decimal | None = None
    cost_unknown: int = 0

    @property
    def tokens(self) -> int | None:
        """Input and output together, as far as known."""
        if self.input_tokens is None or self.output_tokens is None:
            return self.output_tokens if self.input_tokens is None else self.input_tokens
        return self.input_tokens + self.output_tokens

    def add(self, line: Mapping[str, Any]) -> None:
        """Add one line of a usage."""
        calls: int = line.get("calls", 1)
        self.calls += calls
        given, got = line.get("input_tokens"), line.get("output_tokens")
        if given is None:
            self.input_unknown += calls
        if got is None:
            self.output_unknown += calls
        self.input_tokens = _plus(self.input_tokens, given)
        self.output_tokens = _plus(self.output_tokens, got)
        self.cache_read_tokens = _plus(self.cache_read_tokens, line.get("cache_read_tokens"))
        self.cache_write_tokens = _plus(self.cache_write_tokens, line.get("cache_write_tokens"))
        cost = line.get("cost_usd")
        if cost is None:
            self.cost_unknown += calls
        else:
            self.cost_usd = MONEY.add(self.cost_usd or Decimal(0), Decimal(cost))

    def merge(self, other: Total) -> None:
        """Add another sum."""
        self.calls += other.calls
        self.input_tokens = _plus(self.input_tokens, other.input_tokens)
        self.output_tokens = _plus(self.output_tokens, other.output_tokens)
        self.cache_read_tokens = _plus(self.cache_read_tokens, other.cache_read_tokens)
        self.cache_write_tokens = _plus(self.cache_write_tokens, other.cache_write_tokens)
        self.input_unknown += other.input_unknown
        self.output_unknown += other.output_unknown
        self.cost_unknown += other.cost_unknown
        if other.cost_usd is not None:
            self.cost_usd = MONEY.add(self.cost_usd or Decimal(0), other.cost_usd)


@dataclass(slots=True, kw_only=True)
class Uncertain:
    """Calls that were started, and nothing says how they ended or what they used; of a call that timed out, not all.

    `estimate` is what their repetitions used: of `repeated` of the calls. It is no number of the calls themselves.
    `unknown` of the calls may not be repeated: whether they happened is for a person to find out.
    """

    calls: int = 0
    repeated: int = 0
    unknown: int = 0
    estimate: Total = field(default_factory=Total)

    def merge(self, other: Uncertain) -> None:
        """Add another sum."""
        self.calls += other.calls
        self.repeated += other.repeated
        self.unknown += other.unknown
        self.estimate.merge(other.estimate)


@dataclass(slots=True, kw_only=True)
class Entry:
    """One row of an account, or its whole.

    `spent`: of every record of a call that ended, in whichever way. `restored`: of records that an attempt used which
    an earlier attempt or another run had paid; at least this, for an attempt that was killed does not say.
    """

    spent: Total = field(default_factory=Total)
    restored: Total = field(default_factory=Total)
    uncertain: Uncertain = field(default_factory=Uncertain)

    def merge(self, other: Entry) -> None:
        """Add another row."""
        self.spent.merge(other.spent)
        self.restored.merge(other.restored)
        self.uncertain.merge(other.uncertain)


class Book:
    """The rows of an account while it is made, by key; with By.MODEL the key is what each line of a usage names."""

    def __init__(self, by: By | None) -> None:
        self._by_model = by is By.MODEL
        self.entries: dict[str, Entry] = {}
        self.spent_records = 0

    def spend(self, key: str, lines: Lines) -> None:
        """Note a record of a call that ended."""
        self.spent_records += 1
        for line in lines:
            self._entry(key, line).spent.add(line)

    def restore(self, key: str, lines: Lines) -> None:
        """Note a record that was used and not paid again."""
        for line in lines:
            self._entry(key, line).restored.add(line)

    def doubt(self, key: str, *, unknown: bool = False) -> None:
        """Note a call of which nothing says how it ended; `unknown` where it may not be repeated."""
        uncertain = self._entry(key, {}).uncertain
        uncertain.calls += 1
        uncertain.unknown += unknown

    def estimate(self, key: str, lines: Lines) -> None:
        """Note what the repetition of such a call used."""
        self._entry(key, {}).uncertain.repeated += 1
        for line in lines:
            self._entry(key, line).uncertain.estimate.add(line)

    def whole(self) -> Entry:
        """Return the sum of all rows."""
        total = Entry()
        for entry in self.entries.values():
            total.merge(entry)
        return total

    def _entry(self, key: str, line: Mapping[str, Any]) -> Entry:
        if self._by_model:
            key = line.get("model", "")
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry()
        return entry


def _plus(known: int | None, more: int | None) -> int | None:
    if more is None:
        return known
    return more if known is None else known + more
