"""Whether a call repeats an earlier one: the same outcome, and how much its input is like the earlier input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent_run_ledger.kernel.loops import glimpse as flag
from agent_run_ledger.kernel.loops.glimpse import Glimpse
from agent_run_ledger.kernel.loops.similarity import Vector, cosine, overlap, vector

SLIM: Final = flag.SILENT | flag.DONE | flag.SMALL | flag.VETOED
"""Outcomes that say too little to be recognised by: other inputs may well have the same one."""

_NEAR: Final = 0.85
_COMPARED: Final = 8
_KEPT: Final = 96


class Seen(NamedTuple):
    """A call that was observed. `turn`: the first of those calls that were all made at once with it."""

    number: int
    glimpse: Glimpse
    turn: int


class Match(NamedTuple):
    """The earlier call that a call repeats. `same`: equal inputs, or but for numbers with an outcome not small."""

    number: int
    similarity: float
    same: bool


class Matcher:
    """Compares glimpses; keeps the vectors of the last inputs that it compared."""

    def __init__(self) -> None:
        """Begin with nothing kept."""
        self._vectors: dict[bytes, Vector] = {}

    def match(self, now: Glimpse, seen: Iterable[Seen]) -> Match | None:
        """Return the most similar call of the same tool with the same outcome, or None; `seen` is newest first.

        The same outcome is, for an equal input, one that differs in generated names, line numbers and up to a seventh
        of its word pairs; for another input, one that is equal but for times and the order of its lines. At most 8
        inputs are compared by cosine. Going through numbered things with small answers repeats nothing: similarity 0.
        """
        best: Match | None = None
        compared = 0
        for number, then, _ in seen:
            if then.tool != now.tool:
                continue
            if then.given == now.given:
                if unchanged(then, now) or _near(then, now):
                    return Match(number, 1.0, True)
                continue
            if then.came != now.came and (not now.pairs or then.pairs != now.pairs or then.numbers != now.numbers):
                continue
            numbered = then.form == now.form
            if numbered and now.flags & SLIM:
                best = best or Match(number, 0.0, False)
            elif compared < _COMPARED:
                compared += 1
                similarity = self.similarity(then, now)
                if best is None or similarity > best.similarity:
                    best = Match(number, similarity, numbered)
        return best

    def similarity(self, then: Glimpse, now: Glimpse) -> float:
        """Return the cosine of the 3-gram counts of two inputs, 0 to 1."""
        return cosine(self._vector(then.features), self._vector(now.features))

    def _vector(self, features: bytes) -> Vector:
        found = self._vectors.get(features)
        if found is None:
            if len(self._vectors) >= _KEPT:
                self._vectors.clear()
            found = self._vectors[features] = vector(features)
        return found


def unchanged(then: Glimpse, now: Glimpse) -> bool:
    """Whether the outcome of one call, made again, is the one from before but for generated names and line numbers."""
    return then.came == now.came or then.bare == now.bare


def same_input(then: Glimpse, now: Glimpse) -> bool:
    """Whether two inputs of a tool are equal, or differ in numbers only while the outcome is a content."""
    content = not now.flags & (SLIM | flag.FAILED)
    return then.tool == now.tool and (then.given == now.given or (then.form == now.form and content))


def _near(then: Glimpse, now: Glimpse) -> bool:
    return then.numbers == now.numbers and overlap(then.pairs, now.pairs) > _NEAR
