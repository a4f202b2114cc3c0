"""`arl approvals list|show`: what waits for an approval, and exactly what would be approved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import ActionId, Db, Json, Trust

if TYPE_CHECKING:
    from agent_run_ledger.effects.views import ActionView
    from agent_run_ledger.kernel.effects.trust import TrustFile
    from agent_run_ledger.ports.effects import StoredAction

PAGE = 50
_BY_TIME = "may end by time alone: the target is taken to refuse a permit that is over"
_NOT_BY_TIME = "never ends by time alone"
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")]


def list_command(limit: Limit = PAGE, db: Db = None, as_json: Json = False) -> None:
    """List what waits for an approval, oldest first."""
    from agent_run_ledger.cli.effect_stores import not_protected, view_in, warn
    from agent_run_ledger.cli.effects_words import SHORT_DIGITS
    from agent_run_ledger.cli.folding import say_folded
    from agent_run_ledger.cli.next_steps import next_command
    from agent_run_ledger.cli.output import note, print_json, show_rows
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.cli.words import ago_words, clean
    from agent_run_ledger.kernel.effects import ActionState

    with reading(db) as store:
        found = store.reader().effects.in_states([ActionState.PROPOSED], after_row_id=-1, limit=limit + 1)
        page = [(stored, view_in(store, stored)) for stored in found[:limit]]
        where, unprotected = store.location, not_protected(store)
    if as_json:
        waiting = [action_json(view, stored) for stored, view in page]
        print_json({"waiting": waiting, "more": len(found) > limit, "not_protected": unprotected})
        return
    now_ms = time.time_ns() // 1_000_000
    if page:
        rows: list[tuple[str, ...]] = []
        for stored, view in page:
            counts = f"{len(view.approvals)}/{view.approvals_needed}"
            proposed = ago_words(stored.proposed_at_ms, now_ms)
            cells = (
                view.action_id.hex()[:SHORT_DIGITS],
                view.action_key,
                view.audience,
                view.requester,
                counts,
                proposed,
            )
            rows.append((*cells, window_words(view, now_ms)))
        names = ("ACTION", "KEY", "TO", "ASKED BY", "APPROVALS", "PROPOSED", "WINDOW")
        show_rows(names, rows, right=("APPROVALS",))
        note(f"one of them: {next_command(db_setting(db), 'approvals', 'show', page[0][1].action_id.hex())}")
    else:
        say_folded(f"nothing waits for an approval in {clean(where)}")
    if len(found) > limit:
        note(f"more than {limit} wait: --limit shows more")
    warn(unprotected)


def show_command(action: ActionId, trust: Trust = None, db: Db = None, as_json: Json = False) -> None:
    """Show what an approval of an action would be of: its exact bytes, and all that is signed with them."""
    from agent_run_ledger.cli.effect_stores import not_protected, view_in, warn
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.authority import find_authority
    from agent_run_ledger.ledger.effect_inbox import find_action
    from agent_run_ledger.ledger.effect_opening import stored_request

    with reading(db) as store:
        stored = find_action(store, action)
        view = view_in(store, stored)
        body = b"" if stored.action.rebuilt else stored_request(store, view.action_id)
        unprotected, ledger_id, epoch = not_protected(store), store.log_id, store.reader().head().epoch
    authority = find_authority(db_setting(db).value, trust)
    file = None if authority is None else authority.trust
    shown = display_of(view, body)
    if as_json:
        standing = {"ledger_id": ledger_id.hex(), "epoch": epoch}
        print_json(
            {
                "action": {**action_json(view, stored), **standing, **policy_json(view, file)},
                "display": shown,
                "not_protected": unprotected,
            }
        )
        return
    print_action(view, file, shown)
    warn(unprotected)


def print_action(view: ActionView, trust: TrustFile | None, shown: str | None) -> None:
    """Print what is approved: the fields of the statement, who approved, who may, and the display.

    In the fields, as in the display, only letters stand for themselves, and those beyond ASCII are named in the end.
    """
    from agent_run_ledger.cli.folding import say_exact, say_folded
    from agent_run_ledger.cli.output import say, show_named
    from agent_run_ledger.cli.words import clean_lines, iso
    from agent_run_ledger.kernel.effects.display import letters_beyond
    from agent_run_ledger.kernel.effects.display import shown as only_letters

    window = f"{iso(view.not_before_ms)} to {iso(view.dispatch_before_ms)}"
    policy = policy_json(view, trust)
    missing = max(0, view.approvals_needed - len(view.approvals))
    lines = [
        ("action", view.action_id.hex()),
        ("key", view.action_key),
        ("state", view.status),
        ("asked by", view.requester),
        ("sent by", view.executor),
        ("sent to", view.audience),
        ("taken for", f"class {view.target_class}: {view.guarantee}"),
        ("a doubt", _BY_TIME if view.by_time else _NOT_BY_TIME),
        ("window", f"{window}, {window_words(view, time.time_ns() // 1_000_000)}"),
        *(("only if", f"{name} is {value}") for name, value in view.preconditions),
        ("policy", str(policy["policy"] or f"unknown, {view.policy_sha256.hex()}")),
        ("approved", ", ".join(view.approvals) or "by nobody yet"),
        ("missing", f"{missing} of {view.approvals_needed}" + _by_whom(view, trust)),
        ("request", f"SHA-256 {view.request_sha256.hex()}"),
    ]
    fields = [(name, only_letters(words)) for name, words in lines]
    beyond = letters_beyond([words for _, words in fields])
    if beyond:
        fields.append(("CAREFUL", f"{beyond}: letters of other alphabets can look like those of this one"))
    show_named(fields)
    say("")
    if shown is None:
        say_folded("Its bytes have no display that its proposal names: this command cannot approve it.")
        return
    for line in clean_lines(shown.rstrip("\n")):
        say_exact(line, before="  ")


def display_of(view: ActionView, body: bytes) -> str | None:
    """Return the display of an action's bytes, None where they have none, or it is not the one that is signed."""
    from agent_run_ledger.kernel.effects.display import display, display_sha256
    from agent_run_ledger.kernel.effects.request import BadRequest

    try:
        return display(body) if display_sha256(body) == view.display_sha256 else None
    except BadRequest:
        return None


def action_json(view: ActionView, stored: StoredAction) -> dict[str, object]:
    """Return the documented JSON of an action that may be approved."""
    from agent_run_ledger.cli.words import iso

    return {
        "action_id": view.action_id.hex(),
        "action_key": view.action_key,
        "state": str(view.state),
        "requester": view.requester,
        "executor": view.executor,
        "audience": view.audience,
        "target_class": str(view.target_class),
        "checks_expiry": view.checks_expiry,
        "by_time": view.by_time,
        "request_sha256": view.request_sha256.hex(),
        "display_sha256": view.display_sha256.hex(),
        "policy_sha256": view.policy_sha256.hex(),
        "preconditions": [list(pair) for pair in view.preconditions],
        "not_before": iso(view.not_before_ms),
        "dispatch_before": iso(view.dispatch_before_ms),
        "approvals": list(view.approvals),
        "approvals_needed": view.approvals_needed,
        "proposed_at": iso(stored.proposed_at_ms),
    }


def policy_json(view: ActionView, trust: TrustFile | None) -> dict[str, object]:
    """Return the name of an action's policy and who may still approve under it; None where the trust file has none."""
    policy = None if trust is None else trust.policy(view.policy_sha256)
    return {"policy": None if policy is None else policy.name, "may_approve": may_approve(view, trust)}


def may_approve(view: ActionView, trust: TrustFile | None) -> list[str] | None:
    """Return who may still approve an action, None where the trust file does not have its policy."""
    policy = None if trust is None else trust.policy(view.policy_sha256)
    return None if policy is None else sorted(policy.approvers - {*view.approvals, view.requester, view.executor})


def window_words(view: ActionView, now_ms: int) -> str:
    """Return how long an action can still be sent."""
    from agent_run_ledger.cli.words import duration_words

    if now_ms >= view.dispatch_before_ms:
        return "over"
    if now_ms < view.not_before_ms:
        return f"begins in {duration_words(view.not_before_ms - now_ms)}"
    return f"{duration_words(view.dispatch_before_ms - now_ms)} left"


def _by_whom(view: ActionView, trust: TrustFile | None) -> str:
    may = may_approve(view, trust)
    return f", by {' or '.join(may)}" if may else ""
