"""A line for a tree that breaks between its parts and never inside one, as long as a part fits the width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from agent_run_ledger.cli.output import text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

SEPARATOR = " · "


class Parts:
    """Parts with " · " between them; a part that does not fit behind the others begins a line of its own."""

    def __init__(self, parts: Sequence[str | Text], style: str = "") -> None:
        self._parts = [part if isinstance(part, Text) else text(part, style) for part in parts]
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        line: Text | None = None
        for part in self._parts:
            if line is None:
                line = part.copy()
            elif line.cell_len + len(SEPARATOR) + part.cell_len <= options.max_width:
                line.append(SEPARATOR, self._style).append_text(part)
            else:
                yield line
                line = part.copy()
        if line is not None:
            yield line
