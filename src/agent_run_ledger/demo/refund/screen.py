"""What a person sees of the refund's story, and the same facts as JSON."""

from __future__ import annotations

import json as json_format
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_run_ledger.demo.lives import arl_command, from_here
from agent_run_ledger.demo.refund.story import RUN_ID, Life, Told, tell_story

if TYPE_CHECKING:
    from rich.console import Console


def show_story(output: Path | None, console: Console | None) -> Told:
    """Tell the story as it happens; without a console write one JSON object at its end."""
    if console is None:
        told = tell_story(output, lambda _: None)
        sys.stdout.write(json_format.dumps(as_json(told), indent=2) + "\n")
        return told

    def say(words: str = "", *, exact: bool = False) -> None:
        """Print words, on a terminal folded between them; `exact` for what people copy, or sign."""
        console.print(words, markup=False, highlight=False, soft_wrap=exact or not console.is_terminal)

    told = tell_story(output, lambda words: say(words + "\n", exact="\n" in words))  # lines are those that are signed
    console.print(_table(told))
    say()
    say(f"Refund {told.action_id}: {told.status}, {told.evidence} piece of evidence on record.")
    say(f"Log: {told.log_size} leaves, root {told.root_hex}, verified.")
    say(f"Not protected here: {'; '.join(told.not_protected)}.")
    say()
    say("Next:")
    for command in next_commands(told):
        say(f"  {command}", exact=True)
    return told


def next_commands(told: Told) -> tuple[str, ...]:
    """Return what to type to look at what happened."""
    arl, database = shlex.quote(arl_command()), shlex.quote(from_here(told.database))
    return (
        f"{arl} runs show {RUN_ID} --db {database}",
        f"{arl} effects show {told.action_id} --db {database}",
        f"{arl} verify --db {database}",
    )


def as_json(told: Told) -> dict[str, Any]:
    """Return the facts of the story."""
    return {
        "folder": str(told.folder),
        "database": str(told.database),
        "action_id": told.action_id,
        "status": told.status,
        "shown": told.shown,
        "evidence": told.evidence,
        "refunds_with_ledger": told.paid,
        "refunds_without": told.paid_without,
        "model_calls_with_ledger": sum(life.thoughts for life in told.lives),
        "model_calls_without": sum(life.thoughts for life in told.lives_without),
        "lives": [_life(one) for one in told.lives],
        "lives_without": [_life(one) for one in told.lives_without],
        "log_size": told.log_size,
        "root_hex": told.root_hex,
        "not_protected": list(told.not_protected),
        "next": list(next_commands(told)),
    }


def _life(life: Life) -> dict[str, Any]:
    return {"number": life.number, "signal": life.signal, "model_calls": life.thoughts, "events": list(life.events)}


def _table(told: Told) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("with the ledger", justify="right")
    table.add_column("without", justify="right")
    table.add_row("lives, of them killed", _lives(told.lives), _lives(told.lives_without))
    table.add_row("model calls paid", *(str(sum(one.thoughts for one in all_of)) for all_of in _both(told)))
    table.add_row("refunds in the service's book", str(told.paid), str(told.paid_without), style="bold")
    return table


def _both(told: Told) -> tuple[tuple[Life, ...], tuple[Life, ...]]:
    return told.lives, told.lives_without


def _lives(lives: tuple[Life, ...]) -> str:
    return f"{len(lives)}, {sum(bool(life.signal) for life in lives)}"
