"""The effect ledger's rules: what may become of an action, decided from values alone."""

# Who decides imports `reducer`: most programs hold runs without effects, and start without it.
from agent_run_ledger.kernel.effects.action import Action, Approval, Now, Standing, Terms
from agent_run_ledger.kernel.effects.decision import Accepted, Decision, Recorded, Rejected
from agent_run_ledger.kernel.effects.states import ActionState, Event, LedgerState, Role, TargetClass, WitnessPolicy

__all__ = [
    "Accepted",
    "Action",
    "ActionState",
    "Approval",
    "Decision",
    "Event",
    "LedgerState",
    "Now",
    "Recorded",
    "Rejected",
    "Role",
    "Standing",
    "TargetClass",
    "Terms",
    "WitnessPolicy",
]
