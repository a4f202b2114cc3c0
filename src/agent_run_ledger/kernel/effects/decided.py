"""What those sign who decide how a doubt ends: one command, for one action as it stands (format: decision v1)."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeGuard, cast

from agent_run_ledger.kernel.canonical import Json, canonical
from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.commands import CloseUnprepared, Command, NotExecuted, Observe, WriteOff
from agent_run_ledger.kernel.effects.evidence import Drain, DrainKind
from agent_run_ledger.kernel.effects.plain import to_plain

DECISION_TYPE: Final = "application/vnd.agent-run-ledger.decision.v1+json"
DECISION_VERSION: Final = 1

Decision: TypeAlias = NotExecuted | WriteOff | CloseUnprepared | Observe

_BESIDE: Final = frozenset({"actor", "now", "action_id", "people", "signatures"})
"""What of a command stands elsewhere in the decision, or is no part of it."""


def is_decision(command: Command) -> TypeGuard[Decision]:
    """Return whether a command lets a doubt end without the effect: then a successor may be sent, or nothing ever.

    A drain by dead paths is one too: what closes the action rests on it, and nothing but a word shows it.
    """
    if isinstance(command, Observe):
        return isinstance(command.evidence, Drain) and command.evidence.kind is DrainKind.PATH_DEAD
    return isinstance(command, NotExecuted | WriteOff | CloseUnprepared)


def deciders(command: Command) -> frozenset[str]:
    """Return who decides: who asks, and those who decide together with them."""
    people: frozenset[str] = getattr(command, "people", frozenset())
    return people | {command.actor.principal}


def decision_bytes(ledger: Standing, row: Action, command: Decision) -> bytes:
    """Return the RFC 8785 bytes that every decider signs, of a command about `row` as it stands before it.

    `row.evidence` and `row.state` are in it: a look, a drain or a doubt that is recorded after somebody signed makes it
    another decision. NotCanonical for text that JSON cannot say.
    """
    asked = cast("dict[str, Json]", to_plain(command))
    evidence: list[Json] = [one.hex() for one in row.evidence]
    who: list[Json] = [*sorted(deciders(command))]
    return canonical(
        {
            "action_id": row.action_id.hex(),
            "action_key": row.action_key,
            "asked": {name: value for name, value in asked.items() if name not in _BESIDE},
            "deciders": who,
            "epoch": ledger.epoch,
            "evidence": evidence,
            "generation": row.generation,
            "ledger_id": ledger.ledger_id.hex(),
            "request_sha256": row.terms.request_sha256.hex(),
            "state": str(row.state),
            "v": DECISION_VERSION,
        }
    )


def evidence_before(row: Action, command: Decision) -> tuple[bytes, ...]:
    """Return the evidence that an action had before a decision which left it as `row`."""
    added: Any = command.evidence if isinstance(command, Observe) else getattr(command, "fence", None)
    return row.evidence if added is None else row.evidence[:-1]
