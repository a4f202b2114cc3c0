"""The two tables of a demonstration: each step through all lives, and each life in numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_run_ledger.demo.audit.neutral import one_line
from agent_run_ledger.demo.facts import LifeFacts, Mark, StepFacts, Tally

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

STYLES = {
    Mark.LIVE: "green",
    Mark.RESTORED: "cyan",
    Mark.KILLED: "bold red",
    Mark.FAILED: "red",
    Mark.NOT_REACHED: "dim",
    Mark.AGAIN: "bold red",
}
SIGNS = {
    Mark.LIVE: ("●", "*"),
    Mark.RESTORED: ("○", "o"),
    Mark.KILLED: ("✗", "x"),
    Mark.FAILED: ("✗", "x"),
    Mark.NOT_REACHED: ("·", "."),
    Mark.AGAIN: ("!", "!"),
}


class Tables:
    """Builds the tables. `text` makes words safe for the console.

    Narrow tables leave things out and cut nothing: `wordy` ones say in words what their signs mean, `wide` ones have
    columns for the module and the time.
    """

    def __init__(self, text: Callable[[str, str], Text], *, wordy: bool, wide: bool, ascii_only: bool) -> None:
        self._text = text
        self._wordy = wordy
        self._wide = wide
        self._sign_at = 1 if ascii_only else 0

    def steps(self, tally: Tally) -> Table:
        """Return one row per step: what it was about, what happened to it in each life, tokens and time."""
        lives = [f"life {life.number}" for life in tally.lives]
        head = ["#", "step", *(["module"] if self._wide else []), *lives, "tokens", *(["time"] if self._wide else [])]
        table = _table(head, right={"#", "tokens", "time"})
        for step in tally.steps:
            table.add_row(*self._step_cells(step))
        return table

    def lives(self, tally: Tally) -> Table:
        """Return one column per life; rows that say nothing about any life are left out."""
        lives = [f"life {life.number}" for life in tally.lives]
        table = _table(["", *lives], right=set(lives))
        for label, show in _LIFE_ROWS:
            words = [show(life) for life in tally.lives]
            if any(words):
                table.add_row(self._text(label, ""), *(self._text(word, "") for word in words))
        return table

    def legend(self, tally: Tally) -> str:
        """Return what the signs mean that occur."""
        seen = {mark for step in tally.steps for mark in step.marks}
        return "   ".join(f"{SIGNS[mark][self._sign_at]} {mark}" for mark in Mark if mark in seen)

    def _step_cells(self, step: StepFacts) -> list[Text]:
        cells = [self._text(str(step.number), ""), self._text(step.name, "")]
        if self._wide:
            cells.append(self._text(one_line(step.subject), ""))
        for mark in step.marks:
            sign = SIGNS[mark][self._sign_at]
            cells.append(self._text(f"{sign} {mark}" if self._wordy else sign, STYLES[mark]))
        cells.append(self._text(f"{step.tokens:,}" if step.tokens else "", ""))
        if self._wide:
            cells.append(self._text("" if step.took_ms is None else seconds(step.took_ms), ""))
        return cells


def seconds(milliseconds: int) -> str:
    """Return a duration for people; a negative one shows that a clock was set back."""
    if milliseconds < 0:
        return "clock changed"
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds} ms"


def _table(head: list[str], *, right: set[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in head:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


_LIFE_ROWS: tuple[tuple[str, Callable[[LifeFacts], str]], ...] = (
    ("ended", lambda life: life.ended),
    ("steps live", lambda life: str(life.steps_live)),
    ("steps restored", lambda life: str(life.steps_restored)),
    ("killed in", lambda life: life.killed_in),
    ("model calls", lambda life: str(life.model_calls)),
    ("calls without an answer", lambda life: str(life.calls_without_answer or "")),
    ("tokens spent", lambda life: f"{life.tokens_spent:,}"),
    ("tokens restored", lambda life: f"{life.tokens_restored:,}"),
    ("tokens uncertain", lambda life: f"{life.tokens_uncertain:,}"),
    ("time", lambda life: seconds(life.wall_ms)),
)
