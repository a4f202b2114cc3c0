"""Keys that everybody knows, the trust file made of them, and a signed approval: for tests and golden files."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent_run_ledger.kernel.dsse import envelope_bytes
from agent_run_ledger.kernel.effects import Action, Now, Role, Standing
from agent_run_ledger.kernel.effects.approval import APPROVAL_TYPE, statement_bytes, statement_of
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import SigningKey, seal
from tests.unit.effects.examples import END_MS, LEDGER, MS, TERMS, A, row

R, PERSON, AUTOMATIC = Role, PrincipalKind.PERSON, PrincipalKind.AUTOMATIC
KEY_BEGINS_MS, KEY_ENDS_MS = 500, 1_000_000
NONCE = b"nonce of sixteen"
REQUEST, DISPLAY = b'{"amount_cents":3000}', b"Pay 30.00 EUR"
RULES = sha256(b"below 10 EUR").digest()
NOW = Now(MS, MS)


def key(name: str) -> SigningKey:
    """A key that is drawn from a name: no secret."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest()))


def public(name: str, begins_ms: int = KEY_BEGINS_MS, ends_ms: int = KEY_ENDS_MS) -> PublicKey:
    return PublicKey(public=key(name).public, not_before_ms=begins_ms, not_after_ms=ends_ms)


def principal(name: str, *roles: Role, **changes: Any) -> Principal:
    settings: dict[str, Any] = {"kind": PERSON, "keys": (public(name),), **changes}
    return Principal(name=name, roles=frozenset(roles), **settings)


def policy(name: str, needed: int, *approvers: str, people: int = 0, window_ms: int = END_MS) -> ApprovalPolicy:
    return ApprovalPolicy(
        name=name,
        approvals_needed=needed,
        people_needed=people,
        approvers=frozenset(approvers),
        max_window_ms=window_ms,
    )


ANN = principal("ann", R.REQUESTER, R.APPROVER)
BOB = principal("bob", R.APPROVER, keys=(public("bob"), public("bob's second", MS + 1_000)))
DAN = principal("dan", R.APPROVER, R.OFFICER)
OLA = principal("ola", R.OFFICER, R.RECONCILER)
BOT = principal("bot", R.APPROVER, kind=AUTOMATIC, rules_sha256=RULES)
BOT_2 = principal("bot-2", R.APPROVER, kind=AUTOMATIC, rules_sha256=RULES)
EXE = principal("exe", R.EXECUTOR, kind=AUTOMATIC, keys=())
FINANCE = policy("finance", 1, "bob", "dan", "bot")
TWO = policy("two-of-four", 2, "bob", "dan", "bot", "bot-2", people=1)


def trust_of(**changes: Any) -> TrustFile:
    """The trust file of these tests, with `changes`."""
    settings: dict[str, Any] = {
        "ledger_id": LEDGER.ledger_id,
        "serial": 3,
        "officers_needed": 2,
        "principals": (ANN, BOB, DAN, OLA, BOT, BOT_2, EXE),
        "policies": (FINANCE, TWO),
    }
    return TrustFile(**{**settings, **changes})


TRUST = trust_of()
FINANCE_SHA, TWO_SHA = (TRUST.policy_sha256(one) for one in TRUST.policies)


def asked(policy_sha256: bytes = FINANCE_SHA, **changes: Any) -> Action:
    """A proposed action under a policy, with `changes` of its terms."""
    found = TRUST.policy(policy_sha256)
    terms = replace(
        TERMS,
        request_sha256=sha256(REQUEST).digest(),
        display_sha256=sha256(DISPLAY).digest(),
        policy_sha256=policy_sha256,
        approvals_needed=1 if found is None else found.approvals_needed,
    )
    return replace(row(A.PROPOSED), terms=replace(terms, **changes))


def signed(
    action: Action,
    approver: str = "bob",
    *,
    by: SigningKey | None = None,
    ledger: Standing = LEDGER,
    nonce: bytes = NONCE,
    **changes: Any,
) -> bytes:
    """The envelope of an approver over the statement of an action with `changes`, by whatever key."""
    statement = replace(statement_of(ledger, action, approver=approver, nonce=nonce), **changes)
    return envelope_bytes(seal(APPROVAL_TYPE, statement_bytes(statement), [by or key(approver)]))
