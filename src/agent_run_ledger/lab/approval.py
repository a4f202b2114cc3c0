"""Stands in for people who approve: the lab's own grant, which authenticates nobody."""

from __future__ import annotations

import os
from typing import Final

from agent_run_ledger.kernel.effects import Role
from agent_run_ledger.kernel.effects.approval import VerifiedApproval, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.ledger.effect_ledger import EffectLedger

APPROVER: Final = "lab-approver"


def seed_demo_approval(ledger: EffectLedger, action_id: bytes) -> None:
    """Approve an action as a person who does not exist, over the digest of its exact bytes. No signature is verified.

    Only the lab has this. Whoever could call it beside a real ledger could approve anything: proposing a request and
    granting it are operations of different people.
    """
    statement = ledger.statement(action_id, approver=APPROVER, nonce=os.urandom(16))
    approval = VerifiedApproval(
        approval_id=os.urandom(16), statement=statement, signed_sha256=statement_sha256(statement), principal=APPROVER
    )
    ledger.approve(Actor(APPROVER, frozenset({Role.APPROVER})), action_id, approval)
