"""One action in each state that there is, made by the ledger and by the commands that people type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent_run_ledger.effects import ActionState, ActionView
from tests.cli.conftest import Arl
from tests.cli.effect_store import FINANCE, REV, Effects

KEY: Final = "refund:1"
Make = Callable[[Effects, Arl], ActionView]


def _typed(arl: Arl, effects: Effects, *words: object) -> None:
    done = arl(*words, "--db", effects.path)
    assert done.code == 0, done.err


def _succeeded(effects: Effects, arl: Arl) -> ActionView:
    return effects.succeeded(KEY)


def _expired(effects: Effects, arl: Arl) -> ActionView:
    view = effects.expired(KEY)
    _typed(arl, effects, "effects", "expire", KEY, "--as", "ops")
    return view


def _superseded(effects: Effects, arl: Arl) -> ActionView:
    view = _expired(effects, arl)
    _typed(arl, effects, "actions", "successor", KEY, "--as", "agent")
    return view


def _rejected(effects: Effects, arl: Arl) -> ActionView:
    view = effects.propose(KEY)
    with effects.open() as ledger:
        return ledger.reject(FINANCE, view.action_id)


def _revoked(effects: Effects, arl: Arl) -> ActionView:
    view = effects.approve(effects.propose(KEY))
    with effects.open() as ledger:
        return ledger.revoke(REV, view.action_id)


def _not_executed(effects: Effects, arl: Arl) -> ActionView:
    view = effects.doubted(KEY)
    _typed(arl, effects, "effects", "observe", KEY, "--drain", "expiry", "--as", "cat")
    drain = arl("effects", "list", "--db", effects.path, "--json").json["actions"][0]["drain"]["evidence_id"]
    _typed(arl, effects, "effects", "observe", KEY, "--found", "nothing", "--after", drain, "--as", "cat")
    _typed(arl, effects, "effects", "reconcile", KEY, "--did-not-happen", "--as", "cat")
    return view


def _written_off(effects: Effects, arl: Arl) -> ActionView:
    view = effects.doubted(KEY)
    off = ("--write-off", "--nobody-can-look", "--with", "dan", "--yes", "--as", "cat")
    _typed(arl, effects, "effects", "reconcile", KEY, *off)
    return view


MADE: Final[dict[ActionState, Make]] = {
    ActionState.PROPOSED: lambda effects, arl: effects.propose(KEY),
    ActionState.AVAILABLE: lambda effects, arl: effects.approve(effects.propose(KEY)),
    ActionState.CLAIMED: lambda effects, arl: effects.claimed(KEY),
    ActionState.PREPARED: lambda effects, arl: effects.silent(KEY),
    ActionState.UNRESOLVED: lambda effects, arl: effects.doubted(KEY),
    ActionState.SUCCEEDED: _succeeded,
    ActionState.SUPERSEDED: _superseded,
    ActionState.REJECTED: _rejected,
    ActionState.EXPIRED: _expired,
    ActionState.REVOKED: _revoked,
    ActionState.NOT_EXECUTED: _not_executed,
    ActionState.WRITTEN_OFF: _written_off,
}
"""How an action comes into each state, under KEY."""
