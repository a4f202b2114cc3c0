"""The documented JSON of actions and of the story of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.cli.effects_told import told_words
from agent_run_ledger.cli.effects_words import state_words, way_command
from agent_run_ledger.cli.words import iso

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.kernel.effects.advice import Way
    from agent_run_ledger.kernel.effects.evidence import Drain, Observation
    from agent_run_ledger.ledger.effect_inbox import Waiting
    from agent_run_ledger.ledger.effect_story import Member, Told


def action_json(one: Waiting, store: Setting) -> dict[str, object]:
    """Return one action as it waits now."""
    action, terms = one.action, one.action.terms
    return {
        "key": action.action_key,
        "action_id": action.action_id.hex(),
        "state": str(action.state),
        "status": state_words(one),
        "since": iso(one.since_ms),
        "age_ms": one.age_ms,
        "stranded": one.stranded,
        "silent_since": _iso(one.silent_ms),
        "target": terms.audience,
        "class": str(terms.target_class),
        "guarantee": one.view.guarantee,
        "not_protected": list(one.view.not_protected),
        "epoch": action.epoch,
        "generation": action.generation,
        "requester": action.requester,
        "executor": terms.executor,
        "worker": action.worker,
        "request_sha256": terms.request_sha256.hex(),
        "not_before": iso(terms.not_before_ms),
        "dispatch_before": iso(terms.dispatch_before_ms),
        "permit_expires": _iso(action.permit_expires_ms),
        "handed_out": action.handed_out,
        "revoked": action.revoked,
        "replaces": None if action.replaces is None else action.replaces.hex(),
        "approvals": [one.principal for one in action.approvals],
        "approvals_needed": terms.approvals_needed,
        "drain": _drain_json(action.drain),
        "observation": _look_json(action.observation),
        "evidence": [one.hex() for one in action.evidence],
        "next": [_way_json(way, store, one) for way in one.ways],
    }


def member_json(member: Member, store: Setting) -> dict[str, object]:
    """Return one member of a key with its request and its transitions."""
    asked = member.asked
    return {
        **action_json(member.waiting, store),
        "request": {
            "bytes": asked.size,
            "intact": asked.intact,
            "display": asked.display,
            "shown_as_approved": asked.shown_as_approved,
        },
        "transitions": [_told_json(told) for told in member.told],
    }


def _told_json(told: Told) -> dict[str, object]:
    command, transition = told.command, told.transition
    return {
        "leaf_index": told.leaf_index,
        "at": iso(command.now.latest_ms),
        "event": str(command.event),
        "by": command.actor.principal,
        "roles": sorted(map(str, command.actor.roles)),
        "with": sorted(getattr(command, "people", frozenset[str]())),
        "old": transition.old or None,
        "new": str(transition.row.state),
        "words": told_words(told),
    }


def _way_json(way: Way, store: Setting, one: Waiting) -> dict[str, object]:
    return {
        "step": str(way.step),
        "roles": sorted(map(str, way.roles)),
        "not_by": sorted(way.not_by),
        "refused": way.refused or None,
        "words": way.words,
        "command": way_command(store, way, one),
    }


def _drain_json(drain: Drain | None) -> dict[str, object] | None:
    if drain is None:
        return None
    return {
        "evidence_id": drain.evidence_id.hex(),
        "kind": str(drain.kind),
        "covers": str(drain.covers),
        "observer": drain.observer,
    }


def _look_json(seen: Observation | None) -> dict[str, object] | None:
    if seen is None:
        return None
    return {
        "evidence_id": seen.evidence_id.hex(),
        "found": str(seen.found),
        "observer": seen.observer,
        "epoch": seen.epoch,
        "after": None if seen.after is None else seen.after.hex(),
    }


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso(time_ms)
