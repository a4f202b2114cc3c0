"""Where a laptop keeps its trust file and keys, and what no signature protects there, in words."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Final

from agent_run_ledger.store import is_url, refuse_server

UNSIGNED: Final = "no trust file: who asks, approves and decides is the caller's word, and no signature is verified"
LOCAL: Final = "local trust: the keys lie beside this database, so whoever can read that folder can approve and decide"

KEY_SUFFIX: Final = ".pem"
TRUST_NAME: Final = "trust.json"

_MARK: Final = b"PRIVATE KEY-----"
_MARK_WITHIN: Final = 64
_MAX_KEY_BYTES: Final = 1 << 14
_MAX_FILES: Final = 1_000


def local_folder(db_path: str | PathLike[str]) -> Path:
    """Return the folder beside a store in which `arl init --local` keeps its trust file and its keys.

    It is beside the file itself, however many links lead to that. Refused("only_in_file") for a store at a server.
    """
    refuse_server(
        db_path, "nothing lies beside it here", hint="name it: --trust or AGENT_RUN_LEDGER_TRUST, and --key FILE"
    )
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


def stray_keys(db_path: str | PathLike[str]) -> tuple[str, ...]:
    """Return the paths of private keys in PEM that lie in a store's folder, or in its local one under another name.

    Files of the store itself are left alone: to open and close one would take the locks of this process away. Of a
    folder with very many files not all are looked at. Beside a store at a server nothing lies here.
    """
    if is_url(db_path):
        return ()
    store = Path(os.path.realpath(db_path))
    local = local_folder(db_path)
    found = [path for path in _small_files(store.parent) if not path.name.startswith(store.name)]
    found += [path for path in _small_files(local) if path.suffix != KEY_SUFFIX]
    return tuple(str(path) for path in found if _is_private_key(path))


def _small_files(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))[:_MAX_FILES]
    except OSError:
        return
    for name in names:
        try:
            status = os.stat(folder / name)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_KEY_BYTES:
            yield folder / name


def _is_private_key(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return _MARK in os.read(descriptor, _MARK_WITHIN)
    finally:
        os.close(descriptor)
