"""Starts a program with the network refused: `python offline.py FILE ...` or `python offline.py -m MODULE ...`."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from agent_run_ledger.testing.no_network import refuse_network

OFFLINE = [sys.executable, str(Path(__file__))]
"""What a test puts before a program instead of the interpreter."""

LOG_VARIABLE = "NETWORK_REFUSED_LOG"
"""Names the file that a process appends what it was refused to. Where there is none, the process ends at once."""


def refuse() -> None:
    """Refuse the network in this process."""
    refuse_network(_note)


def _note(words: str) -> None:
    log = os.environ.get(LOG_VARIABLE)
    if log is None:
        os._exit(86)
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{words}\n")


def main() -> None:
    sys.argv = sys.argv[1:]
    refuse()
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
