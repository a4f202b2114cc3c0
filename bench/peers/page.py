"""The tables of a report, as Markdown for the page and as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from agent_run_ledger.benchmark.figures import number
from bench.peers.report import Report, troubles

BEGIN = "<!-- The tables from here on are written by `make bench-peers` from bench/results/peers.json. -->"
END = "<!-- Here ends what is written from bench/results/peers.json. -->"
NONE = "–"

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}

Row = dict[str, Any]
Columns = Sequence[tuple[str, Callable[[Row], str]]]


def cost(one: Row) -> list[str]:
    """Return the cells of what a step costs."""
    return [
        _speed(one, "steps_per_s"),
        _speed(one, "floor_to_it"),
        _median(one["cpu_us_per_step"]),
        _median(one["bytes_per_step"]),
        NONE if one["syncs_per_step"] is None else number(one["syncs_per_step"]),
    ]


def kills(one: Row) -> list[str]:
    """Return the cells of what kills did, and how long the way back took."""
    quick, slow = one["kills"], one["slow_kills"]
    return [
        _again(quick),
        _again(slow),
        NONE if quick is None else " or ".join(f"{times} ×" for times in quick["killed_body_ran"]),
        _bad_ends(quick, slow),
        _spread(one["restore_ms"]),
        _spread(one["first_new_step_s"]),
    ]


def made_of(one: Row) -> list[str]:
    """Return the cells of what was measured: versions with licences, and the settings that its connection told."""
    versions = "; ".join(f"{name} {version}" for name, version in one["versions"].items())
    settings = one["settings"]
    level = _SYNCHRONOUS.get(settings.get("synchronous"), NONE)
    journal = str(settings.get("journal_mode", NONE)).upper()
    return [versions or NONE, f"{journal}, {level}" if settings else "not asked", settings.get("sqlite", NONE)]


def section(report: Report) -> str:
    """Return the Markdown between BEGIN and END, both included."""
    plan, rows = report["plan"], report["contenders"]
    slow = f"{plan['slow_body_ms']:.0f} ms"
    tables = [
        f"**What a step costs** ({plan['rounds']} rounds of {plan['steps']:,} steps)",
        _markdown(("steps/s", "floor ÷ it", "CPU µs/step", "bytes/step", "syncs/step"), rows, cost),
        f"**After kill -9 inside a step** ({plan['kills']} kills with bodies that take no time, {plan['slow_kills']} "
        f"with bodies of {slow}; {plan['restores']} restarts with {plan['recorded']} steps on disk)",
        _markdown(
            (
                "finished steps that ran again",
                f"the same, bodies of {slow}",
                "the killed body ran",
                "steps that never ran",
                f"restore {plan['recorded']}, ms",
                "process start to first new step, s",
            ),
            rows,
            kills,
        ),
        "**What was measured**",
        _markdown(("versions and licences", "journal, synchronous", "SQLite"), rows, made_of),
        _measured_on(report),
        *[f"Not measured, or not to the end: {line}." for line in troubles(report)],
    ]
    return "\n\n".join((BEGIN, *tables, END))


def rewritten(page: str, report: Report) -> str:
    """Return a page with its section replaced by that of `report`; ValueError where it has not exactly one."""
    found = re.findall(f"{re.escape(BEGIN)}.*?{re.escape(END)}", page, re.DOTALL)
    if len(found) != 1 or page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError("the page must hold the two marks of the tables exactly once, in order")
    return page.replace(found[0], section(report))


def terminal(report: Report) -> str:
    """Return the two tables with numbers for a terminal, and what went wrong."""
    plan, rows = report["plan"], report["contenders"]
    return "\n".join(
        (
            _columns(("steps/s", "floor ÷ it", "CPU µs", "bytes", "syncs per step"), rows, cost),
            "",
            "After kill -9 inside a step: finished steps that ran again",
            _columns(
                (
                    "bodies of 0 ms",
                    f"{plan['slow_body_ms']:.0f} ms",
                    "killed body",
                    "never ran",
                    f"restore {plan['recorded']}, ms",
                    "first new step, s",
                ),
                rows,
                kills,
            ),
            "",
            *(f"NOT MEASURED {line}" for line in troubles(report)),
            _measured_on(report),
        )
    )


def _again(killed: Row | None) -> str:
    if killed is None:
        return NONE
    kills_made = f"{killed['count']} kill{'s' if killed['count'] != 1 else ''}"
    if not killed["with_loss"]:
        return f"0 in {kills_made}"
    return f"{killed['run_again']} in {killed['with_loss']} of {kills_made}, at most {killed['most_run_again']}"


def _bad_ends(*several: Row | None) -> str:
    killed = [one for one in several if one is not None]
    if not killed:
        return NONE
    stuck = sum(one["could_not_go_on"] for one in killed)
    never = str(sum(one["never_ran"] for one in killed))
    return f"{never}; {stuck} runs could not go on" if stuck else never


def _speed(one: Row, name: str) -> str:
    noisy = "" if one["quiet"] or one[name] is None else "noisy: "
    return noisy + _spread(one[name])


def _spread(value: Row | None) -> str:
    if value is None:
        return NONE
    if value["count"] == 1:
        return number(value["median"])
    return f"{number(value['median'])} ({number(value['low'])}–{number(value['high'])})"


def _median(value: Row | None) -> str:
    return NONE if value is None else number(value["median"])


def _measured_on(report: Report) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    noisy = sum(one["noisy_rounds"] for one in report["contenders"])
    lives = sum(len(raw["speed"]) for raw in report["raw"].values())
    took = f"The run took {report['took_s']:.0f} s; {noisy} of {lives} timed lives had a noisy disk."
    return f"Measured on: {machine}. {took}"


def _markdown(headings: Sequence[str], rows: Sequence[Row], cells: Callable[[Row], list[str]]) -> str:
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    lines += [f"| {row['title']} | {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines)


def _columns(headings: Sequence[str], rows: Sequence[Row], cells: Callable[[Row], list[str]]) -> str:
    table = [["", *headings], *([row["title"], *cells(row)] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )
