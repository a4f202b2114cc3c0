"""Figures: a measured value beside its floor and its target, and whether the target is met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Sense(StrEnum):
    """Which side of its limit a figure must be on."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit for a figure's value, or for its ratio to the floor."""

    sense: Sense
    limit: float
    of_ratio: bool = False
    note: str = ""

    def __str__(self) -> str:
        """Return the target as the table shows it."""
        text = f"{self.sense} {number(self.limit)}{' × floor' if self.of_ratio else ''}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the report.

    `floor` is in the unit of `value`. `ratio` is value / floor unless a better one was measured (the median of the
    ratios of pairs). `enough` is False when too little was measured to say whether the target is met.
    """

    name: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: Target | None = None
    note: str = ""
    enough: bool = True

    @property
    def ratio_to_floor(self) -> float | None:
        """The ratio, or None without a floor."""
        if self.ratio is not None:
            return self.ratio
        return self.value / self.floor if self.floor else None

    @property
    def judged(self) -> float | None:
        """The number that the target is about."""
        return self.ratio_to_floor if self.target is not None and self.target.of_ratio else self.value

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or when too little was measured."""
        if self.target is None or not self.enough or self.judged is None:
            return None
        if self.target.sense is Sense.AT_LEAST:
            return self.judged >= self.target.limit
        return self.judged <= self.target.limit

    @property
    def reach(self) -> float | None:
        """How far the target is reached: 1 is exactly met, more is better; None without a target."""
        if self.target is None or self.judged is None:
            return None
        if self.target.sense is Sense.AT_LEAST:
            return self.judged / self.target.limit if self.target.limit else None
        if self.judged == 0:
            return None
        return self.target.limit / self.judged if self.target.limit else 0.0

    def as_json(self) -> dict[str, object]:
        """Return the figure as the JSON report holds it."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "floor": self.floor,
            "ratio": self.ratio_to_floor,
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one measurement hands back: its figures, and the raw numbers they come from."""

    figures: list[Figure]
    raw: Mapping[str, object] = field(default_factory=dict[str, object])


def number(value: float) -> str:
    """Return a number as people read it: three significant digits, thousands grouped, no exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    digits = 2 if size < 1 else 1
    while size < 0.1 and digits < 8:
        size, digits = size * 10, digits + 1
    text = f"{value:.{digits}f}" if abs(value) >= 10 or abs(value) < 1 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
