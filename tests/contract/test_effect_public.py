"""What a user of effects needs is public, and is enough for a whole life of an action on the machine's own clocks."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Any, get_args, get_type_hints

import agent_run_ledger
from agent_run_ledger import EffectLedger, effects
from agent_run_ledger.effects import Actor, Intent, Receipt, Role, TargetClass, VerifiedApproval, statement_sha256
from agent_run_ledger.store import open_sqlite


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert {"EffectLedger", "Grant", "Dispatch"} <= set(agent_run_ledger.__all__)
    for name in effects.__all__:
        assert inspect.getdoc(getattr(effects, name)), name
    methods = [one for name, one in inspect.getmembers(EffectLedger, inspect.isfunction) if not name.startswith("_")]
    assert len(methods) == 28
    assert all(inspect.getdoc(one) for one in methods)


def _classes(hint: Any) -> set[type]:
    inside = get_args(hint)
    return set().union(*map(_classes, inside)) if inside else {hint} if isinstance(hint, type) else set()


def test_whoever_uses_it_needs_no_other_module() -> None:
    public = {*effects.__all__, *agent_run_ledger.__all__, "Entropy"}
    methods = [one for _, one in inspect.getmembers(EffectLedger, inspect.isfunction)]
    asked = [one for one in methods if one.__name__ == "__init__" or not one.__name__.startswith("_")]
    named = {kind for one in asked for hint in get_type_hints(one).values() for kind in _classes(hint)}
    own = {kind.__name__ for kind in named if kind.__module__.startswith("agent_run_ledger")}
    assert {"Actor", "ActionView", "Grant", "Dispatch", "Statement", "Receipt", "Witness"} <= own
    assert own - public == set()


def test_a_life_on_the_machines_clocks(tmp_path: Path) -> None:
    path, now_ms = tmp_path / "effects.db", time.time_ns() // 1_000_000
    open_sqlite(path, create=True, authority=True).close()
    ann, bob = Actor("ann", frozenset({Role.REQUESTER})), Actor("bob", frozenset({Role.APPROVER}))
    exe = Actor("exe", frozenset({Role.EXECUTOR}))
    intent = Intent(
        request=b'{"refund": 17}',
        executor="exe",
        audience="https://pay.example",
        target_class=TargetClass.F,
        not_before_ms=now_ms - 1_000,
        dispatch_before_ms=now_ms + 3_600_000,
        policy_sha256=bytes(32),
        display_sha256=bytes(32),
    )
    with EffectLedger(path) as ledger:
        view = ledger.propose(ann, "refund:17", intent)
        statement = ledger.statement(view.action_id, approver="bob", nonce=b"one instance, 16")
        signed = VerifiedApproval(
            approval_id=b"from the signer", statement=statement, signed_sha256=statement_sha256(statement),
            principal="bob",
        )  # fmt: skip
        view = ledger.approve(bob, view.action_id, signed)
        grant = ledger.claim(exe, view.action_id, worker="host 1, pid 7", request_sha256=view.request_sha256)
        own = {"claim_id": grant.claim_id, "worker": "host 1, pid 7"}
        ledger.prepare(exe, view.action_id, **own)  # type: ignore[arg-type]
        dispatch = ledger.hand_out(exe, view.action_id, **own)  # type: ignore[arg-type]
        assert (dispatch.request, dispatch.permit.aud) == (intent.request, "https://pay.example")
        assert now_ms < dispatch.permit.exp <= now_ms + 3_600_000
        receipt = Receipt(
            evidence_id=b"the receiver's id",
            action_key="refund:17",
            receiver="https://pay.example",
            generation=dispatch.permit.gen,
            request_sha256=view.request_sha256,
        )
        assert ledger.outcome(exe, view.action_id, receipt).state == "succeeded"
    ledger.close()
