"""Long lines on a terminal: folded under what they belong to, so that no foreign text begins a line of its own."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

from agent_run_ledger.cli.output import note, say

HANG = "  "
"""What the further parts of a line of words begin with."""

GOES_ON = "> "
"""What the further parts of an exact line begin with: nothing that is shown exactly begins so."""

_LEAST = 20


def stdout_width() -> int | None:
    """Return how wide stdout is, None for a pipe, whose reader wants whole lines. COLUMNS counts, as for tables."""
    return _columns() if is_terminal(sys.stdout) or os.environ.get("COLUMNS") else None


def stderr_width() -> int | None:
    """Return how wide stderr is, None where it is no terminal: what is said there lands in logs too, COLUMNS or not."""
    return _columns() if is_terminal(sys.stderr) else None


def is_terminal(stream: TextIO) -> bool:
    """Return whether people read a stream as it comes."""
    return stream.isatty()


def _columns() -> int:
    return max(_LEAST, shutil.get_terminal_size().columns)


def say_folded(words: str, *, before: str = "") -> None:
    """Print words on stdout, folded between them, what follows the first line below it. `words` are clean."""
    for line in folded(words, stdout_width(), before=before, rest=before + HANG):
        say(line)


def note_folded(words: str, *, rest: str = HANG) -> None:
    """Do the same on stderr."""
    for line in folded(words, stderr_width(), rest=rest):
        note(line)


def say_exact(line: str, *, before: str) -> None:
    """Print a line of what is approved on stdout, folded: joined, its parts are the line.

    Those of a row of a body, which begins with `| `, go on with `|> `, those of any other line with `> `.
    """
    mark = f"|{GOES_ON}" if line.startswith("| ") else GOES_ON
    for part in folded(line, stdout_width(), before=before, rest=before + mark, exact=True):
        say(part)


def folded(line: str, width: int | None, *, before: str = "", rest: str = HANG, exact: bool = False) -> list[str]:
    """Return the lines that a line takes in this width, the first with `before`, all others with `rest`.

    It is parted before a space where there is one. `exact`: no character is left out. Else such spaces are.
    """
    lines: list[str] = []
    prefix, left = before, line
    while width is not None and _cells(prefix + left) > width:
        count = _fitting(left, width - len(prefix))
        at = left.rfind(" ", count // 2 if exact else 1, count + 1)
        at = at if at > 0 else count
        lines.append(prefix + left[:at])
        left = left[at:] if exact else left[at:].lstrip(" ")
        prefix = rest
    return [*lines, prefix + left]


def _fitting(text: str, room: int) -> int:
    """Return how many characters fit, at least one: a wide one takes two columns."""
    if text.isascii():
        return max(1, room)
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > room:
            return max(1, at)
    return len(text)


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
