"""Loading a user's program, for commands that run it: MODULE:LEDGER, or a file's."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.errors import LedgerError, Misuse

if TYPE_CHECKING:
    from agent_run_ledger.ledger.run_ledger import RunLedger

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="module:LEDGER or file.py:LEDGER, a RunLedger with its steps.")
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="The queue [default: the ledger's own].")]


def load_ledger(program: str) -> RunLedger:
    """Import a program and return its ledger. Misuse("bad_program") where there is none; its own errors pass through.

    A module is looked for in the current folder too.
    """
    from agent_run_ledger.ledger.run_ledger import RunLedger
    from agent_run_ledger.testing.scenarios import load_named

    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = load_named(program)
    except Misuse as error:
        if error.code != "bad_scenario":
            raise
        raise Misuse(
            error.message, code="bad_program", hint="name it as module:LEDGER, or as file.py:LEDGER"
        ) from error
    except LedgerError:
        raise
    except Exception as error:
        said = f"{program!r} cannot be imported: {type(error).__name__}: {error}"
        raise Misuse(said, code="bad_program", hint="`arl --debug ...` shows where it is raised") from error
    if not isinstance(found, RunLedger):
        said = "nothing" if found is None else f"a {type(found).__name__}"
        raise Misuse(f"{program!r} is {said}, and no RunLedger", code="bad_program")
    return found
