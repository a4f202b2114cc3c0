"""The trust file: whose signatures count, as what and how many of them, its bytes and digests (format: trust v1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from agent_run_ledger.kernel.canonical import Json, canonical
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.effects.trust_rules import check

TRUST_DOMAIN: Final = b"arl/trust/v1\n"
TRUST_TYPE: Final = "application/vnd.agent-run-ledger.trust.v1+json"
TRUST_VERSION: Final = 1
POLICY_DOMAIN: Final = b"arl/approval-policy/v1\n"
POLICY_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFile:
    """All that a ledger's decisions rest on, kept outside of its database. `serial` grows with every change.

    Officers are the principals with that role; `officers_needed` of them decide together. Every value of this class
    keeps the rules of `trust_rules`: BadTrust for what does not.
    """

    ledger_id: bytes
    serial: int
    officers_needed: int
    principals: tuple[Principal, ...]
    policies: tuple[ApprovalPolicy, ...] = ()
    _digests: dict[ApprovalPolicy, bytes] = field(
        default_factory=dict[ApprovalPolicy, bytes], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """BadTrust for what breaks a rule."""
        check(self)

    @property
    def officers(self) -> tuple[Principal, ...]:
        """Those who decide about this file and about an admission."""
        return tuple(one for one in self.principals if Role.OFFICER in one.roles)

    def principal(self, name: str) -> Principal | None:
        """Return the principal of a name, None where there is none."""
        return next((one for one in self.principals if one.name == name), None)

    def policy(self, policy_sha256: bytes) -> ApprovalPolicy | None:
        """Return the policy of a digest, None where it was never one or is one no more."""
        return next((one for one in self.policies if self.policy_sha256(one) == policy_sha256), None)

    def policy_named(self, name: str) -> ApprovalPolicy | None:
        """Return the policy of a name, None where there is none."""
        return next((one for one in self.policies if one.name == name), None)

    def policy_sha256(self, policy: ApprovalPolicy) -> bytes:
        """Return the digest that a statement names. It changes with the rules of an automatic approver, not with keys.

        LookupError for a policy with approvers that this file does not know.
        """
        known = self._digests.get(policy)
        if known is None:
            known = self._digests[policy] = sha256(POLICY_DOMAIN + canonical(self._with_rules(policy))).digest()
        return known

    def _with_rules(self, policy: ApprovalPolicy) -> Json:
        rules = {one.name: one.rules_sha256 for one in self.principals}
        approvers: list[Json] = [{"name": name, "rules_sha256": _hex(rules[name])} for name in sorted(policy.approvers)]
        return {**_policy_tree(policy), "approvers": approvers, "v": POLICY_VERSION}


def trust_bytes(trust: TrustFile) -> bytes:
    """Return the RFC 8785 bytes of a trust file. The order in which it was written down does not count."""
    principals: list[Json] = [_principal_tree(one) for one in sorted(trust.principals, key=lambda one: one.name)]
    policies: list[Json] = [_policy_tree(one) for one in sorted(trust.policies, key=lambda one: one.name)]
    return canonical(
        {
            "ledger_id": trust.ledger_id.hex(),
            "officers_needed": trust.officers_needed,
            "policies": policies,
            "principals": principals,
            "serial": trust.serial,
            "v": TRUST_VERSION,
        }
    )


def trust_sha256(trust: TrustFile) -> bytes:
    """Return the 32-byte digest of a trust file: SHA-256 over TRUST_DOMAIN and its canonical bytes."""
    return sha256(TRUST_DOMAIN + trust_bytes(trust)).digest()


def _principal_tree(principal: Principal) -> dict[str, Json]:
    keys: list[Json] = [
        {"not_after_ms": key.not_after_ms, "not_before_ms": key.not_before_ms, "public_key": key.public.hex()}
        for key in sorted(principal.keys, key=lambda key: key.public)
    ]
    roles: list[Json] = [str(role) for role in sorted(principal.roles)]
    return {
        "keys": keys,
        "kind": str(principal.kind),
        "name": principal.name,
        "roles": roles,
        "rules_sha256": _hex(principal.rules_sha256),
    }


def _policy_tree(policy: ApprovalPolicy) -> dict[str, Json]:
    approvers: list[Json] = [*sorted(policy.approvers)]
    return {
        "approvals_needed": policy.approvals_needed,
        "approvers": approvers,
        "max_window_ms": policy.max_window_ms,
        "name": policy.name,
        "people_needed": policy.people_needed,
    }


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
