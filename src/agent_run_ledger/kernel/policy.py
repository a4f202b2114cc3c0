"""The loop detector's settings: validated and plain, so that a run can store them."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger.errors import Misuse

RULES = ("outcome", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetectorPolicy:
    """When a run counts as looping. This version validates and stores the policy with each run; no rule judges yet.

    `max_repetitions`: how many repetitions trip the breaker, at least 1. `threshold`: cosine similarity above which
    two inputs count as similar, in (0, 1]. `rule`: "outcome" or "inputs".
    """

    max_repetitions: int = 3
    threshold: float = 0.92
    rule: str = "outcome"

    def __post_init__(self) -> None:
        """Refuse settings outside their range with Misuse("bad_policy")."""
        repetitions: object = self.max_repetitions
        if type(repetitions) is not int or repetitions < 1:
            raise Misuse(f"max_repetitions must be a whole number from 1 on, not {repetitions!r}", code="bad_policy")
        threshold: object = self.threshold
        if type(threshold) not in (int, float) or not 0 < self.threshold <= 1:
            raise Misuse(f"threshold must be a number above 0 and at most 1, not {threshold!r}", code="bad_policy")
        if self.rule not in RULES:
            raise Misuse(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}", code="bad_policy")

    def as_stored(self) -> dict[str, object]:
        """Return the plain form kept in the run's START record."""
        return {"max_repetitions": self.max_repetitions, "threshold": float(self.threshold), "rule": self.rule}
