"""LangChain and LangGraph: middleware for agents, and a model and a tool node for graphs of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_run_ledger.adapters.frameworks import framework

if TYPE_CHECKING:
    from agent_run_ledger.adapters.langchain.middleware import LedgerMiddleware, ledger_middleware
    from agent_run_ledger.adapters.langchain.model import LedgerChatModel, wrap_chat_model
    from agent_run_ledger.adapters.langchain.tool_node import ToolHook, ledger_tool_node
    from agent_run_ledger.adapters.langchain.waiting import suspend_if_waiting

__all__ = [
    "LedgerChatModel",
    "LedgerMiddleware",
    "ToolHook",
    "ledger_middleware",
    "ledger_tool_node",
    "suspend_if_waiting",
    "wrap_chat_model",
]

_MODULES = {
    "LedgerChatModel": "model",
    "LedgerMiddleware": "middleware",
    "ToolHook": "tool_node",
    "ledger_middleware": "middleware",
    "ledger_tool_node": "tool_node",
    "suspend_if_waiting": "waiting",
    "wrap_chat_model": "model",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for; Misuse("missing_extra") where the framework is not installed."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for needed in ("langchain", "langgraph", "langchain_core"):
        framework(needed, extra="langchain")
    return getattr(framework(f"{__name__}.{module}", extra="langchain"), name)
