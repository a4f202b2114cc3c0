"""`arl version`: which versions are at work."""

from __future__ import annotations

import platform
import sys

import agent_run_ledger
from agent_run_ledger.cli.options import Json
from agent_run_ledger.cli.output import print_json, say


def print_version() -> None:
    """Print one line, as for `--version`."""
    say(f"agent-run-ledger {agent_run_ledger.__version__}")


def version(as_json: Json = False) -> None:
    """Print the versions of this program, of Python and of the SQLite library that it brings."""
    found = versions()
    if as_json:
        print_json(found)
        return
    for name, number in found.items():
        say(f"{name:<18}{number}")


def versions() -> dict[str, str]:
    """Return the versions that matter for a report of a fault, by name."""
    from importlib.metadata import version as installed

    apsw = installed("apsw")  # its version is that of the SQLite it contains, and a count
    return {
        "agent-run-ledger": agent_run_ledger.__version__,
        "python": f"{sys.version.split()[0]} ({platform.python_implementation()})",
        "sqlite": apsw.rpartition(".")[0],
        "apsw": apsw,
        "platform": platform.platform(terse=True),
    }
