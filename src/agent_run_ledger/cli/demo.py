"""`arl demo`: a real run on real input, killed in step 19 and finished by a second process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_run_ledger.cli.options import Json

Tree = Annotated[
    Path | None,
    typer.Argument(metavar="[PATH]", help="A Python source tree [default: parts of the interpreter's own]."),
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Where everything is kept [default: ./arl-demo].")
]
NoKill = Annotated[bool, typer.Option("--no-kill", help="Do not kill the first life.")]


def demo(path: Tree = None, output: Output = None, no_kill: NoKill = False, as_json: Json = False) -> None:
    """Audit a source tree in 20 steps; the first life is killed in step 19, a second one goes on where it was."""
    from agent_run_ledger.cli.output import console
    from agent_run_ledger.demo.driver import run_demo

    run_demo(path, output, json=as_json, kill=not no_kill, console=None if as_json else console())
