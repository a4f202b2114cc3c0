"""Key files: one private key each, PKCS#8 PEM, encrypted by a passphrase or not (format: approval v1)."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from agent_run_ledger.keys.ed25519 import SigningKey
from agent_run_ledger.keys.private_files import read_private, write_private
from agent_run_ledger.keys.secret import Secret


def write_key(path: str | PathLike[str], key: SigningKey, *, passphrase: Secret | None = None) -> None:
    """Make a key file, readable by its owner only. Refused as `write_private` and `SigningKey.pem` say."""
    write_private(Path(path), key.pem(passphrase))


def read_key(path: str | PathLike[str], *, passphrase: Secret | None = None) -> SigningKey:
    """Return the key of a file. Refused as `read_private` and `SigningKey.from_pem` say."""
    return SigningKey.from_pem(read_private(Path(path)), passphrase)
