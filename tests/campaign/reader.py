"""A process that looks at the store until it is killed: `python -m tests.campaign.reader FOLDER COMMAND RUN`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from agent_run_ledger.cli.main import main as arl
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from tests.campaign.meter import append

LOOKS_FILE = "looks.log"


def main(folder: Path, command: str, run: str) -> None:
    """Run the command of `arl` again and again, and write down each exit code and the end of what it said.

    Nobody is left behind: without its parent it ends by itself.
    """
    words = [*command.split(), "--db", str(folder / LEDGER_FILE)]
    if command in ("runs show", "runs explain"):
        words.append(run)
    parent = os.getppid()
    while os.getppid() == parent:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = arl(words)
        told = "" if code == 0 else said.getvalue()[-400:].replace("\n", " ").replace("\t", " ")
        append(folder / LOOKS_FILE, os.getpid(), code, told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
