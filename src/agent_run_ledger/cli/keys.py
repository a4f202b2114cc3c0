"""`arl keys new|show`: makes a key file for one person or program, and shows the public half of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Json, PassphraseFile

if TYPE_CHECKING:
    from agent_run_ledger.keys import SigningKey

KeyFile = Annotated[str, typer.Argument(metavar="FILE", help="The key file.")]
NoPassphrase = Annotated[
    bool, typer.Option("--no-passphrase", help="Encrypt nothing: who can read the file can sign with it.")
]


def new(
    file: KeyFile, no_passphrase: NoPassphrase = False, passphrase_file: PassphraseFile = None, as_json: Json = False
) -> None:
    """Draw an Ed25519 key and write it to a new file that only you can read; no file is written over."""
    from agent_run_ledger.cli.key_files import new_passphrase
    from agent_run_ledger.errors import Misuse
    from agent_run_ledger.keys import SigningKey, write_key

    if no_passphrase and passphrase_file is not None:
        raise Misuse("--no-passphrase and --passphrase-file contradict each other", code="usage")
    passphrase = None if no_passphrase else new_passphrase(passphrase_file)
    key = SigningKey.draw()
    write_key(file, key, passphrase=passphrase)
    _print(file, key, as_json=as_json, encrypted=passphrase is not None)


def show(file: KeyFile, passphrase_file: PassphraseFile = None, as_json: Json = False) -> None:
    """Show the public half of a key file, which is what a trust file says of it. The private one is shown nowhere."""
    from agent_run_ledger.cli.key_files import signing_key

    _print(file, signing_key(file, passphrase_file, local=Path(file)), as_json=as_json, encrypted=None)


def _print(file: str, key: SigningKey, *, as_json: bool, encrypted: bool | None) -> None:
    from agent_run_ledger.cli.output import print_json, show_named

    shown = {"file": file, "key_id": key.key_id, "public_key": key.public.hex()}
    if as_json:
        print_json(shown if encrypted is None else {**shown, "encrypted": encrypted})
        return
    lines = [("file", file), ("key id", key.key_id), ("public", key.public.hex())]
    if encrypted is False:
        lines.append(("note", "it has no passphrase: whoever can read this file can sign with it"))
    show_named(lines)
