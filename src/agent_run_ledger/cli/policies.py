"""Approval policies and executors as the command line names them: by the trust file, or by digest without one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.effects.states import Role

if TYPE_CHECKING:
    from agent_run_ledger.ledger.authority import Authority

DAY_MS: Final = 86_400_000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A policy by its digest. `approvals_needed`: None where nothing says it; `window_ms`: a window that it allows."""

    sha256: bytes
    approvals_needed: int | None
    window_ms: int


def policy_of(found: Authority | None, named: str) -> Counted:
    """Return the policy of a name or digest in the trust file; without one, that of a digest.

    Misuse("bad_policy") for a name that nothing explains, Refused("no_policy") for one that the trust file has not.
    """
    digest = bytes.fromhex(named) if _DIGEST.fullmatch(named) else None
    if found is None:
        if digest is None:
            words = f"{named!r} is no digest of an approval policy"
            raise Misuse(words, code="bad_policy", hint="give 64 hex digits, its SHA-256: names need a trust file")
        return Counted(sha256=digest, approvals_needed=None, window_ms=DAY_MS)
    trust = found.trust
    policy = trust.policy_named(named) or (None if digest is None else trust.policy(digest))
    if policy is None:
        names = ", ".join(sorted(one.name for one in trust.policies)) or "none"
        said = f"the trust file has no approval policy {named!r}"
        raise Refused(said, code="no_policy", hint=f"it has {names}: name one with --approval")
    return Counted(
        sha256=trust.policy_sha256(policy),
        approvals_needed=policy.approvals_needed,
        window_ms=min(DAY_MS, policy.max_window_ms),
    )


def executor_of(found: Authority | None, name: str) -> str:
    """Return who is to carry an action out. Refused("wrong_role") for a name that could never claim it."""
    who = None if found is None else found.trust.principal(name)
    if found is not None and (who is None or Role.EXECUTOR not in who.roles):
        said = f"{name!r} is no {Role.EXECUTOR} by the trust file, and could never claim it"
        raise Refused(said, code="wrong_role", hint="`arl principals list`")
    return name
