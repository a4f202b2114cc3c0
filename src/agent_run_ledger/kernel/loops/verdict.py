"""What the detector says after a call: how far a loop has come, by which rule, and on which steps that rests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How far a loop has come. QUARANTINE: the limit is reached; NUDGE: one call before; WARN: two calls before."""

    OK = 0
    WARN = 1
    NUDGE = 2
    QUARANTINE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The detector's answer to one call.

    `rule`: the rule that is nearest to its limit ("" where none counts); `count` of `limit` calls; `steps`: the numbers
    of the calls it rests on, oldest first; `similarity`: the lowest cosine among their inputs, 0 where inputs play no
    part; `transient`: the count is one of infrastructure errors; `failed`: the repeated outcome is an error.
    """

    level: Level = Level.OK
    rule: str = ""
    count: int = 0
    limit: int = 0
    steps: tuple[int, ...] = ()
    similarity: float = 0.0
    transient: bool = False
    failed: bool = False

    def words(self) -> str:
        """Return the verdict in one plain sentence; what would have been new stands in `explain`."""
        what = _WHAT[self.rule].format(
            outcome="the same error repeated" if self.failed else "the same outcome repeated",
            similarity=f"{self.similarity:.2f}",
        )
        return f"{what}: {self.count} of {self.limit} calls" if self.rule else what

    def explain(self) -> str:
        """Return the verdict in plain English: the rule, the steps, how similar, and what would have been new."""
        if not self.rule:
            return self.words() + "."
        steps = ", ".join(map(str, self.steps))
        return f"{self.words()} (steps {steps}). {_NEW[self.rule]}"


OK = Verdict()


def verdict(
    rule: str,
    steps: Iterable[int],
    limit: int,
    *,
    count: int | None = None,
    similarity: float = 0.0,
    transient: bool = False,
    failed: bool = False,
) -> Verdict:
    """Return the verdict for `count` calls (as many as there are steps, if not said) of `limit`."""
    rested = tuple(steps)
    counted = len(rested) if count is None else count
    short = limit - counted
    level = Level.OK if counted == 0 or short > 2 else Level(3 - max(short, 0))
    return Verdict(
        level=level,
        rule=rule,
        count=counted,
        limit=limit,
        steps=rested,
        similarity=similarity,
        transient=transient,
        failed=failed,
    )


_WHAT = {
    "": "no loop: the call brought something new",
    "again": "{outcome}, for the same or a similar input (textual similarity at least {similarity})",
    "standstill": "{outcome} or seen before, call after call, with nothing new in between",
    "poll": "the same wait again and again, and the answer never changed",
    "unchanged": "{outcome}, for one call made again and again, whatever came in between",
    "transient": "infrastructure errors (429, 5xx, timeouts, lost connections) in a row",
    "inputs": "consecutive inputs of a tool are alike (textual similarity at least {similarity})",
}
_NEW = {
    "again": "New would have been another outcome than an earlier call's, times, generated ids and line numbers aside.",
    "standstill": "New would have been one call with an outcome that no earlier call of its tool had.",
    "poll": "New would have been an answer that differs from the one before.",
    "unchanged": "New would have been another outcome of that call.",
    "transient": "New would have been any answer of the tool itself.",
    "inputs": "New would have been an input that differs more; outcomes play no part in this rule.",
}
