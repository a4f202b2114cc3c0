"""Asking a person before something is done that cannot be undone."""

from __future__ import annotations

import sys

from agent_run_ledger.errors import Misuse, Refused


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal. Refused where the answer is not yes, Misuse where nobody is there to be asked."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("nobody is here to be asked", code="not_confirmed", hint="give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was done", code="not_confirmed")
