"""The loop detector's settings: validated and plain, so that a run can store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent_run_ledger.errors import Misuse

RULES: Final = ("outcome", "inputs", "off")
WINDOW: Final = 40
"""Calls that the detector looks back over, where a policy does not say."""

_WINDOWS: Final = range(2, 1001)
_REPETITIONS: Final = range(1, 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectorPolicy:
    """When a run counts as looping. Stored with each run.

    `max_repetitions`: how many calls that repeat one call trip the breaker, 1 to 100; the other limits are multiples of
    it. `threshold`: cosine of character 3-gram counts above which (strictly) two inputs count as similar, in (0, 1].
    `window`: calls that are looked back over, 2 to 1000; a limit that needs more sees more.

    `rule`: "outcome" counts a call only if its outcome brought nothing new either. "inputs" is the plain rule: so many
    calls of a tool whose inputs are each similar to the one before, whatever came out. It is here for comparison: it
    halts 48 of 161 real runs that are labelled healthy (30 %), and 26 of 198 that solved their task (13 %). "outcome",
    which was made with a look at the same runs, halts 1 and 6. "off" judges nothing.

    Settings outside their range are Misuse("bad_policy").
    """

    max_repetitions: int = 3
    threshold: float = 0.92
    rule: str = "outcome"
    window: int = WINDOW

    def __post_init__(self) -> None:
        """Refuse settings outside their range with Misuse("bad_policy")."""
        _check_whole("max_repetitions", self.max_repetitions, _REPETITIONS)
        _check_whole("window", self.window, _WINDOWS)
        threshold: object = self.threshold
        if type(threshold) not in (int, float) or not 0 < self.threshold <= 1:
            raise Misuse(f"threshold must be a number above 0 and at most 1, not {threshold!r}", code="bad_policy")
        if self.rule not in RULES:
            raise Misuse(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}", code="bad_policy")

    def as_stored(self) -> dict[str, object]:
        """Return the plain form kept in the run's START record; a window of 40 is left out."""
        stored: dict[str, object] = {
            "max_repetitions": self.max_repetitions,
            "threshold": float(self.threshold),
            "rule": self.rule,
        }
        return stored if self.window == WINDOW else stored | {"window": self.window}


def _check_whole(name: str, value: object, allowed: range) -> None:
    if type(value) is not int or value not in allowed:
        first, last = allowed[0], allowed[-1]
        raise Misuse(f"{name} must be a whole number from {first} to {last}, not {value!r}", code="bad_policy")
