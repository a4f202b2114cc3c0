"""`arl init --local`: keys and a trust file beside the store, and what these do not protect."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_run_ledger.cli.settings import Setting, actor_setting
from agent_run_ledger.errors import LedgerError, Misuse, Refused

if TYPE_CHECKING:
    from agent_run_ledger.effects.trusting import SignedTrust
    from agent_run_ledger.store import AnyStore

_ALSO = (
    "whatever runs as you on this machine can read the keys and write the database: for more than that, keep keys on"
    " other machines or on a token, and the trust file where no agent can write it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeHere:
    """The local authority as it is now. `changed`: this command made it, or put it in use."""

    signed: SignedTrust
    folder: Path
    approver: str
    policy_sha256: bytes
    changed: bool
    not_protected: tuple[str, ...]


def folder_of(path: str, named: str | None) -> Path:
    """Return the folder for keys: the one beside a file, the one that is named for a store at a server.

    Misuse("usage") where the other one is given.
    """
    from agent_run_ledger.ledger.local_trust import local_folder
    from agent_run_ledger.store import is_url, without_secrets

    if is_url(path):
        if named is None:
            said = f"{without_secrets(path)} is at a server: it has no folder for keys beside it"
            raise Misuse(said, code="usage", hint="name one with --folder DIR, on this machine and for you alone")
        return Path(os.path.realpath(named))
    if named is not None:
        raise Misuse("--folder is for a store at a server", code="usage", hint="that of a file lies beside it")
    return local_folder(path)


def check_before(path: str, name: str | None, folder: Path) -> None:
    """Refuse what could not be made, before anything is: "bad_name", and "trust_exists" for a folder without its store.

    A name counts only where there is no folder yet.
    """
    from agent_run_ledger.keys import SigningKey
    from agent_run_ledger.ledger.authority import now_here
    from agent_run_ledger.ledger.local_authority import EXECUTOR, OPERATOR, REQUESTER, local_trust_file
    from agent_run_ledger.store import is_url

    if os.path.lexists(folder):
        if not is_url(path) and not os.path.lexists(path):
            raise _of_another(folder, path)
        return
    called, one, other = actor_setting(name).value, SigningKey.draw(), SigningKey.draw()
    try:
        local_trust_file(bytes(16), name=called, approver=one.public, operator=other.public, now=now_here())
    except LedgerError as error:
        said = f"{called!r} cannot be the name of who approves: {error.message}"
        hint = f"give --name NAME, of A-Za-z0-9._@+:/- and not {REQUESTER}, {EXECUTOR} or {OPERATOR}"
        raise Misuse(said, code="bad_name", hint=hint) from None


def refuse_other_trust(store: AnyStore, folder: Path) -> None:
    """Refuse a store that is under a trust file whose folder is not there: "trust_exists"."""
    on_record = store.reader().effects.trust()
    if on_record is not None and not os.path.lexists(folder):
        said = f"{store.location} is under a trust file already, with the serial {on_record.serial}"
        hint = (
            f"if {folder} was lost, put it back from a backup: `arl trust follow` puts another trust file in use, but "
            "that takes the keys of this one's officers; without them only a new store is left"
        )
        raise Refused(said, code="trust_exists", hint=hint)


def _of_another(folder: Path, path: str) -> Refused:
    from agent_run_ledger.store import without_secrets

    said = f"{folder} has the keys and the trust file of another store than {without_secrets(path)}"
    return Refused(said, code="trust_exists", hint="move the folder away, or put its store back from a backup")


def make_here(path: str, log_id: bytes, name: str | None, folder: Path) -> MadeHere:
    """Make what is not there yet of a local authority, put it in use, and say what it is."""
    from agent_run_ledger.ledger.authority import find_authority, now_here
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.ledger.local_authority import POLICY, make_local
    from agent_run_ledger.ledger.local_trust import TRUST_NAME
    from agent_run_ledger.store import durability_of

    made = False
    if not os.path.lexists(folder):
        make_local(path, log_id, name=actor_setting(name).value, now=now_here(), folder=folder)
        made = True
    authority = find_authority(path, folder / TRUST_NAME)
    policy = None if authority is None else authority.trust.policy_named(POLICY)
    if authority is None or policy is None:
        raise Refused(f"{folder} holds another trust file", code="trust_exists", hint="`arl trust show`")
    if authority.trust.ledger_id != log_id:
        raise _of_another(folder, path)
    with EffectLedger(path, durability=durability_of(path), trust=authority.signed) as ledger:
        unprotected = ledger.status().not_protected
    return MadeHere(
        signed=authority.signed,
        folder=folder,
        approver=min(policy.approvers),
        policy_sha256=authority.trust.policy_sha256(policy),
        changed=made,
        not_protected=(*unprotected, _ALSO),
    )


def local_json(made: MadeHere) -> dict[str, object]:
    """Return the documented JSON of a local authority."""
    from agent_run_ledger.ledger.local_authority import EXECUTOR, OPERATOR, REQUESTER

    return {
        "folder": str(made.folder),
        "trust_sha256": made.signed.sha256.hex(),
        "policy_sha256": made.policy_sha256.hex(),
        "approver": made.approver,
        "requester": REQUESTER,
        "executor": EXECUTOR,
        "operator": OPERATOR,
        "not_protected": made.not_protected,
    }


def say_local(made: MadeHere, setting: Setting) -> None:
    """Print what was made, what it does not protect, and what comes next."""
    from agent_run_ledger.cli.folding import say_folded
    from agent_run_ledger.cli.next_steps import next_command, shell_word
    from agent_run_ledger.cli.output import say, show_named
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.authority import TRUST_VARIABLE
    from agent_run_ledger.ledger.local_authority import (
        APPROVER_KEY,
        EXECUTOR,
        OPERATOR,
        OPERATOR_KEY,
        POLICY,
        REQUESTER,
    )
    from agent_run_ledger.ledger.local_trust import TRUST_NAME
    from agent_run_ledger.store import is_url

    say("")
    say(f"{clean(made.folder)}: {'made, for your eyes only' if made.changed else 'unchanged'}")
    show_named(
        [
            (TRUST_NAME, f"serial {made.signed.trust.serial}, digest {made.signed.sha256.hex()}"),
            (APPROVER_KEY, f"the key of {made.approver}, who approves and is the one officer"),
            (OPERATOR_KEY, f"the key of {OPERATOR}, who revokes and reconciles"),
            ("no key", f"{REQUESTER} asks, {EXECUTOR} carries out"),
            ("policy", f"{POLICY}: one approval, by a person, for at most 24 h; {made.policy_sha256.hex()}"),
        ]
    )
    say("")
    say("What this does not protect:")
    for words in made.not_protected:
        say_folded(f"- {words}")
    say("")
    say_folded(
        f"Back this folder up, and keep the copy as safe: without the key of {clean(made.approver)} nobody can put "
        "another trust file in use for this store, and without the folder nothing in it is proposed or decided."
    )
    say("")
    if is_url(setting.value):
        path = shell_word(str(made.folder / TRUST_NAME))
        say_folded("Nothing lies beside a store at a server, so every program and command is told where these are:")
        say(f"export {TRUST_VARIABLE}={path}")
        say_folded(f"and who decides gives --key {shell_word(str(made.folder / APPROVER_KEY))}, or the other one.")
        say("")
    say(f"When something was proposed: {next_command(setting, 'approvals', 'list')}")
