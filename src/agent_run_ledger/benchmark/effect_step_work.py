"""The agent whose effect steps are measured, its store with a trust file of its own, and the approver who signs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from agent_run_ledger.effects import ActionView
from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects.display import display
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind, PublicKey
from agent_run_ledger.kernel.effects.request import Request
from agent_run_ledger.kernel.effects.result import EffectResult
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import SigningKey
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.ledger.run_effects import EffectSettings, open_run_effects
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.runs.effect_steps import Effect
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.targets import http

NONCE_BYTES = 16
WINDOW_MS = 3_600_000
POLICY, APPROVER = "finance", "bob"


def make_store(path: str, trust: str) -> SigningKey:
    """Make a store with authority and the trust file beside it, and return the approver's key."""
    store = open_sqlite(path, create=True, authority=True)
    ledger_id = store.log_id
    store.close()
    signing, now_ms = SigningKey.draw(), time.time_ns() // 1_000_000
    public = PublicKey(public=signing.public, not_before_ms=now_ms - WINDOW_MS, not_after_ms=now_ms + WINDOW_MS)
    program = {"agent": Role.REQUESTER, "worker": Role.EXECUTOR}
    made = TrustFile(
        ledger_id=ledger_id,
        serial=1,
        officers_needed=1,
        principals=(
            Principal(
                name=APPROVER,
                kind=PrincipalKind.PERSON,
                roles=frozenset({Role.APPROVER, Role.OFFICER}),
                keys=(public,),
            ),
            *(
                Principal(name=name, kind=PrincipalKind.AUTOMATIC, roles=frozenset({role}))
                for name, role in program.items()
            ),
        ),
        policies=(
            ApprovalPolicy(
                name=POLICY,
                approvals_needed=1,
                people_needed=1,
                approvers=frozenset({APPROVER}),
                max_window_ms=WINDOW_MS,
            ),
        ),
    )
    with open(trust, "xb") as file:
        file.write(sign_trust(made, [signing]))
    return signing


def agent(path: str, trust: str, url: str, *, wait_s: float = 0) -> tuple[RunLedger, Effect[[int]]]:
    """Return the ledger of a run, and its effect."""
    ledger = RunLedger("bench", path, effects=EffectSettings(trust=trust, reconciler=None))

    @ledger.effect(key="refund:{order}", target=http(url), approval=POLICY, wait_s=wait_s)
    def refund(order: int) -> Request:
        return request(order)

    return ledger, refund


def request(order: int) -> Request:
    """Return what is sent for an order."""
    return Request.json("POST", "/refunds", {"order": order, "cents": 3_000})


def approve_all(path: str, trust: str, url: str, orders: Iterable[int], signing: SigningKey) -> None:
    """Ask for these effects as the agent would, and sign them."""
    ledger, refund = agent(path, trust, url)
    asking = open_run_effects(path, "full", EffectSettings(trust=trust, reconciler=None))
    with ledger, open_effects(path, trust_path=trust) as effects:
        for order in orders:
            asking.propose(refund.wanted((order,), {}, request(order)))
            grant(effects, effects.inspect(f"refund:{order}")[-1], signing)
    asking.close()


def grant(effects: EffectLedger, view: ActionView, signing: SigningKey) -> None:
    """Sign an action."""
    stored = effects.request(view.action_id)
    statement = effects.statement(view.action_id, approver=APPROVER, nonce=os.urandom(NONCE_BYTES))
    effects.grant(sign_approval(statement, signing, request=stored, display=display(stored).encode()))


def refund_all(ledger: RunLedger, refund: Effect[[int]], orders: Iterable[int]) -> list[EffectResult]:
    """Carry them out in one run, one after the other."""
    with ledger.run():
        return [refund(order) for order in orders]
