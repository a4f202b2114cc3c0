"""Makes the trust file and the keys of one machine: all that a laptop needs for its first approved effect."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Final

from agent_run_ledger.effects.trusting import SignedTrust, open_trust, sign_trust
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import Now, Role
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import Secret, SigningKey, write_key
from agent_run_ledger.keys.private_files import sync_folder, write_private
from agent_run_ledger.ledger.local_trust import KEY_SUFFIX, TRUST_NAME, local_folder

REQUESTER: Final = "agent"
EXECUTOR: Final = "worker"
OPERATOR: Final = "operator"
POLICY: Final = "local"
"""The names that a local trust file has beside the one of the person who approves."""

APPROVER_KEY: Final = f"approver{KEY_SUFFIX}"
OPERATOR_KEY: Final = f"operator{KEY_SUFFIX}"

DAY_MS: Final = 86_400_000
KEY_DAYS: Final = 3_650
FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAuthority:
    """What was made: the signed trust file, its folder, and who approves."""

    signed: SignedTrust
    folder: Path
    approver: str


def make_local(
    db_path: str | PathLike[str], ledger_id: bytes, *, name: str, now: Now, folder: Path | None = None
) -> LocalAuthority:
    """Make the folder beside a store with keys and a trust file, all of it or nothing; only its owner can read it.

    `folder`: the one to make, for a store at a server, beside which none lies.

    `name` approves and is the one officer; `agent` asks, `worker` carries out, `operator` revokes and reconciles, so
    that nobody decides about what they did themselves. Refused("local_exists") where the folder is there already, and
    as `TrustFile` and `write_key` say. Whoever can read the folder can approve: see `local_trust.LOCAL`.
    """
    folder = local_folder(db_path) if folder is None else folder
    if os.path.lexists(folder):
        raise Refused(f"{folder} is there already", code="local_exists", hint="no key is overwritten")
    approver, operator = SigningKey.draw(), SigningKey.draw()
    trust = local_trust_file(ledger_id, name=name, approver=approver.public, operator=operator.public, now=now)
    data = sign_trust(trust, [approver])
    signed = open_trust(data, now=now, expected_sha256=None)
    half_done = folder.with_name(f"{folder.name}.{sha256(approver.public).hexdigest()[:16]}.tmp")
    try:
        os.mkdir(half_done, FOLDER_MODE)
        os.chmod(half_done, FOLDER_MODE)
        write_key(half_done / APPROVER_KEY, approver)
        write_key(half_done / OPERATOR_KEY, operator)
        write_private(half_done / TRUST_NAME, Secret(data))
        write_private(half_done / ".gitignore", Secret(b"*\n"))
        os.rename(half_done, folder)
        sync_folder(folder)
    except BaseException as error:
        with suppress(OSError):
            shutil.rmtree(half_done)
        if isinstance(error, OSError):
            raise Refused(f"{folder} cannot be made: {error.strerror}", code="unwritable") from None
        raise
    return LocalAuthority(signed=signed, folder=folder, approver=name)


def local_trust_file(ledger_id: bytes, *, name: str, approver: bytes, operator: bytes, now: Now) -> TrustFile:
    """Return the trust file of one machine. Its keys count from a day before now on, for ten years."""
    begin, end = now.earliest_ms - DAY_MS, now.latest_ms + KEY_DAYS * DAY_MS
    person, program = PrincipalKind.PERSON, PrincipalKind.AUTOMATIC

    def somebody(called: str, kind: PrincipalKind, *roles: Role, public: bytes | None = None) -> Principal:
        keys = () if public is None else (PublicKey(public=public, not_before_ms=begin, not_after_ms=end),)
        return Principal(name=called, kind=kind, roles=frozenset(roles), keys=keys)

    return TrustFile(
        ledger_id=ledger_id,
        serial=1,
        officers_needed=1,
        principals=(
            somebody(name, person, Role.APPROVER, Role.OFFICER, public=approver),
            somebody(OPERATOR, person, Role.RECONCILER, Role.REVOKER, Role.OPERATOR, public=operator),
            somebody(REQUESTER, program, Role.REQUESTER),
            somebody(EXECUTOR, program, Role.EXECUTOR),
        ),
        policies=(
            ApprovalPolicy(
                name=POLICY,
                approvals_needed=1,
                people_needed=1,
                approvers=frozenset({name}),
                max_window_ms=DAY_MS,
            ),
        ),
    )
