"""`arl lab`: one approval and real processes that race, die, and meet an old copy of their database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Json, Server

if TYPE_CHECKING:
    from agent_run_ledger.lab.exercises import Seen
    from agent_run_ledger.lab.runner import Outcome

Output = Annotated[Path, typer.Option("--output", metavar="DIR", help="A new folder; the one above it must exist.")]

_UNSAFE = """\
The copy from before a claim accepts the claim again. That is expected, and it is unsafe: the copy is whole and \
consistent, and nothing inside it says what it lacks. What helps is a memory outside of it, a witness, which this \
version does not have. No permit will leave before the witness has seen the preparation, and a copy that is behind \
what it has seen will open in recovery, where nothing is claimed until people admit it: of these two claims at most \
one could be acted on."""


def lab(output: Output, server: Server = None, as_json: Json = False) -> None:
    """Spend one approval: a race of eight processes, two that die, and an old copy of the database put back.

    Local processes only: no model, no network, nothing is sent. Exit codes: 0 all was seen as expected, the unsafe
    observation among it; 1 something else was seen; 2 the lab could not be carried through.
    """
    from agent_run_ledger.cli.output import note, print_json
    from agent_run_ledger.lab.runner import run_lab

    outcome = run_lab(output, tell=(lambda line: None) if as_json else note, server=server)
    if as_json:
        print_json(outcome.summary)
    else:
        _show(outcome, output, server)
    if not outcome.as_expected:
        raise typer.Exit(1)


def _show(outcome: Outcome, output: Path, server: str | None) -> None:
    from agent_run_ledger.cli.output import new_grid, show, text

    grid = new_grid()
    for one in outcome.seen:
        words, style = _verdict(one)
        grid.add_row(text(words, style), text(f"{one.exercise}: {one.words}"))
    show(text(""), grid, text(""))
    if any(one.unsafe for one in outcome.seen):
        show(text(f"warning: {_UNSAFE}", "yellow"), text(""))
    for words in outcome.not_protected:
        show(text(f"The ledger's own status: {words}."))
    for (mode, synchronous), connections in outcome.journals.items():
        show(text(_journal(mode, synchronous, connections)))
    show(
        text("Production authorization: not assessed. Nobody was authenticated, nothing was sent."),
        text(f"Kept in {output}: request.json, summary.json, a folder for each exercise."),
        *([] if server is None else [text("The databases at the server are gone again.")]),
    )


def _verdict(one: Seen) -> tuple[str, str]:
    """Return what to call an observation, and its style: the unsafe one is never green."""
    if not one.expected:
        return "NOT EXPECTED", "bold red"
    return ("UNSAFE, expected", "bold yellow") if one.unsafe else ("as expected", "green")


def _journal(mode: str, synchronous: int | str, connections: int) -> str:
    if isinstance(synchronous, str):
        return f"Asked on {connections} connections, the {mode} said: synchronous_commit {synchronous}."
    level = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}.get(synchronous, str(synchronous))
    return f"Asked on {connections} connections, SQLite said: journal {mode.upper()}, synchronous {level}."
