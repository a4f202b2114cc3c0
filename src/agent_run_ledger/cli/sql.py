"""`arl sql --readonly`: questions to the store in SQL, through the one opener, with every write refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import console, new_table, note, print_json, text
from agent_run_ledger.cli.words import counted
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from agent_run_ledger.store.sqlite import Rows

Statement = Annotated[str, typer.Argument(metavar="SELECT", help="One statement.")]
Readonly = Annotated[bool, typer.Option("--readonly", help="Required: there is no other way.")]
_CELL = 500


def sql(statement: Statement, readonly: Readonly = False, db: Db = None, as_json: Json = False) -> None:
    """Ask the store in SQL. Read-only: this opens the file safely beside running attempts, sqlite3 does not."""
    from agent_run_ledger.cli.stores import reading

    if not readonly:
        raise Misuse("arl sql only reads", code="usage", hint="say so with --readonly")
    with reading(db) as store:
        rows = store.query(statement)
        if as_json:
            _print_lines(rows)
        else:
            _print_table(rows)


def _print_lines(rows: Rows) -> None:
    for row in rows:
        named = dict(zip(rows.columns, map(_json_cell, row), strict=True))
        print_json(named, lines=True)


def _print_table(rows: Rows) -> None:
    table = new_table(*rows.columns)
    count = 0
    for row in rows:
        table.add_row(*(text(_cell(value)) for value in row))
        count += 1
    if rows.columns:
        console().print(table)
    note(counted(count, "row"))


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    shown = value.hex() if isinstance(value, bytes) else str(value)
    return shown if len(shown) <= _CELL else f"{shown[:_CELL]}… ({len(shown):,} characters; --json has all)"


def _json_cell(value: object) -> object:
    """Return a value as JSON has it: bytes as hex, and what JSON has no number for as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value
