"""What a person sees of a demonstration in a terminal; everything foreign in it is shown without effect."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from agent_run_ledger.demo.audit.neutral import one_line
from agent_run_ledger.demo.facts import Life, Tally
from agent_run_ledger.demo.job import Job
from agent_run_ledger.demo.outcome import Outcome, as_json
from agent_run_ledger.demo.reviewers import TOKEN_FORMULA
from agent_run_ledger.demo.rule_reviewer import counted
from agent_run_ledger.demo.tables import Tables, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WORDY = 60
WIDE = 110


class Silent:
    """Shows nothing until the end, and then one JSON object on one stream."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def opening(self, job: Job, *, files: int, reviewer: str) -> None:
        """Say nothing."""

    def life(self, number: int, steps: int) -> Callable[[dict[str, Any]], None]:
        """Say nothing."""
        return lambda line: None

    def over(self) -> None:
        """Do nothing."""

    def ended(self, life: Life, killed_in: str) -> None:
        """Say nothing."""

    def closing(self, outcome: Outcome) -> None:
        """Write the facts."""
        self._stream.write(json_format.dumps(as_json(outcome), indent=2) + "\n")


class Screen:
    """Shows the lives as they pass and then side by side. Colour, width and NO_COLOR are the console's business."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._ascii_only = not (console.encoding or "").lower().startswith("utf")
        self._progress: Any = None

    def opening(self, job: Job, *, files: int, reviewer: str) -> None:
        """Say what is audited, by whom, and where the files are."""
        steps = job.reviews + 6
        tree = f"Audit of {one_line(job.label)}: {counted(files, 'file')}"
        self._say(f"{tree}, {steps} steps, {counted(job.reviews, 'module')} reviewed.", "bold")
        self._say(f"Reviewer: {one_line(reviewer)}.")
        if reviewer.startswith("model "):
            sent = f"The source of {counted(job.reviews, 'module')} is sent there"
            self._say(f"{sent}; ARL_DEMO_REVIEWER=rules keeps it here.", "yellow")
        self._say("")

    def life(self, number: int, steps: int) -> Callable[[dict[str, Any]], None]:
        """Show a line of progress where the console can move its cursor."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return lambda line: None
        self._progress = self._console.status(f"life {number} …")
        self._progress.start()
        began: set[str] = set()

        def show(line: dict[str, Any]) -> None:
            if line.get("event") == "body":
                began.add(str(line.get("step")))
                self._progress.update(f"life {number}: {len(began)} of {steps} steps running or done")

        return show

    def over(self) -> None:
        """Take the line of progress down and give the cursor back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def ended(self, life: Life, killed_in: str) -> None:
        """Say how a life ended."""
        where = f" inside step {killed_in}" if killed_in else ""
        style = "bold red" if life.signal else "green" if life.exit_code == 0 else "red"
        self._say(f"Life {life.number} (process {life.pid}) {life.ended}{where} after {seconds(life.wall_ms)}.", style)

    def closing(self, outcome: Outcome) -> None:
        """Show the steps and the lives side by side, what was paid twice, the proof, and what to type next."""
        tally = outcome.tally
        self._say("")
        width = self._console.width
        tables = Tables(self._text, wordy=width >= WORDY, wide=width >= WIDE, ascii_only=self._ascii_only)
        self._console.print(tables.steps(tally))
        self._say(tables.legend(tally))
        self._say("")
        self._console.print(tables.lives(tally))
        self._say("")
        for sentence in _conclusions(tally):
            self._say(sentence)
        self._say("")
        self._say(
            f"Log: {outcome.proof.log_size} leaves, root {outcome.proof.root_hex}, verified.", "green", whole=True
        )
        self._say(f"Report: {one_line(str(outcome.job.report), 4_000)}", whole=True)
        self._say(f"Ledger: {one_line(str(outcome.job.database), 4_000)}", whole=True)
        self._say("")
        self._say("Next:")
        for command in outcome.next_commands:
            self._say(f"  {command}", whole=True)

    def _say(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print text as it is: no markup, no highlighting. `whole` lines are for copying and never broken by us."""
        self._console.print(self._text(text, style), soft_wrap=whole or not self._console.is_terminal)

    def _text(self, text: str, style: str = "") -> Text:
        """Return text that the console's encoding can show; what it cannot becomes an escape."""
        from rich.text import Text

        encoding = self._console.encoding or "ascii"
        return Text(text.encode(encoding, "backslashreplace").decode(encoding), style=style)


def audience_for(console: Console | None, *, json: bool) -> Silent | Screen:
    """Return who shows the demonstration: JSON on the console's stream (or stdout), or a screen."""
    if json:
        return Silent(sys.stdout if console is None else console.file)
    if console is None:
        from rich.console import Console

        console = Console(highlight=False)
    return Screen(console)


def _conclusions(tally: Tally) -> Iterator[str]:
    restored = sum(life.tokens_restored for life in tally.lives)
    uncertain = sum(life.tokens_uncertain for life in tally.lives)
    if tally.recorded_paid_again:
        yield f"Recorded steps paid again, which must not happen: {', '.join(tally.recorded_paid_again)}."
    elif len(tally.lives) == 1:
        yield (
            "One life, without a crash: nothing had to be restored, so this shows nothing about paying twice. "
            "Without --no-kill the first life is killed and a second one goes on."
        )
    else:
        yield "No recorded step was paid again, says the meter: a file beside the ledger, written call by call."
    if restored:
        yield f"Restored: {restored:,} tokens that a start from scratch would have paid a second time."
    if uncertain:
        steps = ", ".join(tally.unrecorded_paid_again) or "a step that was never finished"
        yield (
            f"Uncertain: {uncertain:,} tokens for {steps}. The answer was paid, and the process died before it could "
            "be recorded; so it was asked and paid again. No ledger can prevent that, only say it."
        )
    if tally.tokens_estimated:
        yield f"Tokens are estimated: {TOKEN_FORMULA}."
