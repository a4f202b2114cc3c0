"""Targets: what sends the stored bytes of an action, once for each dispatch."""

from agent_run_ledger.targets.http import HttpTarget, http
from agent_run_ledger.targets.opaque import Opaque

__all__ = ["HttpTarget", "Opaque", "http"]
