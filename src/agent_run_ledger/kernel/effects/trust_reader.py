"""Reads a trust file: a draft as people write it, or the exact bytes that officers signed."""

from __future__ import annotations

from typing import Any, Final

from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.effects.trust import TRUST_VERSION, TrustFile, trust_bytes
from agent_run_ledger.kernel.effects.trust_rules import BadTrust
from agent_run_ledger.kernel.strict_json import (
    NotStrict,
    bytes_of,
    exactly,
    list_of,
    number_of,
    read_strict,
    shown,
    text_of,
)

MAX_TRUST_BYTES: Final = 1 << 20

_FILE: Final = ("ledger_id", "officers_needed", "policies", "principals", "serial", "v")
_PRINCIPAL: Final = ("keys", "kind", "name", "roles", "rules_sha256")
_KEY: Final = ("not_after_ms", "not_before_ms", "public_key")
_POLICY: Final = ("approvals_needed", "approvers", "max_window_ms", "name", "people_needed")


def read_trust(data: bytes) -> TrustFile:
    """Return the trust file of JSON in any order and spacing. BadTrust with a stable code for anything else."""
    try:
        tree = exactly(read_strict(data, limit=MAX_TRUST_BYTES), _FILE, "a trust file")
        if number_of(tree["v"], "v") != TRUST_VERSION:
            raise NotStrict(f"its version is {shown(tree['v'])}")
        return TrustFile(
            ledger_id=bytes_of(tree["ledger_id"], "ledger_id"),
            serial=number_of(tree["serial"], "serial"),
            officers_needed=number_of(tree["officers_needed"], "officers_needed"),
            principals=tuple([_principal(one) for one in list_of(tree["principals"], "principals")]),
            policies=tuple([_policy(one) for one in list_of(tree["policies"], "policies")]),
        )
    except NotStrict as error:
        raise BadTrust("bad_trust", "$", str(error)) from None


def trust_from(data: bytes) -> TrustFile:
    """Return the trust file of its canonical bytes. BadTrust for others, be they of the same trust file."""
    trust = read_trust(data)
    if trust_bytes(trust) != data:
        raise BadTrust("not_canonical", "$", "what officers sign are its canonical bytes, and these are others")
    return trust


def _principal(tree: object) -> Principal:
    held = exactly(tree, _PRINCIPAL, "a principal")
    name = text_of(held["name"], "a name")
    kind, rules = text_of(held["kind"], "a kind"), held["rules_sha256"]
    if kind not in [str(one) for one in PrincipalKind]:
        raise BadTrust("unknown_kind", f"principal {shown(name)}", f"{shown(kind)} is neither person nor automatic")
    return Principal(
        name=name,
        kind=PrincipalKind(kind),
        roles=frozenset(_role(name, one) for one in _set(held["roles"], "roles")),
        keys=tuple([_key(one) for one in list_of(held["keys"], "keys")]),
        rules_sha256=None if rules is None else bytes_of(rules, "rules_sha256"),
    )


def _role(principal: str, role: str) -> Role:
    if role not in [str(one) for one in Role]:
        raise BadTrust("unknown_role", f"principal {shown(principal)}", f"{shown(role)} is no role")
    return Role(role)


def _key(tree: object) -> PublicKey:
    held = exactly(tree, _KEY, "a key")
    return PublicKey(
        public=bytes_of(held["public_key"], "public_key"),
        not_before_ms=number_of(held["not_before_ms"], "not_before_ms"),
        not_after_ms=number_of(held["not_after_ms"], "not_after_ms"),
    )


def _policy(tree: object) -> ApprovalPolicy:
    held = exactly(tree, _POLICY, "a policy")
    return ApprovalPolicy(
        name=text_of(held["name"], "a name"),
        approvals_needed=number_of(held["approvals_needed"], "approvals_needed"),
        people_needed=number_of(held["people_needed"], "people_needed"),
        approvers=frozenset(_set(held["approvers"], "approvers")),
        max_window_ms=number_of(held["max_window_ms"], "max_window_ms"),
    )


def _set(tree: Any, what: str) -> list[str]:
    named = [text_of(one, f"one of {what}") for one in list_of(tree, what)]
    if len(set(named)) != len(named):
        raise NotStrict(f"{what} {shown(named)} name one twice")
    return named
