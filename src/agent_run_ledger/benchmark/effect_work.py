"""The actions that everything about effects measures: approved in advance, then claimed, prepared and closed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from agent_run_ledger.effects import (
    Actor,
    Intent,
    Receipt,
    Role,
    TargetClass,
    VerifiedApproval,
    statement_sha256,
)
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite

ANN = Actor("ann", frozenset({Role.REQUESTER}))
BOB = Actor("bob", frozenset({Role.APPROVER}))
EXECUTOR = Actor("executor", frozenset({Role.EXECUTOR}))
RECEIVER = "receiver"
REQUEST = b'{"amount":"12.50","to":"account 4711"}'
WINDOW_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An action that can be claimed."""

    key: str
    action_id: bytes


def create_effect_store(path: str) -> None:
    """Make a store with authority at `path`."""
    open_sqlite(path, create=True, authority=True).close()


def propose(ledger: EffectLedger, key: str) -> bytes:
    """Ask for one action and return its id."""
    now_ms = time.time_ns() // 1_000_000
    intent = Intent(
        request=REQUEST,
        executor=EXECUTOR.principal,
        audience=RECEIVER,
        target_class=TargetClass.N,
        not_before_ms=now_ms,
        dispatch_before_ms=now_ms + WINDOW_MS,
        policy_sha256=sha256(b"policy").digest(),
        display_sha256=sha256(b"display").digest(),
    )
    return ledger.propose(ANN, key, intent).action_id


def approved(ledger: EffectLedger, keys: Sequence[str]) -> list[Approved]:
    """Return an approved action under each key."""
    made: list[Approved] = []
    for key in keys:
        action_id = propose(ledger, key)
        statement = ledger.statement(action_id, approver=BOB.principal, nonce=action_id)
        approval = VerifiedApproval(
            approval_id=action_id,
            statement=statement,
            signed_sha256=statement_sha256(statement),
            principal=BOB.principal,
        )
        ledger.approve(BOB, action_id, approval)
        made.append(Approved(key=key, action_id=action_id))
    return made


def claim(ledger: EffectLedger, one: Approved, worker: str) -> bytes:
    """Claim an action and return the claim's id; Refused where another worker was first."""
    digest = sha256(REQUEST).digest()
    return ledger.claim(EXECUTOR, one.action_id, worker=worker, request_sha256=digest).claim_id


def carry_out(ledger: EffectLedger, one: Approved, claim_id: bytes, worker: str, *, hand_out: bool) -> None:
    """Prepare a claimed action, hand its permit out where that is wanted, and record that it succeeded."""
    ledger.prepare(EXECUTOR, one.action_id, claim_id=claim_id, worker=worker)
    if hand_out:
        ledger.hand_out(EXECUTOR, one.action_id, claim_id=claim_id, worker=worker)
    receipt = Receipt(
        evidence_id=claim_id,
        action_key=one.key,
        receiver=RECEIVER,
        generation=1,
        request_sha256=sha256(REQUEST).digest(),
    )
    ledger.outcome(EXECUTOR, one.action_id, receipt)
