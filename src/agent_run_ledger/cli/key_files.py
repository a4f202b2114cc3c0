"""Key files at the command line: which one is meant, and where its passphrase comes from, which is no argument."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent_run_ledger.errors import Misuse, Refused

if TYPE_CHECKING:
    from agent_run_ledger.keys import Secret, SigningKey

_WHERE = "give --passphrase-file FILE, or set AGENT_RUN_LEDGER_KEY_PASSPHRASE_FILE"


def signing_key(path: str | None, passphrase_file: str | None, *, local: Path | None) -> SigningKey:
    """Return the key of a file, the local one where none is named; its passphrase is asked for on a terminal."""
    from agent_run_ledger.keys import read_key

    chosen = local if path is None else Path(path)
    if chosen is None or (path is None and not chosen.exists()):
        raise Misuse("no key was named, and there is no local one", code="usage", hint="give --key FILE")
    passphrase = given_passphrase(passphrase_file)
    try:
        return read_key(chosen, passphrase=passphrase)
    except Refused as error:
        if error.code != "passphrase_needed" or passphrase is not None or not _asked_here():
            error.hint = error.hint or (_WHERE if error.code == "passphrase_needed" else "")
            raise
    return read_key(chosen, passphrase=_secret(getpass.getpass(f"Passphrase of {chosen.name}: ")))


def given_passphrase(passphrase_file: str | None) -> Secret | None:
    """Return the passphrase of a file or of the environment, None where neither names one."""
    from agent_run_ledger.keys import find_passphrase
    from agent_run_ledger.keys.passphrases import PASSPHRASE_FILE

    return find_passphrase(os.environ if passphrase_file is None else {PASSPHRASE_FILE: passphrase_file})


def new_passphrase(passphrase_file: str | None) -> Secret:
    """Return the passphrase for a new key: that of a file or of the environment, or one that is asked for twice."""
    found = given_passphrase(passphrase_file)
    if found is not None:
        return found
    if not _asked_here():
        raise Misuse("nobody is here to be asked for a passphrase", code="usage", hint=f"{_WHERE}, or --no-passphrase")
    first = getpass.getpass("Passphrase for the new key: ")
    if first != getpass.getpass("Once more: "):
        raise Refused("the two passphrases differ, and nothing was made", code="other_passphrase")
    return _secret(first)


def _secret(text: str) -> Secret:
    from agent_run_ledger.keys import Secret

    return Secret(text.encode("utf-8", "surrogateescape"))


def _asked_here() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
