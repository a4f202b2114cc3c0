"""The policy file: what a person says of the tools of an MCP server."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from agent_run_ledger.adapters.effects import AnyEffect, EffectsByTool, ToolEffect
from agent_run_ledger.adapters.rules import ANY_TOOL, RulesByTool, ToolRules
from agent_run_ledger.errors import Misuse
from agent_run_ledger.ledger.run_effects import EffectSettings
from agent_run_ledger.runs.steps import MAX_SECONDS

_OWN: Final = ("effect", "timeout_s", "trust_hints")
_EFFECT: Final = ("approval", "key", "wait_s")
_PARTIES: Final = ("executor", "reconciler", "requester", "server", "window_s")
_TOP: Final = ("effects", "tools")
_KEYS: Final = tuple(sorted([*(field.name for field in fields(ToolRules)), *_OWN]))
_MAX_STEP_NAME: Final = 200
_KEPT: Final = "run."
_MOVED: Final = "mcp:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """What is said of one tool. `rules`: see `ToolRules`. `timeout_s`: seconds until its answer is waited for no more.

    `trust_hints`: a tool that its server calls readOnlyHint or idempotentHint is safe. `effect`: its calls are actions
    of the ledger, which are made once and only with people's approval; then it is not safe, whoever says so.
    """

    rules: ToolRules = field(default_factory=ToolRules)
    timeout_s: float | None = None
    trust_hints: bool = False
    effect: AnyEffect | None = None


class Policy:
    """What is said of tools by their names; "*" holds for every tool that has nothing of its own.

    `parties`: as whom effects are asked for and carried out. Misuse("bad_effect") for "*" as an effect: what makes two
    calls one effect is to be said of each tool.
    """

    def __init__(self, tools: Mapping[str, ServerTool] | None = None, *, parties: EffectSettings | None = None) -> None:
        self._tools = dict(tools or {})
        self._default = self._tools.get(ANY_TOOL, ServerTool())
        if self._default.effect is not None:
            raise Misuse("an effect is one tool, not every one", code="bad_effect")
        self.parties = parties or EffectSettings()
        self.effects: dict[str, AnyEffect] = {n: one.effect for n, one in self._tools.items() if one.effect is not None}

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
    _check_keys(where, "", table, _TOP, hint="known: `tools`, one table per tool, and `effects`")
    tools, said = _table(where, "tools", table.get("tools", {})), _table(where, "effects", table.get("effects", {}))
    parties, server = _parties(where, said)
    return Policy(
        {name: _tool(where, name, _table(where, f"tools.{name}", one), server) for name, one in tools.items()},
        parties=parties,
    )


def _tool(where: Path, name: str, given: dict[str, Any], server: str) -> ServerTool:
    place = f"tools.{name}"
    _check_keys(where, place, given, _KEYS)
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
    return ServerTool(
        rules=rules,
        timeout_s=seconds,
        trust_hints=given.get("trust_hints", False),
        effect=_effect(where, name, given, server),
    )


def _effect(where: Path, name: str, given: Mapping[str, Any], server: str) -> ToolEffect | None:
    """Return the effect that a tool is, None for one that is none."""
    if "effect" not in given:
        return None
    place = f"tools.{name}.effect"
    if given.get("safe"):
        raise _bad(where, f"tools.{name} is an effect, and what is safe needs no approval: one of them is wrong")
    if name == ANY_TOOL:
        raise _bad(where, f"{place}: an effect is one tool, not every one")
    said = _table(where, place, given["effect"])
    _check_keys(where, place, said, _EFFECT)
    for key in ("key", "approval"):
        if not isinstance(said.get(key), str):
            raise _bad(where, f"{place}.{key} must be a text")
    try:
        made = ToolEffect(**said, audience=f"mcp:{server}/{name}" if server else f"mcp:{name}")
        EffectsByTool({name: made})
    except Misuse as error:
        raise _bad(where, f"{place}: {error.message}") from error
    return made


def _parties(where: Path, said: dict[str, Any]) -> tuple[EffectSettings, str]:
    """Return as whom effects are asked for, and what the server is called."""
    _check_keys(where, "effects", said, _PARTIES)
    for key in _PARTIES:
        if key in said and key != "window_s" and not isinstance(said[key], str):
            raise _bad(where, f"effects.{key} must be a text")
    server = str(said.pop("server", ""))
    try:
        return EffectSettings(**said), server
    except Misuse as error:
        raise _bad(where, f"effects: {error.message}") from error


def _table(where: Path, place: str, said: object) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise _bad(where, "tools must be a table of tables" if place == "tools" else f"{place} must be a table")
    return dict(cast("dict[str, Any]", said))


def _check_keys(where: Path, place: str, said: Mapping[str, Any], known: Iterable[str], *, hint: str = "") -> None:
    unknown = [key for key in said if key not in known]
    if unknown:
        what = f"the unknown key {unknown[0]!r}"
        raise _bad(where, f"{place} has {what}" if place else f"has {what}", hint=hint or f"known: {', '.join(known)}")


def _as_safe(rules: ToolRules) -> ToolRules:
    return ToolRules(safe=True, poll=rules.poll, volatile=rules.volatile, deny=rules.deny)


def _bad(where: Path, what: str, *, hint: str = "") -> Misuse:
    return Misuse(f"policy file {where}: {what}", code="bad_policy_file", hint=hint)
