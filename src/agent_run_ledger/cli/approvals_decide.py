"""`arl approvals grant|reject|revoke`: what people decide about an action, each with a key of their own."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_run_ledger.cli.options import ActionId, Db, Json, Key, PassphraseFile, Trust, Yes
from agent_run_ledger.errors import Misuse, Refused

if TYPE_CHECKING:
    from agent_run_ledger.cli.effect_stores import Deciding
    from agent_run_ledger.effects.views import ActionView
    from agent_run_ledger.kernel.effects.action import Action
    from agent_run_ledger.kernel.effects.approval import Statement
    from agent_run_ledger.kernel.effects.commands import Actor
    from agent_run_ledger.keys import SigningKey

NONCE_BYTES = 16
_NO_DISPLAY = "propose it with `request_bytes` and `display_sha256`, or sign its statement with a tool of your own"


def grant(
    action: ActionId,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    yes: Yes = False,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show what an action would send, ask, sign exactly that, and let the ledger count the approval."""
    from agent_run_ledger.cli.approvals_look import display_of, print_action
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.effect_stores import deciding_effects
    from agent_run_ledger.cli.effects_done import hints_about
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.effects.signing import sign_approval
    from agent_run_ledger.ledger.local_authority import APPROVER_KEY

    _can_ask(as_json=as_json, yes=yes)
    row = _meant(db, action)
    action_id = row.action_id
    with deciding_effects(db, trust) as here, hints_about(row):
        actor, signer = _signer(here, key, passphrase_file, APPROVER_KEY)
        stored = here.ledger.get(action_id)
        statement = here.ledger.statement(action_id, approver=actor.principal, nonce=os.urandom(NONCE_BYTES))
        view, body = _as_signed(stored, statement), here.ledger.request(action_id)
        shown = display_of(view, body)
        if not as_json:
            print_action(view, here.authority.trust, shown)
        if shown is None:
            said = f"the bytes of action {action_id.hex()} have no display that its proposal names"
            raise Refused(said, code="no_display", hint=_NO_DISPLAY)
        confirm(f"Approve exactly this as {clean(actor.principal)}?", yes=yes)
        signed = _beside_others(here, statement)
        envelope = sign_approval(signed, signer, request=body, display=shown.encode("utf-8"))
        _tell(here, here.ledger.grant(envelope), actor.principal, "approved", as_json=as_json)


def _beside_others(here: Deciding, shown: Statement) -> Statement:
    """Return what was shown, with the number that all approvals of the action share by now: others approve meanwhile.

    Nothing else of it is read anew: where the ledger has other terms by now, it refuses them.
    """
    return replace(shown, nonce=here.ledger.get(shown.action_id).nonce or shown.nonce)


def _as_signed(view: ActionView, statement: Statement) -> ActionView:
    """Return an action as the statement says it, which is shown, and signed as it is: nothing is read in between.

    Where the ledger has other terms by then, it refuses what was signed.
    """
    from agent_run_ledger.effects.views import CLASS_WORDS

    return replace(
        view,
        action_key=statement.action_key,
        action_id=statement.action_id,
        epoch=statement.epoch,
        requester=statement.requester,
        executor=statement.executor,
        audience=statement.audience,
        target_class=statement.target_class,
        checks_expiry=statement.checks_expiry,
        guarantee=CLASS_WORDS[statement.target_class],
        preconditions=statement.preconditions,
        not_before_ms=statement.not_before_ms,
        dispatch_before_ms=statement.dispatch_before_ms,
        request_sha256=statement.request_sha256,
        policy_sha256=statement.policy_sha256,
        display_sha256=statement.display_sha256,
    )


def reject(
    action: ActionId,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Close what was proposed, as an approver. Nothing of it is ever sent; a successor can take its place."""
    from agent_run_ledger.cli.effect_stores import deciding_effects
    from agent_run_ledger.cli.effects_done import hints_about
    from agent_run_ledger.ledger.local_authority import APPROVER_KEY

    row = _meant(db, action)
    with deciding_effects(db, trust) as here, hints_about(row):
        actor, _ = _signer(here, key, passphrase_file, APPROVER_KEY)
        _tell(here, here.ledger.reject(actor, row.action_id), actor.principal, "rejected", as_json=as_json)


def revoke(
    action: ActionId,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    yes: Yes = False,
    trust: Trust = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Forbid what has not been sent yet, as a revoker. It cancels nothing that was sent."""
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.effect_stores import deciding_effects
    from agent_run_ledger.cli.effects_done import hints_about
    from agent_run_ledger.cli.effects_words import left_open_words
    from agent_run_ledger.cli.next_steps import with_store
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.local_authority import OPERATOR_KEY

    row = _meant(db, action)
    with deciding_effects(db, trust) as here, hints_about(row):
        actor, _ = _signer(here, key, passphrase_file, OPERATOR_KEY)
        asks = f"Revoke action {row.action_id.hex()} of {clean(row.action_key)}? What is not sent is never sent."
        confirm(asks, yes=yes)
        view = here.ledger.revoke(actor, row.action_id)
        left = with_store(left_open_words(view), here.setting)
        _tell(here, view, actor.principal, "revoked", as_json=as_json, left_open=left or None)


def _meant(db: str | None, action: str) -> Action:
    """Return the one action that is meant."""
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.effect_inbox import find_action

    with reading(db) as store:
        return find_action(store, action).action


def _signer(here: Deciding, key: str | None, passphrase_file: str | None, name: str) -> tuple[Actor, SigningKey]:
    """Return who holds the key that was named, and the key."""
    from agent_run_ledger.cli.key_files import signing_key
    from agent_run_ledger.ledger.authority import actor_with_key
    from agent_run_ledger.ledger.local_trust import local_file

    held = signing_key(key, passphrase_file, local=local_file(here.setting.value, name))
    return actor_with_key(here.authority.trust, held), held


def _can_ask(*, as_json: bool, yes: bool) -> None:
    if as_json and not yes:
        raise Misuse("with --json nobody sees what is approved", code="not_confirmed", hint="give --yes")


def _tell(here: Deciding, view: ActionView, principal: str, done: str, *, as_json: bool, **more: str | None) -> None:
    """Print what was decided, and where the action stands now. `more`: what JSON says besides, and people are told."""
    from agent_run_ledger.cli.effect_stores import warn
    from agent_run_ledger.cli.folding import note_folded, say_folded
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.words import clean

    unprotected = here.ledger.status().not_protected
    if as_json:
        print_json(
            {
                "action_id": view.action_id.hex(),
                "action_key": view.action_key,
                "state": str(view.state),
                "approvals": list(view.approvals),
                "approvals_needed": view.approvals_needed,
                "revoked": view.revoked,
                "principal": principal,
                **more,
                "not_protected": unprotected,
            }
        )
        return
    say_folded(
        f"{done} by {clean(principal)}: action {view.action_id.hex()} of {clean(view.action_key)} is {view.status}"
    )
    for words in filter(None, more.values()):
        note_folded(words)
    warn(unprotected)
