"""Provable runs for agents: steps that are recorded once, restored for free, and kept in one log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_run_ledger.errors import (
    ApprovalPending,
    BudgetExceeded,
    ClassGone,
    Diverged,
    EffectInDoubt,
    EffectPending,
    Forked,
    InputsChanged,
    LedgerError,
    LoopDetected,
    Misuse,
    NotAdmitted,
    Pending,
    Refused,
    RunBusy,
    RunCancelled,
    RunQuarantined,
    StepTimeout,
    Superseded,
    Tampered,
    Unavailable,
    Uncertain,
    Unstorable,
    Vetoed,
)
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.kernel.states import RunState

if TYPE_CHECKING:
    from agent_run_ledger.codecs import register_codec
    from agent_run_ledger.effects.grants import Dispatch, Grant
    from agent_run_ledger.kernel.budget import Budget, Reserve
    from agent_run_ledger.kernel.effects.evidence import Found
    from agent_run_ledger.kernel.effects.request import Request
    from agent_run_ledger.kernel.effects.result import EffectResult
    from agent_run_ledger.ledger.authority import open_effects
    from agent_run_ledger.ledger.bound_run import BoundRun
    from agent_run_ledger.ledger.effect_ledger import EffectLedger
    from agent_run_ledger.ledger.run_effects import EffectSettings
    from agent_run_ledger.ledger.run_ledger import RunLedger
    from agent_run_ledger.ports.effect_steps import Lookup
    from agent_run_ledger.runs.effect_steps import Effect
    from agent_run_ledger.runs.explain import StepExplanation, Verdict
    from agent_run_ledger.runs.run import Run
    from agent_run_ledger.runs.steps import From, Step
    from agent_run_ledger.runs.tools import Tool
    from agent_run_ledger.runs.usage import report_usage
    from agent_run_ledger.targets import Opaque, http

__version__ = "0.1.0"

__all__ = [
    "ApprovalPending",
    "BoundRun",
    "Budget",
    "BudgetExceeded",
    "ClassGone",
    "Dispatch",
    "Diverged",
    "Effect",
    "EffectInDoubt",
    "EffectLedger",
    "EffectPending",
    "EffectResult",
    "EffectSettings",
    "Forked",
    "Found",
    "From",
    "Grant",
    "InputsChanged",
    "LedgerError",
    "Lookup",
    "LoopDetected",
    "LoopDetectorPolicy",
    "Misuse",
    "NotAdmitted",
    "Opaque",
    "Pending",
    "Refused",
    "Request",
    "Reserve",
    "Run",
    "RunBusy",
    "RunCancelled",
    "RunLedger",
    "RunQuarantined",
    "RunState",
    "Step",
    "StepExplanation",
    "StepTimeout",
    "Superseded",
    "Tampered",
    "Tool",
    "Unavailable",
    "Uncertain",
    "Unstorable",
    "Verdict",
    "Vetoed",
    "http",
    "open_effects",
    "register_codec",
    "report_usage",
]

_LAZY = {
    "BoundRun": "agent_run_ledger.ledger.bound_run",
    "Budget": "agent_run_ledger.kernel.budget",
    "Dispatch": "agent_run_ledger.effects.grants",
    "Effect": "agent_run_ledger.runs.effect_steps",
    "EffectLedger": "agent_run_ledger.ledger.effect_ledger",
    "EffectResult": "agent_run_ledger.kernel.effects.result",
    "EffectSettings": "agent_run_ledger.ledger.run_effects",
    "Found": "agent_run_ledger.kernel.effects.evidence",
    "From": "agent_run_ledger.runs.steps",
    "Grant": "agent_run_ledger.effects.grants",
    "Lookup": "agent_run_ledger.ports.effect_steps",
    "Opaque": "agent_run_ledger.targets",
    "Request": "agent_run_ledger.kernel.effects.request",
    "Reserve": "agent_run_ledger.kernel.budget",
    "Run": "agent_run_ledger.runs.run",
    "RunLedger": "agent_run_ledger.ledger.run_ledger",
    "Step": "agent_run_ledger.runs.steps",
    "Tool": "agent_run_ledger.runs.tools",
    "StepExplanation": "agent_run_ledger.runs.explain",
    "Verdict": "agent_run_ledger.runs.explain",
    "http": "agent_run_ledger.targets",
    "open_effects": "agent_run_ledger.ledger.authority",
    "register_codec": "agent_run_ledger.codecs",
    "report_usage": "agent_run_ledger.runs.usage",
}


def __getattr__(name: str) -> Any:
    """Import on first use what pulls in the store, so that `import agent_run_ledger` stays light."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
