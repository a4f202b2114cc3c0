"""Projects what a model is asked onto plain values that are the same at every start."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents import FunctionTool, Handoff, ModelSettings, Tool
from agents.agent_output import AgentOutputSchemaBase

SETTINGS: Final = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "tool_choice",
    "parallel_tool_calls",
    "truncation",
    "max_tokens",
    "reasoning",
    "verbosity",
    "top_logprobs",
    "response_include",
    "context_management",
    "extra_args",
    "extra_body",
)
"""The settings that shape an answer. Others say how it is sent, kept or paid for."""

_NEW_AT_EVERY_START: Final = frozenset({"prompt_cache_key"})
_SCALARS: Final = frozenset({str, int, float, bool})

IN_ORDER: Final = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
"""What `Model.get_response` is told by position."""


def request_of(
    model: str,
    *,
    system_instructions: str | None,
    input: str | Sequence[Any],
    model_settings: ModelSettings,
    tools: Sequence[Tool],
    output_schema: AgentOutputSchemaBase | None,
    handoffs: Sequence[Handoff[Any, Any]],
    **others: Any,
) -> dict[str, Any]:
    """Return the meaning of a request: what stands in none of its parts is left out, at any depth.

    Tools are known by name and schema, in the order of their names: a description may be reworded. `others`: of
    these, where the conversation is kept at the provider's side and which prompt of theirs is used count, no more.
    """
    said = {
        "model": model,
        "instructions": system_instructions,
        "input": plain(input),
        "settings": _settings(model_settings),
        "tools": sorted((_tool(tool) for tool in tools), key=lambda tool: str(tool["name"])),
        "handoffs": sorted((_handoff(one) for one in handoffs), key=lambda one: str(one["name"])),
        "output": None if output_schema is None or output_schema.is_plain_text() else output_schema.name(),
        **{name: plain(others.get(name)) for name in ("previous_response_id", "conversation_id", "prompt")},
    }
    return {name: value for name, value in said.items() if value not in (None, [], {})}


def stands_in(request: Mapping[str, Any], kept: Any) -> bool:
    """Return whether a recorded answer is part of a question: a RunState gave it back, nobody asked for it again.

    Calls of tools are known by their ids, texts by their words, other items by their own ids; reasoning says nothing.
    """
    items = request.get("input")
    said = [sign for item in kept["output"] if (sign := _sign(item)) is not None]
    known = [_sign(item) for item in items] if isinstance(items, list) else []
    return bool(said) and all(sign in known for sign in said)


def told_of(request: Mapping[str, Any], call_id: str) -> bool:
    """Return whether a question holds what came of a call: an output is the last that it says of its id."""
    items = request.get("input")
    given = items if isinstance(items, list) else []
    said = [str(one.get("type")) for one in given if isinstance(one, Mapping) and one.get("call_id") == call_id]
    return bool(said) and said[-1].endswith("_output")


def _sign(item: Any) -> tuple[str, Any] | None:
    if not isinstance(item, Mapping) or item.get("type") == "reasoning":
        return None
    if item.get("call_id"):
        return str(item.get("type")), item["call_id"]
    content = item.get("content")
    if isinstance(content, list):
        return str(item.get("role")), [part.get("text") or part.get("refusal") for part in content]
    return str(item.get("type")), item.get("id")


def plain(value: Any) -> Any:
    """Return a value of the SDK as dicts, lists and scalars, without None and without what is private."""
    if type(value) is dict or isinstance(value, Mapping):
        return {
            name: one if type(one) in _SCALARS else plain(one)
            for key, one in value.items()
            if one is not None and not (name := str(key)).startswith("_")
        }
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return plain(dump(mode="json", exclude_unset=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return f"<{type(value).__name__}>"


def _settings(settings: ModelSettings) -> dict[str, Any]:
    said = {name: plain(value) for name in SETTINGS if (value := getattr(settings, name, None)) is not None}
    for name in ("extra_args", "extra_body"):
        if isinstance(said.get(name), dict):
            said[name] = {key: value for key, value in said[name].items() if key not in _NEW_AT_EVERY_START}
    return {name: value for name, value in said.items() if value not in (None, {})}


def _tool(tool: Tool) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        return {"name": tool.qualified_name, "schema": plain(tool.params_json_schema)}
    return {"name": tool.name, "type": type(tool).__name__}


def _handoff(handoff: Handoff[Any, Any]) -> dict[str, Any]:
    return {"name": handoff.tool_name, "schema": plain(handoff.input_json_schema)}
