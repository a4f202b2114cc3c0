"""Tries the loop breaker on labelled runs: the default policy, a sweep of settings, and what each care is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_run_ledger.cli.breaker_corpus import Key, Label, Trajectory, corpus_files, read_labels, read_trajectories
from agent_run_ledger.cli.breaker_score import Evaluation, Score, report
from agent_run_ledger.kernel.loops import Detector, Glimpse, Level, glimpse_of
from agent_run_ledger.kernel.loops import glimpse as flag
from agent_run_ledger.kernel.policy import LoopDetectorPolicy

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0)
REPETITIONS = (2, 3, 4, 5, 6)
RULES = ("outcome", "inputs")

Change = Callable[[Glimpse], Glimpse]

WITHOUT: dict[str, Change | LoopDetectorPolicy] = {
    "similar inputs (only equal ones count)": LoopDetectorPolicy(threshold=1),
    "near-duplicate outcomes": lambda one: replace(one, pairs=()),
    "generated names and line numbers taken out": lambda one: replace(one, bare=one.came, pairs=()),
    "inputs that go through numbered things": lambda one: replace(one, form=one.given),
    "waits": lambda one: replace(one, flags=one.flags & ~(flag.POLL | flag.WAIT)),
    "infrastructure errors apart": lambda one: replace(one, flags=one.flags & ~flag.TRANSIENT),
    "care with small answers": lambda one: replace(one, flags=one.flags & ~(flag.SILENT | flag.DONE | flag.SMALL)),
    "a window beyond 12 calls": LoopDetectorPolicy(window=12),
}
"""What is left out of the rule, as a change of every glimpse or another policy."""


def read_corpus(places: Iterable[Path]) -> dict[Key, Trajectory]:
    """Return the runs by key."""
    return {run.key: run for file in corpus_files(places) for run in read_trajectories(file)}


def measure(runs: dict[Key, Trajectory], labels: dict[str, Path]) -> dict[str, Any]:
    """Return everything that the page and the picture show; `labels` are files by the name of their set."""
    sets = {name: list(read_labels(file).values()) for name, file in labels.items()}
    every = [label for told in sets.values() for label in told if label.key in runs]
    evaluation = Evaluation(LoopDetectorPolicy())
    for run in runs.values():
        evaluation.replay(run)
    seen = {label.key: [glimpse_of(call) for call in runs[label.key].calls] for label in every}
    by_rule = Counter(run.rule for run in evaluation.runs if run.rule is not None)
    return {
        "policy": LoopDetectorPolicy().as_stored(),
        "runs": len(runs),
        "calls": evaluation.cost()["calls"],
        "successes": evaluation.successes(),
        "trips_by_rule": dict(by_rule.most_common()),
        "sets": {name: _figures(evaluation, told) for name, told in sets.items()},
        "all": _figures(evaluation, every),
        "plain": _scored(every, seen, LoopDetectorPolicy(rule="inputs")).figures(),
        "without": {name: _without(every, seen, change) for name, change in WITHOUT.items()},
        "sweep": list(_sweep(every, seen)),
    }


def _figures(evaluation: Evaluation, labels: Sequence[Label]) -> dict[str, Any]:
    figures = report(evaluation, labels)
    kept = ("scored", "precision", "recall", "f1", "healthy_halted", "early_trips", "median_delay", "confusion")
    return {key: figures[key] for key in kept}


def _sweep(labels: Sequence[Label], seen: dict[Key, list[Glimpse]]) -> Iterable[dict[str, Any]]:
    for rule in RULES:
        for repetitions in REPETITIONS:
            for threshold in THRESHOLDS:
                policy = LoopDetectorPolicy(rule=rule, max_repetitions=repetitions, threshold=threshold)
                figures = _scored(labels, seen, policy).figures()
                yield {
                    "rule": rule,
                    "max_repetitions": repetitions,
                    "threshold": threshold,
                    "f1": figures["f1"],
                    "healthy_halted": figures["healthy_halted"],
                }


def _without(
    labels: Sequence[Label], seen: dict[Key, list[Glimpse]], change: Change | LoopDetectorPolicy
) -> dict[str, Any]:
    if isinstance(change, LoopDetectorPolicy):
        return _scored(labels, seen, change).figures()
    changed = {key: [change(one) for one in glimpses] for key, glimpses in seen.items()}
    return _scored(labels, changed, LoopDetectorPolicy()).figures()


def _scored(labels: Sequence[Label], seen: dict[Key, list[Glimpse]], policy: LoopDetectorPolicy) -> Score:
    score = Score()
    for label in labels:
        detector = Detector(policy)
        verdicts = (detector.observe(number, one) for number, one in enumerate(seen[label.key]))
        trips = (number for number, verdict in enumerate(verdicts) if verdict.level is Level.QUARANTINE)
        score.add(label, next(trips, None))
    return score
