"""Small real stores with actions, made by the ledger on the machine's own clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import (
    ActionView,
    Actor,
    DoubtBy,
    Intent,
    Receipt,
    Role,
    Settings,
    TargetClass,
    VerifiedApproval,
    request_bytes,
    statement_sha256,
)
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.request import Request
from agent_run_ledger.store import open_sqlite

AGENT, FINANCE = Actor("agent", frozenset({Role.REQUESTER})), Actor("finance", frozenset({Role.APPROVER}))
PAYER, OPS = Actor("payer", frozenset({Role.EXECUTOR})), Actor("ops", frozenset({Role.OPERATOR}))
REV = Actor("rev", frozenset({Role.REVOKER}))
POLICY = "ab" * 32
PAY = "https://pay.example"
WORKER = "host-1/4711"
HOSTILE_KEY = "refund \x1b[2J\x1b]0;owned\x07 \u202eevil [red]x[/red]"
HOSTILE_NAME = "eve\n\x1b[31m\u202e"


class Effects:
    """One store with authority; every method opens the ledger, acts and closes it, as another process would."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = Settings(**{"bound_ms": 0, **settings})
        open_sqlite(path, create=True, authority=True).close()

    def open(self) -> EffectLedger:
        return EffectLedger(self.path, settings=self.settings)

    def propose(self, key: str = "refund:1", target: TargetClass = TargetClass.V, **changes: Any) -> ActionView:
        now_ms = time.time_ns() // 1_000_000
        request = changes.pop("request", None) or request_bytes(Request.json("POST", "/refunds", {"key": key}))
        shown = changes.pop("display_sha256", None) or display_sha256(request)
        settings: dict[str, Any] = {
            "request": request, "executor": "payer", "audience": PAY, "target_class": target,
            "not_before_ms": now_ms - 1_000, "dispatch_before_ms": now_ms + 3_600_000,
            "policy_sha256": bytes.fromhex(POLICY), "display_sha256": shown,
        }  # fmt: skip
        with self.open() as ledger:
            return ledger.propose(changes.pop("by", AGENT), key, Intent(**{**settings, **changes}))

    def approve(self, view: ActionView) -> ActionView:
        with self.open() as ledger:
            signed = ledger.statement(view.action_id, approver="finance", nonce=os.urandom(16))
            approval = VerifiedApproval(
                approval_id=os.urandom(16),
                statement=signed,
                signed_sha256=statement_sha256(signed),
                principal="finance",
            )
            return ledger.approve(FINANCE, view.action_id, approval)

    def claimed(self, key: str = "refund:1", target: TargetClass = TargetClass.V, **changes: Any) -> ActionView:
        view = self.approve(self.propose(key, target, **changes))
        with self.open() as ledger:
            return ledger.claim(PAYER, view.action_id, worker=WORKER, request_sha256=view.request_sha256).view

    def silent(
        self, key: str = "refund:1", target: TargetClass = TargetClass.V, *, handed_out: bool = False
    ) -> ActionView:
        """A worker prepared it and said nothing more; its permit is over by now. `handed_out`: it had got it."""
        view = self.approve(self.propose(key, target))
        with self.open() as ledger:
            grant = ledger.claim(PAYER, view.action_id, worker=WORKER, request_sha256=view.request_sha256)
            own = {"claim_id": grant.claim_id, "worker": WORKER}
            ledger.prepare(PAYER, view.action_id, permit_ms=2_000 if handed_out else 1, **own)
            if handed_out:
                ledger.hand_out(PAYER, view.action_id, **own)
            prepared = ledger.get(view.action_id)
            while time.time_ns() // 1_000_000 <= (prepared.permit_expires_ms or 0):
                time.sleep(0.01)
            return ledger.get(view.action_id)

    def doubted(
        self, key: str = "refund:1", target: TargetClass = TargetClass.V, *, handed_out: bool = False
    ) -> ActionView:
        view = self.silent(key, target, handed_out=handed_out)
        with self.open() as ledger:
            return ledger.doubt(OPS, view.action_id, by=DoubtBy.OPERATOR)

    def succeeded(self, key: str) -> ActionView:
        view = self.doubted(key)
        receipt = Receipt(
            evidence_id=os.urandom(16), action_key=key, receiver=PAY, generation=1, request_sha256=view.request_sha256
        )
        with self.open() as ledger:
            return ledger.outcome(PAYER, view.action_id, receipt)

    def expired(self, key: str) -> ActionView:
        """Its window is over, and nobody has closed it."""
        now_ms = time.time_ns() // 1_000_000
        view = self.propose(key, not_before_ms=now_ms - 10, dispatch_before_ms=now_ms + 1)
        while time.time_ns() // 1_000_000 <= view.dispatch_before_ms:
            time.sleep(0.001)
        return view

    def get(self, view: ActionView) -> ActionView:
        with self.open() as ledger:
            return ledger.get(view.action_id)

    def leaves(self) -> int:
        store = open_sqlite(self.path, create=False, readonly=True)
        try:
            return store.reader().head().size
        finally:
            store.close()


def described(folder: Path, **parts: Any) -> Path:
    """A file that describes a request."""
    path = folder / "request.json"
    path.write_text(json.dumps(parts), encoding="utf-8")
    return path
