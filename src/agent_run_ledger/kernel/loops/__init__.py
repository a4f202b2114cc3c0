"""The loop rule: what is remembered of a call, how two calls compare, and when a run is going in circles."""

from agent_run_ledger.kernel.loops.detector import Detector
from agent_run_ledger.kernel.loops.glimpse import Call, Glimpse, glimpse_of
from agent_run_ledger.kernel.loops.verdict import Level, Verdict

__all__ = ["Call", "Detector", "Glimpse", "Level", "Verdict", "glimpse_of"]
