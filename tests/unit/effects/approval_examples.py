"""A trust file, an action under one of its policies and an approval of it: what the golden files are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects import Action, Now, Role
from agent_run_ledger.kernel.effects.approval import statement_of, statement_sha256
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.trust import TrustFile, trust_sha256
from tests.unit.effects.format_examples import LEDGER, START_MS, story
from tests.unit.effects.trust_examples import RULES, key, signed

YEAR_MS = 31_536_000_000
NOW = Now(START_MS + 1_000, START_MS + 1_005)
NONCE = bytes(range(16))


def _principal(name: str, kind: PrincipalKind, *roles: Role, signs: bool = True, rules: bool = False) -> Principal:
    held = PublicKey(public=key(name).public, not_before_ms=START_MS - YEAR_MS, not_after_ms=START_MS + YEAR_MS)
    return Principal(
        name=name,
        kind=kind,
        roles=frozenset(roles),
        keys=(held,) if signs else (),
        rules_sha256=RULES if rules else None,
    )


PERSON, AUTOMATIC = PrincipalKind.PERSON, PrincipalKind.AUTOMATIC
TRUST = TrustFile(
    ledger_id=LEDGER.ledger_id,
    serial=1,
    officers_needed=1,
    principals=(
        _principal("agent", AUTOMATIC, Role.REQUESTER, signs=False),
        _principal("approver", PERSON, Role.APPROVER, Role.OFFICER),
        _principal("payments-executor", AUTOMATIC, Role.EXECUTOR, signs=False),
        _principal("small-sums", AUTOMATIC, Role.APPROVER, rules=True),
    ),
    policies=(
        ApprovalPolicy(
            name="payments",
            approvals_needed=1,
            people_needed=0,
            approvers=frozenset({"approver", "small-sums"}),
            max_window_ms=600_000,
        ),
    ),
)


def action() -> Action:
    """The proposed action of the story, under the policy of the trust file."""
    proposed = story()[0].row
    return replace(proposed, terms=replace(proposed.terms, policy_sha256=TRUST.policy_sha256(TRUST.policies[0])))


def written() -> dict[str, list[dict[str, Any]]]:
    """What this version writes, for `trust.json` and `approval_envelope.json`."""
    statement = statement_of(LEDGER, action(), approver="approver", nonce=NONCE)
    trust = {
        "envelope": sign_trust(TRUST, [key("approver")]).decode(),
        "sha256": trust_sha256(TRUST).hex(),
        "policy_sha256": TRUST.policy_sha256(TRUST.policies[0]).hex(),
        "key_id": key("approver").key_id,
    }
    approval = {
        "envelope": signed(action(), "approver", ledger=LEDGER, nonce=NONCE).decode(),
        "sha256": statement_sha256(statement).hex(),
        "approval_id": statement_sha256(statement)[:16].hex(),
    }
    return {"trust": [trust], "approval_envelope": [approval]}
