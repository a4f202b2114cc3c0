"""The effect half: actions that must happen once, from their proposal to the evidence of what became of them."""

from agent_run_ledger.effects.engine import Settings
from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.effects.views import ActionView, LedgerView
from agent_run_ledger.kernel.effects import ActionState, Event, LedgerState, Role, TargetClass, WitnessPolicy
from agent_run_ledger.kernel.effects.approval import Statement, VerifiedApproval, statement_bytes, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.ports.effects import Heard, Seen, TimeSource, Witness

__all__ = [
    "ActionState",
    "ActionView",
    "Actor",
    "Covers",
    "DoubtBy",
    "Drain",
    "DrainKind",
    "Event",
    "FenceAnswer",
    "Found",
    "Heard",
    "Intent",
    "LedgerState",
    "LedgerView",
    "Observation",
    "Permit",
    "Receipt",
    "Role",
    "Sample",
    "Seen",
    "Settings",
    "Statement",
    "TargetClass",
    "TimeSource",
    "VerifiedApproval",
    "Witness",
    "WitnessPolicy",
    "statement_bytes",
    "statement_sha256",
]
