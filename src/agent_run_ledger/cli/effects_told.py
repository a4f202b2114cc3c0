"""One transition of an action in words: who did what, and by which evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_run_ledger.cli.effects_words import drain_words, look_words, proof_words
from agent_run_ledger.cli.words import iso
from agent_run_ledger.kernel.effects.commands import (
    Actor,
    Admit,
    Approve,
    Claim,
    CloseUnprepared,
    Doubt,
    DoubtBy,
    Edit,
    HandOut,
    NotExecuted,
    Observe,
    Outcome,
    Prepare,
    Propose,
    Revoke,
    Success,
    Successor,
    WriteOff,
)
from agent_run_ledger.kernel.effects.evidence import Drain
from agent_run_ledger.kernel.effects.states import ActionState

if TYPE_CHECKING:
    from agent_run_ledger.kernel.effects.action import Action
    from agent_run_ledger.ledger.effect_story import Told

_DOUBTS = {DoubtBy.WORKER: "its worker", DoubtBy.EXPIRY: "the clock", DoubtBy.OPERATOR: "an operator"}


def told_words(told: Told) -> str:
    """Return what a transition did, without its time."""
    command, row = told.command, told.transition.row
    return f"{_what(command, row)}, {_who(command)}"


def _who(command: Any) -> str:
    actor: Actor = command.actor
    people = sorted(getattr(command, "people", frozenset[str]()) - {actor.principal})
    return f"by {actor.principal}" + (f" with {' and '.join(people)}" if people else "")


def _what(command: Any, row: Action) -> str:
    match command:
        case Propose():
            return "proposed" if row.state is ActionState.PROPOSED else "proposed, and at once in doubt"
        case Edit() | Successor():
            return _replaced(command, row)
        case Approve():
            return f"approved ({len(row.approvals)} of {row.terms.approvals_needed})"
        case Claim():
            return f"claimed for {row.worker} as generation {row.generation}"
        case Prepare():
            return f"prepared, its permit lives until {_time(row.permit_expires_ms)}"
        case HandOut():
            return "permit handed out"
        case Revoke():
            return "revoked" if row.state is ActionState.REVOKED else "revoked, which cancels nothing that was sent"
        case Doubt():
            return f"doubt recorded for {_DOUBTS[command.by]}"
        case Observe() | Outcome() | Success():
            return _seen(command, row)
        case _:
            return _closed(command, row)


def _replaced(command: Edit | Successor, row: Action) -> str:
    kind = "successor" if isinstance(command, Successor) else "edited member"
    if row.state is ActionState.SUPERSEDED:
        return f"superseded by its {kind} {command.new_action_id.hex()}"
    return f"proposed as the {kind} of {command.action_id.hex()}"


def _seen(command: Observe | Outcome | Success, row: Action) -> str:
    if isinstance(command, Observe):
        evidence = command.evidence
        words = drain_words(evidence) if isinstance(evidence, Drain) else look_words(evidence, row)
        return f"evidence recorded: {words}"
    if row.state is ActionState.SUPERSEDED:
        return "superseded: the evidence names another member of a lost history"
    rebuilt = ", rebuilt as the member that the evidence names" if row.rebuilt else ""
    return f"succeeded{rebuilt}: {proof_words(command.evidence, row)}"


def _closed(command: Any, row: Action) -> str:
    match command:
        case NotExecuted() | CloseUnprepared() if command.fence is not None:
            return f"not executed: {command.fence.receiver} fenced the key at {command.fence.mark}"
        case NotExecuted():
            return "not executed: nothing more could arrive, and then nothing was seen"
        case CloseUnprepared():
            return "not executed: it was never prepared"
        case WriteOff():
            return "written off: nobody can find out"
        case Admit():
            return f"demoted to a doubt by the admission of epoch {command.epoch}"
        case _:
            return str(row.state)


def _time(time_ms: int | None) -> str:
    return "?" if time_ms is None else iso(time_ms)
