"""The policy file: what a person says of the tools of an MCP server."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from agent_run_ledger.adapters.rules import ANY_TOOL, RulesByTool, ToolRules
from agent_run_ledger.errors import Misuse
from agent_run_ledger.runs.steps import MAX_SECONDS

_OWN: Final = ("timeout_s", "trust_hints")
_KEYS: Final = tuple(sorted([*(field.name for field in fields(ToolRules)), *_OWN]))
_MAX_STEP_NAME: Final = 200
_KEPT: Final = "run."
_MOVED: Final = "mcp:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """What is said of one tool. `rules`: see `ToolRules`. `timeout_s`: seconds until its answer is waited for no more.

    `trust_hints`: a tool that its server calls readOnlyHint or idempotentHint is safe.
    """

    rules: ToolRules = field(default_factory=ToolRules)
    timeout_s: float | None = None
    trust_hints: bool = False


class Policy:
    """What is said of tools by their names; "*" holds for every tool that has nothing of its own."""

    def __init__(self, tools: Mapping[str, ServerTool] | None = None) -> None:
        self._tools = dict(tools or {})
        self._default = self._tools.get(ANY_TOOL, ServerTool())

    def of(self, tool: str) -> ServerTool:
        """Return what is said of a tool."""
        return self._tools.get(tool, self._default)

    def rules(self, *, safe: bool = False) -> dict[str, ToolRules]:
        """Return the rules by the names of steps. `safe`: as if all of them were safe."""
        return {
            ANY_TOOL if name == ANY_TOOL else step_name(name): _as_safe(tool.rules) if safe else tool.rules
            for name, tool in {ANY_TOOL: self._default, **self._tools}.items()
        }


def step_name(tool: str) -> str:
    """Return the name of the step that stands for a tool: the tool's own, or "mcp:" before one that is kept.

    Misuse("bad_tool") for a name that no step can have.
    """
    name = f"{_MOVED}{tool}" if tool.startswith((_KEPT, _MOVED)) else tool
    if not name or not name.isprintable() or len(name) > _MAX_STEP_NAME:
        raise Misuse(
            f"a tool's name must be printable and have 1 to {_MAX_STEP_NAME} characters: {tool[:80]!r}", code="bad_tool"
        )
    return name


def tool_name(step: str) -> str:
    """Return the tool that a step of this name stands for."""
    return step.removeprefix(_MOVED)


def read_policy(path: str | Path) -> Policy:
    """Return the policy of a file, JSON where its name ends in .json, else TOML.

    Misuse("bad_policy_file") naming the file, and the key that is wrong.
    """
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
        read: object = json.loads(text) if where.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _bad(where, f"cannot be read: {reason}") from error
    table = cast("dict[str, Any]", read) if isinstance(read, dict) else None
    if table is None:
        raise _bad(where, "must hold a table")
    unknown = [key for key in table if key != "tools"]
    if unknown:
        raise _bad(where, f"has the unknown key {unknown[0]!r}", hint="the only one is `tools`: one table per tool")
    tools = table.get("tools", {})
    if not isinstance(tools, dict):
        raise _bad(where, "tools must be a table of tables")
    return Policy({name: _tool(where, name, said) for name, said in cast("dict[str, Any]", tools).items()})


def _tool(where: Path, name: str, said: object) -> ServerTool:
    place = f"tools.{name}"
    if not isinstance(said, dict):
        raise _bad(where, f"{place} must be a table")
    given = cast("dict[str, Any]", said)
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise _bad(where, f"{place} has the unknown key {unknown[0]!r}", hint=f"known: {', '.join(_KEYS)}")
    for key in ("safe", "poll", "trust_hints"):
        if not isinstance(given.get(key, False), bool):
            raise _bad(where, f"{place}.{key} must be true or false")
    seconds = given.get("timeout_s")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds <= MAX_SECONDS):
        raise _bad(where, f"{place}.timeout_s must be a number of seconds above 0")
    volatile = given.get("volatile", [])
    if not isinstance(volatile, list) or not all(
        isinstance(key, str) and key for key in cast("list[object]", volatile)
    ):
        raise _bad(where, f"{place}.volatile must be a list of keys")
    try:
        if name != ANY_TOOL:
            step_name(name)
        rules = RulesByTool({name: {key: value for key, value in given.items() if key not in _OWN}}).of(name)
    except Misuse as error:
        raise _bad(where, f"{place}: {error.message}") from error
    return ServerTool(rules=rules, timeout_s=seconds, trust_hints=given.get("trust_hints", False))


def _as_safe(rules: ToolRules) -> ToolRules:
    return ToolRules(safe=True, poll=rules.poll, volatile=rules.volatile, deny=rules.deny)


def _bad(where: Path, what: str, *, hint: str = "") -> Misuse:
    return Misuse(f"policy file {where}: {what}", code="bad_policy_file", hint=hint)
