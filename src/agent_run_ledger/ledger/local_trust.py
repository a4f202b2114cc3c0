"""Where a laptop keeps its trust file and keys, and what no signature protects there, in words."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Final

from agent_run_ledger.store import is_url, refuse_server

UNSIGNED: Final = "no trust file: who approved is the caller's word, and no signature is verified"
LOCAL: Final = "local trust: the keys lie beside this database, so whoever can read that folder can approve"

KEY_SUFFIX: Final = ".pem"
TRUST_NAME: Final = "trust.json"


def local_folder(db_path: str | PathLike[str]) -> Path:
    """Return the folder beside a store in which `arl init --local` keeps its trust file and its keys.

    It is beside the file itself, however many links lead to that. Refused("only_in_file") for a store at a server.
    """
    refuse_server(db_path, "nothing lies beside it here", hint="name the trust file and the keys")
    return Path(f"{os.path.realpath(db_path)}.local")


def local_file(db_path: str | PathLike[str], name: str) -> Path | None:
    """Return where a file lies beside a store, None for a store that has no beside."""
    return None if is_url(db_path) else local_folder(db_path) / name


def is_local(db_path: str | PathLike[str]) -> bool:
    """Return whether keys lie beside a store; True also where nobody can look whether they do."""
    if is_url(db_path):
        return False
    try:
        return any(name.endswith(KEY_SUFFIX) for name in os.listdir(local_folder(db_path)))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def trust_words(db_path: str | PathLike[str], *, trusted: bool) -> tuple[str, ...]:
    """Return in words what signatures do not protect: there is no trust file, or its keys lie beside the store."""
    if not trusted:
        return (UNSIGNED,)
    return (LOCAL,) if is_local(db_path) else ()
