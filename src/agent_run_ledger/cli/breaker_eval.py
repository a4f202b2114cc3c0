"""`arl breaker eval`: replays recorded agent runs through the loop detector and prints how often it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agent_run_ledger.cli.options import Json
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from agent_run_ledger.cli.breaker_corpus import Key, Label, Trajectory
    from agent_run_ledger.kernel.policy import LoopDetectorPolicy

Corpus = Annotated[
    list[Path],
    typer.Option("--corpus", metavar="PATH", help="Runs: a .jsonl file or a folder of them; may come again."),
]
Labels = Annotated[
    list[Path] | None, typer.Option("--labels", metavar="FILE", help="What people said of the runs; may come again.")
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="JSON", help='All settings as an object, or a rule: {"rule": "inputs"}.'),
]
MaxRepetitions = Annotated[int | None, typer.Option("--max-repetitions", metavar="N", help="Of the policy.")]
Threshold = Annotated[float | None, typer.Option("--threshold", metavar="COSINE", help="Of the policy.")]
Rule = Annotated[str | None, typer.Option("--rule", metavar="NAME", help="Of the policy: outcome, inputs or off.")]
Window = Annotated[int | None, typer.Option("--window", metavar="CALLS", help="Of the policy.")]


def breaker_eval(
    corpus: Corpus,
    labels: Labels = None,
    policy: Policy = None,
    max_repetitions: MaxRepetitions = None,
    threshold: Threshold = None,
    rule: Rule = None,
    window: Window = None,
    as_json: Json = False,
) -> None:
    """Replay recorded runs through the loop detector: trips, and with labels precision, recall, F1 and delays."""
    from agent_run_ledger.cli.breaker_score import Evaluation, report
    from agent_run_ledger.cli.output import print_json, progress

    settings = {"max_repetitions": max_repetitions, "threshold": threshold, "rule": rule, "window": window}
    evaluation = Evaluation(_policy(policy, settings))
    told = _labels(labels or [])
    runs = _trajectories(corpus)
    with progress("runs", quiet=as_json) as show:
        for done, run in enumerate(runs, start=1):
            if run.label is not None:
                told.setdefault(run.key, run.label)
            evaluation.replay(run)
            show(done, len(runs))
    figures = report(evaluation, told.values())
    if as_json:
        print_json(figures)
    else:
        from agent_run_ledger.cli.breaker_words import print_report

        print_report(figures)


def _policy(given: str | None, single: dict[str, Any]) -> LoopDetectorPolicy:
    from agent_run_ledger.kernel.policy import RULES, LoopDetectorPolicy

    settings: dict[str, Any] = {}
    if given in RULES:
        settings["rule"] = given
    elif given is not None:
        try:
            read: object = json.loads(given)
        except ValueError:
            read = None
        if not isinstance(read, dict):
            raise Misuse(f"--policy must be a JSON object or one of {', '.join(RULES)}, not {given!r}", code="usage")
        settings = cast("dict[str, Any]", read)
    settings |= {name: value for name, value in single.items() if value is not None}
    try:
        return LoopDetectorPolicy(**settings)
    except TypeError:
        known = ", ".join(single)
        raise Misuse(f"--policy has a setting that there is not; there are {known}", code="usage") from None


def _trajectories(places: list[Path]) -> list[Trajectory]:
    """Return all runs; one that is given twice counts once."""
    from agent_run_ledger.cli.breaker_corpus import corpus_files, read_trajectories

    runs: dict[Key, Trajectory] = {}
    for file in corpus_files(places):
        for run in read_trajectories(file):
            runs.setdefault(run.key, run)
    return list(runs.values())


def _labels(files: list[Path]) -> dict[Key, Label]:
    from agent_run_ledger.cli.breaker_corpus import read_labels

    told: dict[Key, Label] = {}
    for file in files:
        told |= read_labels(file)
    return told
