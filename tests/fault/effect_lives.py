"""Lives of effects for the power tests, and what a cut of the power may never give back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.effects import ActionState, TargetClass
from agent_run_ledger.kernel.effects.commands import DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, Found, Observation
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store import open_sqlite, stored_durability
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from tests.fault.effect_kit import (
    APPROVER,
    EXECUTOR,
    OPERATOR,
    RECONCILER,
    REQUESTER,
    Ticks,
    intent,
    number,
    receipt,
    signed,
)

SENT, LEFT = "sent", "left"
NEVER_AGAIN = frozenset({ActionState.PROPOSED, ActionState.AVAILABLE})
"""An action in none of these was claimed, or can be no more."""

VOID = frozenset({"restarted", "handed_out"})
"""Why a permit is refused to another opening than the one that prepared it."""


def effects(durability: str) -> Callable[[Path], object]:
    """Two actions: one goes through everything, the other is left prepared, and settled through another opening.

    Begun again from what a cut left it goes on, and never with a claim that is not its own.
    """

    def life(workdir: Path) -> object:
        path = workdir / LEDGER_FILE
        store = open_sqlite(path, create=True, durability=durability)
        if not store.authority:
            store.grant_authority()
        store.close()
        with EffectLedger(path, durability=durability, time=Ticks()) as ledger:
            _send(ledger)
            _leave(ledger)
        with EffectLedger(path, durability=durability, time=Ticks()) as ledger:
            return [_settle(ledger, key) for key in (SENT, LEFT)]

    return life


def _approved(ledger: EffectLedger, key: str, target_class: TargetClass) -> bytes | None:
    """Return the action of a key, once it is available; None where it was claimed before."""
    view = ledger.propose(REQUESTER, key, intent(key.encode(), target_class=target_class))
    if view.state is ActionState.PROPOSED:
        view = ledger.approve(APPROVER, view.action_id, signed(ledger, view.action_id))
    return view.action_id if view.state is ActionState.AVAILABLE else None


def _prepared(ledger: EffectLedger, key: str, target_class: TargetClass) -> tuple[bytes, bytes] | None:
    action_id = _approved(ledger, key, target_class)
    if action_id is None:
        return None
    digest = ledger.get(action_id).request_sha256
    claim_id = ledger.claim(EXECUTOR, action_id, worker="w", request_sha256=digest).claim_id
    ledger.prepare(EXECUTOR, action_id, claim_id=claim_id, worker="w")
    return action_id, claim_id


def _send(ledger: EffectLedger) -> None:
    if (prepared := _prepared(ledger, SENT, TargetClass.F)) is not None:
        action_id, claim_id = prepared
        dispatch = ledger.hand_out(EXECUTOR, action_id, claim_id=claim_id, worker="w")
        told = receipt(SENT, dispatch.permit.gen, dispatch.view.request_sha256)
        ledger.outcome(EXECUTOR, action_id, told)


def _leave(ledger: EffectLedger) -> None:
    _prepared(ledger, LEFT, TargetClass.N)


def _settle(ledger: EffectLedger, key: str) -> str:
    """Close a key by what can be known of it: nothing of it was ever executed that was not recorded."""
    (view,) = ledger.inspect(key)
    if not view.closed and view.state is not ActionState.UNRESOLVED:
        ledger.doubt(OPERATOR, view.action_id, by=DoubtBy.OPERATOR)
    if not view.closed and view.target_class is TargetClass.F:
        ledger.reconcile_success(RECONCILER, view.action_id, receipt(key, 1, view.request_sha256))
    elif not view.closed:
        drain, about = number(), RECONCILER.principal
        ledger.observe(
            RECONCILER,
            view.action_id,
            Drain(
                evidence_id=drain,
                action_key=key,
                epoch=0,
                observer=about,
                kind=DrainKind.PATH_DEAD,
                covers=Covers.WORKER,
            ),
        )
        ledger.observe(
            RECONCILER,
            view.action_id,
            Observation(
                evidence_id=number(), action_key=key, epoch=0, observer=about, found=Found.NOTHING, after=drain
            ),
        )
        ledger.reconcile_not_executed(RECONCILER, view.action_id)
    return f"{key}: {'closed' if ledger.inspect(key)[-1].closed else 'open'}"


def nothing_is_granted_again(path: Path) -> None:
    """AssertionError where a new opening of a ledger claims what was claimed, or hands out what was prepared before.

    What was never claimed can be, once. The clock stands where it stood: nothing is refused because it is late.
    """
    store = open_sqlite(path, create=False, durability=(durability := stored_durability(path)))
    has_authority = store.authority
    store.close()
    if not has_authority:
        return
    with EffectLedger(path, durability=durability, time=Ticks()) as ledger:
        for key in (SENT, LEFT):
            for view in ledger.inspect(key):
                if view.state not in NEVER_AGAIN:
                    refuses(ledger, view.action_id, view.claim_id or bytes(16))
                elif view.state is ActionState.AVAILABLE:
                    _claim(ledger, view.action_id)
                    refuses(ledger, view.action_id, bytes(16))


def _claim(ledger: EffectLedger, action_id: bytes) -> None:
    digest = ledger.get(action_id).request_sha256
    assert ledger.claim(EXECUTOR, action_id, worker="another", request_sha256=digest).granted_now


def refuses(ledger: EffectLedger, action_id: bytes, claim_id: bytes) -> None:
    """AssertionError unless it is neither claimed nor handed out, because of where it stands and nothing else."""
    state = ledger.get(action_id).state
    for allowed, ask in (
        ({str(state)}, lambda: _claim(ledger, action_id)),
        (
            VOID if state is ActionState.PREPARED else {str(state)},
            lambda: ledger.hand_out(EXECUTOR, action_id, claim_id=claim_id, worker="w"),
        ),
    ):
        try:
            ask()
        except Refused as error:
            if error.code not in allowed:
                raise AssertionError(f"it was refused only for {error}") from error
        else:
            raise AssertionError(f"action {action_id.hex()} was granted again: {ledger.get(action_id)}")
