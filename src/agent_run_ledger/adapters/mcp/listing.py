"""What the server says of its tools: whether that changed within the run, and the hints that a policy may trust."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, cast

from agent_run_ledger.adapters.mcp.messages import members

SAFE_HINTS: Final = ("readOnlyHint", "idempotentHint")
TOOLS: Final = "mcp.tools"
CHANGED: Final = "mcp.tools.changed"
"""The names of the recorded values: what was listed first in the run, and each listing that differs from it."""

Record = Callable[[str, Callable[[], Any]], Any]
"""`Run.value`: returns what is on record under this name, else what the function returns, recorded."""


class Listing:
    """Guarantees: the first whole listing of a run is recorded, by digests, and one that differs from it is reported
    and recorded once. Hints of a tool whose definition has changed within the run are not trusted.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._pages: dict[str, str] = {}
        self._hints: dict[str, bool] = {}
        self._first: dict[str, str] | None = None
        self._now: dict[str, str] = {}
        self._reported: set[str] = set()

    def page(self, cursor: object, result: Mapping[str, Any]) -> bool:
        """Take one page of a listing; return whether it is whole now. `cursor`: what the page was asked for with."""
        if cursor is None:
            self._pages.clear()
        tools = result.get("tools")
        for tool in cast("list[object]", tools) if isinstance(tools, list) else []:
            definition = members(tool)
            name = definition.get("name")
            if isinstance(name, str):
                self._pages[name] = _digest(definition)
                annotations = members(definition.get("annotations"))
                self._hints[name] = any(annotations.get(hint) is True for hint in SAFE_HINTS)
        if result.get("nextCursor") is not None:
            return False
        self._now = dict(self._pages)
        return True

    def record(self, record: Record) -> None:
        """Record what was listed where the run has no listing yet; report and record how it differs from that."""
        now = self._now
        if self._first is None:
            first = record(TOOLS, lambda: now)
            self._first = members(first)
        changed = _changes(self._first, now)
        for tool, what in changed.items():
            if f"{what} {tool}" not in self._reported:
                self._reported.add(f"{what} {tool}")
                self._report(f"tool {tool!r} was {what} by the server since this run began")
        if changed:
            seen = _digest(now)
            if seen not in self._reported:
                self._reported.add(seen)
                record(f"{CHANGED}.{seen[:16]}", lambda: {"tools": changed, "digests": now})

    def knows(self, tool: str) -> bool:
        """Return whether the tool was listed in this session."""
        return tool in self._hints

    def says_safe(self, tool: str) -> bool:
        """Return whether the server calls the tool safe to repeat, and its definition is that of the run's begin."""
        first = self._first
        return first is not None and self._hints.get(tool, False) and first.get(tool) == self._now.get(tool)


def _changes(first: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    found = {tool: "taken away" for tool in first if tool not in now}
    found |= {tool: "added" for tool in now if tool not in first}
    return found | {tool: "redefined" for tool, digest in now.items() if first.get(tool, digest) != digest}


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()
