"""Records and restores what the OpenAI Agents SDK does: its models, its function tools, its nested agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_run_ledger.adapters.frameworks import framework

if TYPE_CHECKING:
    from agent_run_ledger.adapters.openai_agents.agents import check_interruptions, wrap_agent
    from agent_run_ledger.adapters.openai_agents.model import LedgerModel, LedgerModelProvider, wrap_model
    from agent_run_ledger.adapters.openai_agents.tools import make_recorder, wrap_tool

__all__ = [
    "LedgerModel",
    "LedgerModelProvider",
    "check_interruptions",
    "make_recorder",
    "wrap_agent",
    "wrap_model",
    "wrap_tool",
]

_PLACES = {
    "LedgerModel": "model",
    "LedgerModelProvider": "model",
    "check_interruptions": "agents",
    "make_recorder": "tools",
    "wrap_agent": "agents",
    "wrap_model": "model",
    "wrap_tool": "tools",
}


def __getattr__(name: str) -> Any:
    """Import on first use, and say what to install where the SDK is missing: Misuse("missing_extra")."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    framework("agents", extra="openai-agents")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{place}"), name)
