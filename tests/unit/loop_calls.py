"""Short ways to write sequences of calls for tests of the loop rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_run_ledger.kernel.loops import Call, Detector, Glimpse, Level, Verdict, glimpse_of
from agent_run_ledger.kernel.policy import LoopDetectorPolicy


def call(tool: str, outcome: object = None, error: str | None = None, **arguments: object) -> Call:
    """One call; rules of its tool are left at their defaults."""
    return Call(tool=tool, arguments=arguments, outcome=outcome, error=error)


def verdicts(
    calls: Iterable[Call | Glimpse], policy: LoopDetectorPolicy | None = None, **settings: Any
) -> list[Verdict]:
    """The verdict after each call of a run."""
    detector = Detector(policy or LoopDetectorPolicy(**settings))
    return [
        detector.observe(number, glimpse_of(one) if isinstance(one, Call) else one) for number, one in enumerate(calls)
    ]


def trip(calls: Iterable[Call | Glimpse], policy: LoopDetectorPolicy | None = None, **settings: Any) -> int | None:
    """The step, from 0, at which the run is stopped; None where it is not."""
    judged = verdicts(calls, policy, **settings)
    return next((number for number, one in enumerate(judged) if one.level is Level.QUARANTINE), None)
