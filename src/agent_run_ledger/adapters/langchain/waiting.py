"""Graphs that were interrupted: a run that waits is suspended, not completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_run_ledger.errors import Pending


def suspend_if_waiting(result: Any) -> Any:
    """Return what a graph gave; where it was interrupted raise Pending, which suspends the run around it.

    LangGraph returns from an interrupted graph as from one that is done. Left without an error, the run would be
    completed, and nothing new runs in a completed run.
    """
    interrupts = result.get("__interrupt__") if isinstance(result, Mapping) else getattr(result, "interrupts", None)
    if not interrupts:
        return result
    said = [one.value for one in interrupts]
    words = [str(one.get("message", one)) if isinstance(one, Mapping) else str(one) for one in said]
    raise Pending(f"the graph waits: {'; '.join(words)}", hint="decide, then start the run again and resume the graph")
