"""Replays recorded runs through the loop detector and scores its trips against what people said of the runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import thread_time_ns

from agent_run_ledger.cli.breaker_corpus import Label, Trajectory
from agent_run_ledger.kernel.loops import Detector, Level, glimpse_of
from agent_run_ledger.kernel.policy import LoopDetectorPolicy

EARLY = 3
"""A trip more than so many steps before the step at which a person would have stopped the run is early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the detector did with a run. `trip`: the step, from 0, at which it would have stopped it; None: never."""

    source: str
    trajectory_id: str
    steps: int
    trip: int | None
    rule: str | None
    resolved: bool


@dataclass(slots=True, kw_only=True)
class Score:
    """Counts of labelled runs; ambiguous ones are replayed and not scored."""

    stuck_tripped: int = 0
    stuck_missed: int = 0
    healthy_tripped: int = 0
    healthy_passed: int = 0
    ambiguous_tripped: int = 0
    ambiguous_passed: int = 0
    early: int = 0
    delays: list[int] = field(default_factory=list[int])

    def add(self, label: Label, trip: int | None) -> None:
        """Count one run."""
        kind = label.label
        if trip is not None and label.stop is not None and kind == "stuck":
            self.delays.append(trip - label.stop)
            self.early += trip < label.stop - EARLY
        if kind == "stuck":
            self.stuck_tripped += trip is not None
            self.stuck_missed += trip is None
        elif kind == "healthy":
            self.healthy_tripped += trip is not None
            self.healthy_passed += trip is None
        else:
            self.ambiguous_tripped += trip is not None
            self.ambiguous_passed += trip is None

    def figures(self) -> dict[str, object]:
        """Return the figures: precision, recall, F1, share of healthy runs halted, early trips, median delay in steps.

        Precision and recall of the class "stuck"; F1 is their harmonic mean. A figure without runs is None.
        """
        precision = _share(self.stuck_tripped, self.stuck_tripped + self.healthy_tripped)
        recall = _share(self.stuck_tripped, self.stuck_tripped + self.stuck_missed)
        doubled = 2 * self.stuck_tripped
        return {
            "scored": self.stuck_tripped + self.stuck_missed + self.healthy_tripped + self.healthy_passed,
            "precision": precision,
            "recall": recall,
            "f1": _share(doubled, doubled + self.healthy_tripped + self.stuck_missed),
            "healthy_halted": _share(self.healthy_tripped, self.healthy_tripped + self.healthy_passed),
            "early_trips": self.early,
            "median_delay": median(self.delays) if self.delays else None,
            "confusion": {
                "stuck": {"tripped": self.stuck_tripped, "passed": self.stuck_missed},
                "healthy": {"tripped": self.healthy_tripped, "passed": self.healthy_passed},
                "ambiguous": {"tripped": self.ambiguous_tripped, "passed": self.ambiguous_passed},
            },
        }


class Evaluation:
    """Replays runs one after another and keeps what came out, and what each call cost."""

    def __init__(self, policy: LoopDetectorPolicy) -> None:
        """Begin with nothing replayed."""
        self.policy = policy
        self.runs: list[Replayed] = []
        self._costs: list[int] = []

    def replay(self, run: Trajectory) -> Replayed:
        """Replay one run to its end: glimpse and verdict of every call, as in a run that is not stopped."""
        detector = Detector(self.policy)
        trip: int | None = None
        rule: str | None = None
        for number, call in enumerate(run.calls):
            begun = thread_time_ns()
            verdict = detector.observe(number, glimpse_of(call))
            self._costs.append(thread_time_ns() - begun)
            if trip is None and verdict.level is Level.QUARANTINE:
                trip, rule = number, verdict.rule
        source, name = run.key
        done = Replayed(
            source=source, trajectory_id=name, steps=len(run.calls), trip=trip, rule=rule, resolved=run.resolved
        )
        self.runs.append(done)
        return done

    def cost(self) -> dict[str, object]:
        """Return calls, and microseconds of processor time per call: the median, and what 99 of 100 stay below."""
        ranked = sorted(self._costs)
        if not ranked:
            return {"calls": 0, "us_per_call": None, "us_per_call_p99": None}
        middle, late = median(ranked), ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)]
        return {
            "calls": len(ranked),
            "us_per_call": round(middle / 1000, 1),
            "us_per_call_p99": round(late / 1000, 1),
        }

    def successes(self) -> dict[str, object]:
        """Return how many runs solved their task, how many of them were stopped before, and the share."""
        solved = [run for run in self.runs if run.resolved]
        killed = sum(run.trip is not None for run in solved)
        return {"resolved": len(solved), "killed": killed, "killed_share": _share(killed, len(solved))}


def report(evaluation: Evaluation, labels: Iterable[Label]) -> dict[str, object]:
    """Return everything `arl breaker eval` prints, as plain values; labels without a run are counted apart."""
    trips = {(run.source, run.trajectory_id): run.trip for run in evaluation.runs}
    total, by_source, without = Score(), dict[str, Score](), list[Label]()
    labelled = 0
    for label in labels:
        if label.key not in trips:
            without.append(label)
            continue
        labelled += 1
        total.add(label, trips[label.key])
        by_source.setdefault(label.key[0], Score()).add(label, trips[label.key])
    policy = evaluation.policy
    return {
        "policy": policy.as_stored() | {"window": policy.window},
        **total.figures(),
        "labelled": labelled,
        "labels_without_run": [f"{label.key[0]} {label.key[1]}" for label in without],
        **evaluation.cost(),
        "successes": evaluation.successes(),
        "tripped": sum(run.trip is not None for run in evaluation.runs),
        "replayed": len(evaluation.runs),
        "by_source": {source: score.figures() for source, score in sorted(by_source.items())},
        "runs": [
            {key: value for key, value in asdict(run).items() if key not in ("steps", "resolved")}
            for run in evaluation.runs
        ],
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
