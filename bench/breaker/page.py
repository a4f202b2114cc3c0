"""The tables of the guide's page about the loop breaker, written between its two marks."""

from __future__ import annotations

from typing import Any

BEGIN = "<!-- The tables from here on are written by `python -m bench.breaker` from bench/results/breaker.json. -->"
END = "<!-- Here ends what is written from bench/results/breaker.json. -->"

_FIGURES = ("scored", "precision", "recall", "f1", "healthy_halted", "early_trips", "median_delay")
_HEAD = "| | scored runs | precision | recall | F1 | healthy halted | early trips | median delay |"


def section(report: dict[str, Any]) -> str:
    """Return the Markdown between BEGIN and END, both included."""
    solved = report["successes"]
    confusion = report["all"]["confusion"]
    rules = ", ".join(f"{rule} {count:,}" for rule, count in report["trips_by_rule"].items())
    lines = [
        BEGIN,
        "",
        _HEAD,
        "|---|---|---|---|---|---|---|---|",
        *(_row(name, figures) for name, figures in report["sets"].items()),
        _row("all of them", report["all"]),
        _row('all of them, `rule="inputs"`', report["plain"]),
        "",
        f"Of {solved['resolved']} runs that are recorded as solved it stops {solved['killed']}"
        f" ({_percent(solved['killed_share'])}). Trips by rule, in all {report['runs']:,} runs: {rules}.",
        "",
        "| said to be | tripped | passed |",
        "|---|---|---|",
        *(f"| {kind} | {row['tripped']} | {row['passed']} |" for kind, row in confusion.items()),
        "",
        "| the rule without | precision | recall | F1 | healthy halted |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {_share(one['precision'])} | {_share(one['recall'])} | {_share(one['f1'])}"
            f" | {_percent(one['healthy_halted'])} |"
            for name, one in report["without"].items()
        ),
        "",
        END,
    ]
    return "\n".join(lines)


def rewritten(text: str, report: dict[str, Any]) -> str:
    """Return a page with its section written anew. ValueError where a mark is not there exactly once."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError("each mark must be in the page exactly once")
    before, rest = text.split(BEGIN)
    return before + section(report) + rest.split(END)[1]


def _row(name: str, figures: dict[str, Any]) -> str:
    scored, precision, recall, f1, halted, early, delay = (figures[key] for key in _FIGURES)
    shares = f"{_share(precision)} | {_share(recall)} | {_share(f1)} | {_percent(halted)}"
    return f"| {name} | {scored} | {shares} | {early} | {'–' if delay is None else f'{delay:g}'} |"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
