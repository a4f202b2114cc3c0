"""Where output goes and how: what was asked for on stdout, progress and messages on stderr, JSON in ASCII."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from agent_run_ledger.cli.words import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 10_000
"""Into a pipe nothing is wrapped or cut: what reads it wants whole lines."""

_UNBOUNDED = 1_000_000


class Progress(Protocol):
    """Tells how much of a known amount is done."""

    def __call__(self, done: int, total: int, /) -> None:
        """Show that `done` of `total` is done."""
        ...


def console() -> Console:
    """Return the console of stdout: no markup, no styles with NO_COLOR or into a pipe, COLUMNS respected."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=sys.stdout, markup=False, emoji=False, highlight=False, width=width, color_system=colours)


def show(*renderables: RenderableType) -> None:
    """Print tables, trees and texts on stdout; into a pipe without the spaces that fill up a line."""
    out = console()
    if out.is_terminal:
        for renderable in renderables:
            out.print(renderable)
        return
    with out.capture() as captured:
        for renderable in renderables:
            out.print(renderable)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def new_table(*headers: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table in the style of the house; the columns in `right` hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for header in headers:
        if header in right:  # a number that is cut in two is another number: other columns fold first
            table.add_column(clean(header), justify="right", overflow="fold", no_wrap=True)
        else:
            table.add_column(clean(header), overflow="fold")
    return table


def new_grid() -> Table:
    """Return an empty table of two columns without lines or headers: names, and values that fold beside them."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    return grid


def show_named(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, in two columns; on a terminal what is long folds in its column."""
    grid = new_grid()
    for name, words in lines:
        grid.add_row(text(f"{name:<8}"), text(words))
    if lines:
        show(grid)


def show_rows(names: Sequence[str], rows: Sequence[Sequence[str]], *, right: tuple[str, ...] = ()) -> None:
    """Print a table where no cell has to be folded for it, else one block of lines for each row."""
    table = new_table(*names, right=right)
    for row in rows:
        table.add_row(*map(text, row))
    if fits(table):
        show(table)
        return
    for row in rows:
        grid = new_grid()
        for name, words in zip(names, row, strict=True):
            grid.add_row(text(name.lower(), "bold"), text(words))
        show(grid, text(""))


def fits(table: Table) -> bool:
    """Return whether no cell of the table has to be folded to fit the width of stdout."""
    out = console()
    room = out.options.update(max_width=_UNBOUNDED)
    return out.measure(table, options=room).maximum <= out.width


def without_last_column(table: Table) -> Table:
    """Return the table without its last column."""
    del table.columns[-1]
    return table


def text(value: object, style: str = "") -> Text:
    """Return foreign or own text for a table or a tree, made safe and never read as markup."""
    from rich.text import Text

    return Text(clean(value), style=style, overflow="fold")


def say(line: str) -> None:
    """Print one line of ours on stdout."""
    sys.stdout.write(f"{line}\n")


def note(line: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(f"{line}\n")


def print_json(value: object, *, lines: bool = False) -> None:
    """Print one JSON value on stdout, in ASCII: control and bidi characters of foreign text stay escaped.

    Indented for people on a terminal, one line into a pipe or where `lines` asks for JSON Lines.
    """
    sys.stdout.write(to_json(value, indent=2 if sys.stdout.isatty() and not lines else None) + "\n")


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return the value as ASCII JSON; bytes are hex, everything without a JSON form its name."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=True, indent=indent, separators=separators, default=_plain)


def ascii_only() -> bool:
    """Return whether stdout cannot show more than ASCII."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return not encoding.startswith("utf")


@contextmanager
def progress(title: str, *, quiet: bool) -> Generator[Progress, None, None]:
    """Show a progress bar on stderr while the block runs; nothing where stderr is no terminal or `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    stderr = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=stderr, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def paint(line: str, code: str, *, stream_is_tty: bool) -> str:
    """Return the line in an ANSI style, where the stream is a terminal that wants colours."""
    plain = not stream_is_tty or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return line if plain else f"\x1b[{code}m{line}\x1b[0m"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
