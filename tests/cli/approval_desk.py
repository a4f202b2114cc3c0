"""A store with a local trust file and actions that wait, for the commands that decide about them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from agent_run_ledger import open_effects
from agent_run_ledger.effects import ActionView, Intent, Request, TargetClass, display_sha256, request_bytes
from agent_run_ledger.ledger.authority import actor_of

HOUR_MS = 3_600_000
BODY = b'{"cents":3000,"order":"17"}'


def refund(body: bytes = BODY) -> bytes:
    """The stored bytes of a refund."""
    return request_bytes(
        Request(method="POST", path="/v1/refunds", headers=(("content-type", "application/json"),), body=body)
    )


def propose(db: Path, key: str = "refund:17", *, request: bytes | None = None, **changes: Any) -> ActionView:
    """Ask, as the local agent and under the local policy."""
    now_ms, stored = time.time_ns() // 1_000_000, refund() if request is None else request
    with open_effects(db) as ledger:
        assert ledger.trust is not None
        trust = ledger.trust.trust
        policy = trust.policy_named("local")
        assert policy is not None
        settings: dict[str, Any] = {
            "request": stored,
            "executor": "worker",
            "audience": "https://pay.example",
            "target_class": TargetClass.I,
            "not_before_ms": now_ms - 1_000,
            "dispatch_before_ms": now_ms + HOUR_MS,
            "policy_sha256": trust.policy_sha256(policy),
            "display_sha256": display_sha256(stored) if request is None else b"d" * 32,
            **changes,
        }
        return ledger.propose(actor_of(trust, "agent"), key, Intent(**settings))


def state(db: Path, view: ActionView) -> str:
    with open_effects(db) as ledger:
        return str(ledger.get(view.action_id).state)
