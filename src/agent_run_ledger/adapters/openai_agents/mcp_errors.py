"""Notices that a tool of an MCP server answered with an error, which the SDK gives on as a text like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from agents.mcp import MCPServer

_SEEN: Final[ContextVar[list[object] | None]] = ContextVar("agent_run_ledger_mcp_errors", default=None)
_WATCHED: Final = "__agent_run_ledger_watched__"


def watch(server: MCPServer) -> None:
    """Let `noted_errors` see what this server answers. It is changed in place; a second call changes nothing."""
    if getattr(server, _WATCHED, False):
        return
    theirs = server.call_tool

    async def call_tool(*args: Any, **settings: Any) -> Any:
        result = await theirs(*args, **settings)
        seen = _SEEN.get()
        if seen is not None and _says_error(result):
            seen.append(result)
        return result

    setattr(server, "call_tool", call_tool)  # noqa: B010 - a method, to mypy
    setattr(server, _WATCHED, True)


@contextmanager
def noted_errors() -> Iterator[list[object]]:
    """Give the list of the error results that come within: the SDK's own tasks have the context of who made them."""
    seen: list[object] = []
    token = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(token)


def _says_error(result: object) -> bool:
    """Return whether a result says that the call failed, by either name that versions of its type have for that."""
    return bool(getattr(result, "is_error", False)) or bool(getattr(result, "isError", False))
