"""`arl trust new|sign|cosign`: makes a trust file of a description, and puts officers' signatures on it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agent_run_ledger.cli.options import Db, Json, PassphraseFile, Trust
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.kernel.effects.trust import TrustFile
    from agent_run_ledger.keys import SigningKey

Description = Annotated[str, typer.Argument(metavar="DESCRIPTION", help="The trust file in words: TOML or JSON.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The trust file, signed or not.")]
Output = Annotated[str, typer.Option("--output", metavar="FILE", help="Where to write it; no file is written over.")]
OutputOr = Annotated[
    str | None, typer.Option("--output", metavar="FILE", help="Where to write it [default: FILE itself].")
]
SignKey = Annotated[str, typer.Option("--key", metavar="FILE", help="The officer's key file.")]

_MAY: Final = {
    Role.REQUESTER: "ask",
    Role.APPROVER: "approve",
    Role.EXECUTOR: "carry out",
    Role.REVOKER: "revoke",
    Role.RECONCILER: "reconcile",
    Role.OPERATOR: "record a doubt",
}
"""What it takes each role for. Officers are always there."""


def new(description: Description, output: Output, db: Db = None, as_json: Json = False) -> None:
    """Make a trust file, which nobody has signed yet, of a description. It names the store's ledger, unless it says."""
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import is_somewhere, reading
    from agent_run_ledger.cli.trust_description import names_ledger, read_description
    from agent_run_ledger.kernel.effects.trust import trust_bytes

    setting, ledger_id = db_setting(db), None
    if is_somewhere(setting):
        with reading(db) as store:
            ledger_id = store.log_id
    elif not names_ledger(Path(description)):
        raise _no_store(setting, description)
    trust = read_description(Path(description), ledger_id=ledger_id)
    if os.path.lexists(output):
        raise Refused(f"{output} is there already", code="file_exists", hint="no trust file is written over")
    put(Path(output), trust_bytes(trust))
    _tell(output, trust, frozenset(), as_json=as_json)


def sign(
    file: File,
    key: SignKey,
    output: OutputOr = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Sign a trust file that nobody has signed yet, as the first officer: of it, or of the one that the store has."""
    from agent_run_ledger.effects.trusting import check_officer, sign_trust
    from agent_run_ledger.kernel.effects.trust_reader import trust_from
    from agent_run_ledger.ledger.authority import read_trust_file

    data = read_trust_file(file)
    if is_envelope(data):
        raise Misuse(f"{file} is signed already", code="signed_already", hint="`arl trust cosign` adds a signature")
    made, held = trust_from(data), _key(key, passphrase_file)
    check_officer(made, held.key_id, before=_before(db, trust, made, held))
    _put_signed(file, output, sign_trust(made, [held]), as_json=as_json)


def cosign(
    file: File,
    key: SignKey,
    output: OutputOr = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Add one more officer's signature to a trust file that somebody has signed: of it, or of the one in use."""
    from agent_run_ledger.effects.trusting import cosign_trust
    from agent_run_ledger.ledger.authority import read_trust_file

    data = read_trust_file(file)
    if not is_envelope(data):
        raise Misuse(f"{file} is not signed yet", code="usage", hint="`arl trust sign` makes the first signature")
    held = _key(key, passphrase_file)
    before = _before(db, trust, signers_of(data)[0], held)
    _put_signed(file, output, cosign_trust(data, held, before=before), as_json=as_json)


def is_envelope(data: bytes) -> bool:
    """Return whether bytes are meant to be a signed trust file, and not one that nobody has signed."""
    return b'"payloadType"' in data


def put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, in the place of what is there. Refused("unwritable")."""
    with putting(path, data):
        pass


@contextmanager
def putting(path: Path, data: bytes) -> Generator[None, None, None]:
    """Write a file beside its place, and let it take that when the block ends well. Refused("unwritable")."""
    half_done = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(half_done, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}", code="unwritable") from None
    try:
        yield
        os.replace(half_done, path)
        _sync_folder(path)
    finally:
        with suppress(OSError):
            half_done.unlink()


def _sync_folder(path: Path) -> None:
    from agent_run_ledger.keys.private_files import sync_folder

    sync_folder(path)


def signers_of(data: bytes) -> tuple[TrustFile, frozenset[str]]:
    """Return a trust file, signed or not, and which of its officers signed it with a key that counts now."""
    from agent_run_ledger.effects.trusting import read_signers
    from agent_run_ledger.kernel.effects.trust_reader import trust_from
    from agent_run_ledger.ledger.authority import now_here

    if not is_envelope(data):
        return trust_from(data), frozenset()
    return read_signers(data, now=now_here())


def roles_of_nobody(trust: TrustFile) -> list[Role]:
    """Return the roles that a trust file gives to nobody: what takes one of them is refused, to whoever asks."""
    held = {role for one in trust.principals for role in one.roles}
    return [role for role in _MAY if role not in held]


def nobody_words(trust: TrustFile) -> str:
    """Return what nobody may do, and the role that it takes; empty where somebody has every role."""
    return ", ".join(f"{_MAY[role]} ({role})" for role in roles_of_nobody(trust))


def nobody_lines(trust: TrustFile) -> list[tuple[str, str]]:
    """Return the same as a line of a list, none where somebody has every role."""
    words = nobody_words(trust)
    return [("nobody", f"may {words}")] if words else []


def missing_words(trust: TrustFile, signers: frozenset[str]) -> str:
    """Return who has still to sign."""
    needed = trust.officers_needed - len(signers)
    left = sorted(one.name for one in trust.officers if one.name not in signers)
    return f"{needed} more of {', '.join(left)}" if needed > 0 else "nobody"


def _no_store(setting: Setting, description: str) -> Refused:
    from agent_run_ledger.cli.next_steps import next_command

    return Refused(
        f"there is no store at {setting.shown}, and {description} names no ledger",
        code="no_store",
        hint=f"`{next_command(setting, 'init')}` makes the store, which comes first; or name it with --db, or write "
        "its ledger_id into the description",
    )


def _before(db: str | None, trust: str | None, made: TrustFile, key: SigningKey) -> TrustFile | None:
    """Return the trust file that a new one is to follow, where its officers count: the key is that of none of `made`.

    It is that of the store, if it has one of the same ledger.
    """
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.ledger.authority import read_trust_file, trust_path_of

    path = trust_path_of(db_setting(db).value, trust)
    own = any(officer.key(key.key_id) for officer in made.officers)
    if own or (trust is None and not os.path.lexists(path)):
        return None
    before, _ = signers_of(read_trust_file(path))
    return before if before.ledger_id == made.ledger_id else None


def _key(path: str, passphrase_file: str | None) -> SigningKey:
    from agent_run_ledger.cli.key_files import signing_key

    return signing_key(path, passphrase_file, local=Path(path))


def _put_signed(file: str, output: str | None, data: bytes, *, as_json: bool) -> None:
    put(Path(output or file), data)
    trust, signers = signers_of(data)
    _tell(output or file, trust, signers, as_json=as_json)


def _tell(file: str, trust: TrustFile, signers: frozenset[str], *, as_json: bool) -> None:
    from agent_run_ledger.cli.output import print_json, show_named
    from agent_run_ledger.kernel.effects.trust import trust_sha256

    digest = trust_sha256(trust).hex()
    if as_json:
        print_json(
            {
                "file": file,
                "sha256": digest,
                "serial": trust.serial,
                "ledger_id": trust.ledger_id.hex(),
                "officers_needed": trust.officers_needed,
                "signers": sorted(signers),
                "complete": len(signers) >= trust.officers_needed,
                "roles_of_nobody": roles_of_nobody(trust),
            }
        )
        return
    lines = [
        ("file", file),
        ("digest", digest),
        ("serial", str(trust.serial)),
        ("signed", ", ".join(sorted(signers)) or "by no officer yet"),
        ("missing", missing_words(trust, signers)),
    ]
    show_named([*lines, *nobody_lines(trust)])
