"""Where a passphrase comes from: a file that only its owner can read, or the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.keys.private_files import read_private
from agent_run_ledger.keys.secret import Secret

PASSPHRASE: Final = "AGENT_RUN_LEDGER_KEY_PASSPHRASE"
PASSPHRASE_FILE: Final = "AGENT_RUN_LEDGER_KEY_PASSPHRASE_FILE"


def find_passphrase(environment: Mapping[str, str]) -> Secret | None:
    """Return the passphrase that an environment names, itself or by its file, None where it names none.

    One end of line after it is not part of it. Misuse("two_passphrases") for both; Refused("empty_passphrase"), and
    as `read_private` says.
    """
    if PASSPHRASE in environment and PASSPHRASE_FILE in environment:
        raise Misuse(f"both {PASSPHRASE} and {PASSPHRASE_FILE} are set", code="two_passphrases", hint="unset one")
    if PASSPHRASE in environment:
        found = Secret(environment[PASSPHRASE].encode("utf-8", "surrogateescape"))
    elif PASSPHRASE_FILE in environment:
        found = Secret(_line(read_private(Path(environment[PASSPHRASE_FILE]))))
    else:
        return None
    if not found.reveal():
        raise Refused("the passphrase is empty", code="empty_passphrase", hint="unset it where there is none")
    return found


def _line(secret: Secret) -> bytes:
    return secret.reveal().removesuffix(b"\n").removesuffix(b"\r")
