"""`arl init --local`: keys and a trust file beside the store, and what these do not protect."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_run_ledger.cli.settings import Setting, actor_setting
from agent_run_ledger.errors import Refused

if TYPE_CHECKING:
    from agent_run_ledger.effects.trusting import SignedTrust
    from agent_run_ledger.store import SqliteStore

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


def refuse_other_trust(store: SqliteStore, path: str) -> None:
    """Refuse a store that is under another trust file already: "trust_exists"."""
    from agent_run_ledger.ledger.local_trust import local_folder

    on_record = store.reader().effects.trust()
    if on_record is not None and not os.path.lexists(local_folder(path)):
        said = f"{store.location} is under a trust file already, with the serial {on_record.serial}"
        raise Refused(said, code="trust_exists", hint="`arl trust follow` puts another one in use")


def make_here(path: str, log_id: bytes, name: str | None) -> MadeHere:
    """Make what is not there yet of a local authority, put it in use, and say what it is."""
    from agent_run_ledger.ledger.authority import find_authority, now_here
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.ledger.local_authority import POLICY, make_local
    from agent_run_ledger.ledger.local_trust import TRUST_NAME, local_folder
    from agent_run_ledger.store import stored_durability

    folder, made = local_folder(path), False
    if not os.path.lexists(folder):
        make_local(path, log_id, name=actor_setting(name).value, now=now_here())
        made = True
    authority = find_authority(path, folder / TRUST_NAME)
    policy = None if authority is None else authority.trust.policy_named(POLICY)
    if authority is None or policy is None:
        raise Refused(f"{folder} holds another trust file", code="trust_exists", hint="`arl trust show`")
    with EffectLedger(path, durability=stored_durability(path), trust=authority.signed) as ledger:
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
    from agent_run_ledger.cli.next_steps import next_command
    from agent_run_ledger.cli.output import say, show_named
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.local_authority import (
        APPROVER_KEY,
        EXECUTOR,
        OPERATOR,
        OPERATOR_KEY,
        POLICY,
        REQUESTER,
    )
    from agent_run_ledger.ledger.local_trust import TRUST_NAME

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
        say(f"- {words}")
    say("")
    say(f"When something was proposed: {next_command(setting, 'approvals', 'list')}")
