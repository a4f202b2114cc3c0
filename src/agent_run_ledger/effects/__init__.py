"""The effect half: actions that must happen once, from their proposal to the evidence of what became of them."""

from agent_run_ledger.effects.dispatching import Dispatched, Dispatcher, Unrecorded
from agent_run_ledger.effects.engine import Settings
from agent_run_ledger.effects.intents import Intent
from agent_run_ledger.effects.signing import sign_approval, signing
from agent_run_ledger.effects.trusting import SignedTrust
from agent_run_ledger.effects.views import ActionView, LedgerView
from agent_run_ledger.kernel.dsse import Signature
from agent_run_ledger.kernel.effects import ActionState, Event, LedgerState, Role, TargetClass, WitnessPolicy
from agent_run_ledger.kernel.effects.approval import Statement, VerifiedApproval, statement_bytes, statement_sha256
from agent_run_ledger.kernel.effects.commands import Actor, DoubtBy
from agent_run_ledger.kernel.effects.display import display, display_sha256
from agent_run_ledger.kernel.effects.evidence import Covers, Drain, DrainKind, FenceAnswer, Found, Observation, Receipt
from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.report import Answered, Lost, NotSent
from agent_run_ledger.kernel.effects.request import Call, Request, request_bytes
from agent_run_ledger.ports.effects import (
    EffectNotice,
    EffectObserver,
    Gave,
    Heard,
    Seen,
    StoredAnswer,
    TimeSource,
    Witness,
)
from agent_run_ledger.ports.targets import Sending, Target

__all__ = [
    "ActionState",
    "ActionView",
    "Actor",
    "Answered",
    "Call",
    "Covers",
    "Dispatched",
    "Dispatcher",
    "DoubtBy",
    "Drain",
    "DrainKind",
    "EffectNotice",
    "EffectObserver",
    "Event",
    "FenceAnswer",
    "Found",
    "Gave",
    "Heard",
    "Intent",
    "LedgerState",
    "LedgerView",
    "Lost",
    "NotSent",
    "Observation",
    "Permit",
    "Receipt",
    "Request",
    "Role",
    "Sample",
    "Seen",
    "Sending",
    "Settings",
    "Signature",
    "SignedTrust",
    "Statement",
    "StoredAnswer",
    "Target",
    "TargetClass",
    "TimeSource",
    "Unrecorded",
    "VerifiedApproval",
    "Witness",
    "WitnessPolicy",
    "display",
    "display_sha256",
    "request_bytes",
    "sign_approval",
    "signing",
    "statement_bytes",
    "statement_sha256",
]
