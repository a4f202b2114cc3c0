"""A proxy between an MCP client and a server on stdio, which records calls of tools and restores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_run_ledger.adapters.mcp.policy import Policy, ServerTool, read_policy
    from agent_run_ledger.adapters.mcp.serving import Settings, serve

__all__ = ["Policy", "ServerTool", "Settings", "read_policy", "serve"]

_LAZY = {
    "Policy": "policy",
    "ServerTool": "policy",
    "read_policy": "policy",
    "Settings": "serving",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    """Import on first use: what only reads a policy needs no event loop."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
