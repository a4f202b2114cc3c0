"""`arl sql --readonly`: questions to the store in SQL, through its one opener, with every write refused."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import fits, new_grid, new_table, note, print_json, show, text
from agent_run_ledger.cli.words import counted
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from agent_run_ledger.store.rows import Rows

Statement = Annotated[str, typer.Argument(metavar="SELECT", help="One statement.")]
Readonly = Annotated[bool, typer.Option("--readonly", help="Required: there is no other way.")]
_CELL = 500


def sql(statement: Statement, readonly: Readonly = False, db: Db = None, as_json: Json = False) -> None:
    """Ask the store in SQL. Read-only: this opens a file safely beside running attempts, sqlite3 does not."""
    from agent_run_ledger.cli.stores import reading

    if not readonly:
        raise Misuse("arl sql only reads", code="usage", hint="say so with --readonly")
    with reading(db) as store, _interruptible():
        rows = store.query(statement)
        if as_json:
            _print_lines(rows)
        else:
            _print_table(rows)


@contextmanager
def _interruptible() -> Generator[None, None, None]:
    """Let Ctrl-C end the process at once: SQLite may compute for hours without giving Python a turn.

    This process only reads, so its sudden death harms nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_lines(rows: Rows) -> None:
    names = _distinct(rows.columns)
    for row in rows:
        print_json(dict(zip(names, map(_json_cell, _checked(row, names)), strict=True)), lines=True)


def _print_table(rows: Rows) -> None:
    cells = [[_cell(value) for value in _checked(row, rows.columns)] for row in rows]
    if rows.columns:
        table = new_table(*rows.columns)
        for row in cells:
            table.add_row(*map(text, row))
        if fits(table) or not cells:
            show(table)
        else:
            show(*_records(rows.columns, cells))
    note(counted(len(cells), "row"))


def _records(columns: tuple[str, ...], cells: list[list[str]]) -> list[Text | Table]:
    """Return each row as lines of "column: value", for tables that are wider than the terminal."""
    shown: list[Text | Table] = []
    for number, row in enumerate(cells, 1):
        record = new_grid()
        for name, value in zip(columns, row, strict=True):
            record.add_row(text(f"{name}:", "dim"), text(value))
        shown += [text(f"row {number}", "bold"), record]
    return shown


def _checked(row: tuple[object, ...], columns: tuple[str, ...]) -> tuple[object, ...]:
    """Return the row; Misuse where a second statement gave rows of another width."""
    if len(row) != len(columns):
        raise Misuse("these are several statements", code="usage", hint="give one SELECT at a time")
    return row


def _distinct(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the column names with a number added where a name comes again, so that JSON loses none."""
    seen: dict[str, int] = {}
    names: list[str] = []
    for column in columns:
        seen[column] = seen.get(column, 0) + 1
        names.append(column if seen[column] == 1 else f"{column}_{seen[column]}")
    return tuple(names)


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
