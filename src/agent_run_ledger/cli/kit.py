"""`arl kit`: takes a tool with effects through crashes and lost replies, and says which guarantee it really has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent_run_ledger.cli.options import Json, Server

if TYPE_CHECKING:
    from agent_run_ledger.testing.effect_verdicts import KitReport, Row

Case = Annotated[str, typer.Argument(metavar="CASE", help="module:CASE or file.py:CASE, an EffectCase.")]
Quick = Annotated[bool, typer.Option("--quick", help="The short form, under a minute.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="SCENARIO", help="This one alone, by its name; may come again.")
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="A new folder, in which everything is kept.")
]

WIDE: Final = 120
"""From so many columns on there is room for what was seen."""

_STYLES: Final = {
    "holds": "green",
    "open": "yellow",
    "UNSAFE, expected": "bold yellow",
    "not run": "dim",
    "not met": "dim",
}


def kit(
    case: Case,
    quick: Quick = False,
    only: Only = None,
    output: Output = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Kill a tool's workers, lose its replies, repeat its requests, and count what happened at its target.

    Only at a target that may be acted on: each scenario does one effect, some of them two. Exit codes: 0 as much is
    shown as is claimed; 1 less is, the probe lies, or something could not be carried out; 2 the case does not work.
    """
    from agent_run_ledger.cli.output import print_json, progress
    from agent_run_ledger.testing.effect_kit import run_kit

    with progress("scenarios", quiet=as_json) as show_progress:
        report = run_kit(case, quick=quick, only=only or (), folder=output, tell=show_progress, server=server)
    if as_json:
        print_json(report.as_json())
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(1)


def _show(report: KitReport) -> None:
    from agent_run_ledger.cli.output import console, new_table, show, text

    headers = ("scenario", "happened", "on record", "verdict")
    wide = console().width >= WIDE
    table = new_table(*headers, "what was seen") if wide else new_table(*headers)
    for row in report.rows:
        judged = report.judged(row)
        cells = [text(row.title), text(row.times), text(row.state), text(judged, _STYLES.get(judged, "bold red"))]
        table.add_row(*cells, *([text(row.words)] if wide else []))
    show(table, text(""))
    if not wide:
        for row in report.rows:
            if _is_news(report, row):
                show(text(f"{row.title}: {row.words}"))
    for finding in report.findings:
        show(text(finding))
    show(text(report.verdict, "bold green" if report.ok else "bold red"))


def _is_news(report: KitReport, row: Row) -> bool:
    """Return whether what was seen must be told where there is no room for all of it."""
    return report.judged(row) not in ("holds", "not run", "not met", "NOT CARRIED OUT")
