"""`arl doctor`: says whether this machine, this file and this configuration can keep what the ledger promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import new_table, print_json, show, text

if TYPE_CHECKING:
    from agent_run_ledger.cli.doctor_checks import Finding

_STYLES = {"ok": "green", "note": "", "warn": "yellow", "bad": "bold red"}


Sizes = Annotated[bool, typer.Option("--sizes", help="Also the size of every table and index; reads the whole file.")]


def doctor(sizes: Sizes = False, db: Db = None, as_json: Json = False) -> None:
    """Look at versions, the store, its file system, its growth and its disk; each finding says what to do."""
    from agent_run_ledger.cli.doctor_checks import examine
    from agent_run_ledger.cli.settings import db_setting

    found = examine(db_setting(db), sizes=sizes)
    if as_json:
        findings = [
            {"level": one.level, "subject": one.subject, "finding": one.words, "advice": one.advice}
            for one in found.findings
        ]
        print_json({"ok": found.exit_code == 0, "db": found.location, "findings": findings, "numbers": found.numbers})
    else:
        _print(found.findings)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _print(findings: list[Finding]) -> None:
    table = new_table("", "WHAT", "FINDING")
    for one in findings:
        words = text(one.words)
        if one.advice:
            words.append("\n")
            words.append_text(text(f"-> {one.advice}", "italic"))
        table.add_row(text(one.level, _STYLES[one.level]), text(one.subject), words)
    show(table)
