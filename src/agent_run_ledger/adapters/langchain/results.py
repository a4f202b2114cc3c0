"""What tools gave a graph, as plain values, and the messages and commands that are made of them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage, message_to_dict, messages_from_dict
from langgraph.types import Command, Send

from agent_run_ledger.errors import Unstorable

MESSAGE: Final = "tool_message"
COMMAND: Final = "command"
SEVERAL: Final = "results"
_NESTED: Final = "message"
_SEND: Final = "send"

Result = ToolMessage | Command[Any] | list[Command[Any] | ToolMessage]


class ToolFailed(Exception):
    """A tool failed, and the tool node made this message for the model of it."""


def plain_result(result: object) -> Any:
    """Return what a tool gave, for the record: of a plain text message the text alone. ToolFailed for an error message.

    What has no stored form is refused when it is recorded, by its path. Unstorable for what is none of these.
    """
    if isinstance(result, ToolMessage):
        if result.status == "error" and isinstance(result.content, str) and result.artifact is None:
            raise ToolFailed(result.content)
        bare = result.status == "success" and result.artifact is None and not result.additional_kwargs
        if bare and isinstance(result.content, str):
            return result.content
        return {MESSAGE: _without_none({name: getattr(result, name) for name in _TOLD})}
    if isinstance(result, Command):
        return {COMMAND: _plain_command(result)}
    if isinstance(result, list):
        return {SEVERAL: [_one(one) for one in result]}
    raise Unstorable(
        f"a tool gave a {type(result).__name__}, which is neither a message nor a command",
        path="$",
        type_name=type(result).__name__,
    )


_TOLD: Final = ("content", "status", "artifact", "additional_kwargs")


def result_of(value: Any, call: ToolCall) -> Result:
    """Return what the graph gets for a recorded value. What nobody knows the outcome of is a message that says so."""
    if isinstance(value, str):
        return ToolMessage(content=value, name=call["name"], tool_call_id=call["id"] or "")
    if MESSAGE in value:
        return ToolMessage(**value[MESSAGE], name=call["name"], tool_call_id=call["id"] or "")
    if COMMAND in value:
        return _command(value[COMMAND])
    if SEVERAL in value:
        return [cast("Command[Any] | ToolMessage", result_of(one, call)) for one in value[SEVERAL]]
    return failure(json.dumps(value), call)


def says_error(plain: Any) -> bool:
    """Return whether a message in what `plain_result` gave says that a tool failed, in a list or command too."""
    if isinstance(plain, list):
        return any(map(says_error, plain))
    if not isinstance(plain, dict):
        return False
    if plain.get("status") == "error" and "content" in plain:
        return True
    return any(says_error(one) for name, one in plain.items() if name != "artifact")


def failure(text: str, call: ToolCall) -> ToolMessage:
    """Return the message that tells a model that a call failed."""
    return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"] or "", status="error")


def _one(result: object) -> Any:
    try:
        return plain_result(result)
    except ToolFailed as error:
        return {MESSAGE: {"content": str(error), "status": "error"}}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _plain_command(command: Command[Any]) -> dict[str, Any]:
    goto = command.goto
    said = {
        "graph": command.graph,
        "update": _plain(command.update),
        "resume": command.resume,
        "goto": [_plain(one) for one in goto] if isinstance(goto, list | tuple) else _plain(goto),
    }
    return {name: value for name, value in said.items() if value not in (None, [], ())}


def _command(said: Mapping[str, Any]) -> Command[Any]:
    return Command(**{name: _restored(value) for name, value in said.items()})


def _plain(value: object) -> Any:
    """Return a value with its messages as plain values; whatever else is in it is for the ledger to store or refuse."""
    if isinstance(value, BaseMessage):
        return {_NESTED: message_to_dict(value)}
    if isinstance(value, Send):
        return {_SEND: [value.node, _plain(value.arg)]}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_NESTED}:
            return messages_from_dict([value[_NESTED]])[0]
        if value.keys() == {_SEND}:
            return Send(value[_SEND][0], _restored(value[_SEND][1]))
        return {key: _restored(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_restored(one) for one in value]
    return value
