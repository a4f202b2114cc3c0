"""`arl demo effect`: one refund, asked for, approved, paid, killed in the middle, and resolved by evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_run_ledger.cli.options import Json

Output = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Where everything is kept [default: ./arl-demo-effect].")
]


def demo_effect(output: Output = None, as_json: Json = False) -> None:
    """Let an agent ask for a refund, sign it, and kill the agent after it is paid; started again, it pays no second.

    Real processes: a payment service that keeps a book, three lives of an agent, and two of one without the ledger.
    """
    from agent_run_ledger.cli.output import console
    from agent_run_ledger.demo.refund.screen import show_story

    show_story(output, None if as_json else console())
