"""The figures of `arl breaker eval` as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_run_ledger.cli.output import new_table, note, say, show, text
from agent_run_ledger.cli.words import counted

_COLUMNS = ("scored", "precision", "recall", "f1", "healthy_halted", "early_trips", "median_delay")
_KINDS = ("stuck", "healthy", "ambiguous")


def print_report(figures: Mapping[str, Any]) -> None:
    """Print the policy, the figures in all and by source, the confusion table and the costs."""
    say("policy: " + ", ".join(f"{name}={value}" for name, value in figures["policy"].items()))
    say(f"{counted(figures['replayed'], 'run')} replayed, {figures['tripped']:,} tripped")
    if figures["labelled"]:
        _print_scores(figures)
    missing = figures["labels_without_run"]
    if missing:
        note(f"{counted(len(missing), 'label')} without a run in the corpus, first {missing[0]}")
    solved = figures["successes"]
    if solved["resolved"]:
        share = _number(solved["killed_share"])
        say(f"recorded successes stopped: {solved['killed']} of {solved['resolved']} ({share})")
    if figures["calls"]:
        say(
            f"processor time per call: median {figures['us_per_call']} µs, 99 % below {figures['us_per_call_p99']} µs"
            f" ({counted(figures['calls'], 'call')})"
        )


def _print_scores(figures: Mapping[str, Any]) -> None:
    scores = new_table("source", *(name.replace("_", " ") for name in _COLUMNS), right=_headers())
    for source, one in {"all": figures, **figures["by_source"]}.items():
        scores.add_row(text(source), *(text(_number(one[name])) for name in _COLUMNS))
    confusion = new_table("said to be", "tripped", "passed", right=("tripped", "passed"))
    for kind in _KINDS:
        row = figures["confusion"][kind]
        confusion.add_row(kind, text(row["tripped"]), text(row["passed"]))
    say("")
    show(scores)
    say("")
    show(confusion)
    say("")


def _headers() -> tuple[str, ...]:
    return tuple(name.replace("_", " ") for name in _COLUMNS)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if value == int(value) else f"{value:.3f}"
