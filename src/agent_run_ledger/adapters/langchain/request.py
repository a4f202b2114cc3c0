"""What a question to a chat model means: the part of it that its record goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage

from agent_run_ledger.adapters.finite import finite
from agent_run_ledger.adapters.langchain.answers import result_of
from agent_run_ledger.adapters.langchain.plain import meaning

_SAYS_NOTHING: Final = ("stream", "run_id", "callbacks", "config", "ls_structured_output_format")
_OF_THE_MODEL: Final = ("ls_provider", "ls_model_name", "ls_temperature", "ls_max_tokens")


def request_of(
    model: BaseChatModel, messages: Sequence[BaseMessage], *, stop: list[str] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the projection of a question: the model by name, the messages, the tools and the settings.

    Left out is what differs at every start and says nothing: ids of messages, metadata, usage, callbacks.
    """
    told: Mapping[str, Any] = {**model._get_ls_params(stop=stop, **settings)}
    projected = {
        "model": meaning({"class": type(model).__name__, **{key: told.get(key) for key in _OF_THE_MODEL}}),
        "messages": [_message(message) for message in messages],
        "settings": meaning({key: value for key, value in settings.items() if key not in _SAYS_NOTHING}),
    }
    if stop:
        projected["stop"] = meaning(stop)
    return projected


def stands_in(request: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a recorded answer is one of the messages of a question: a checkpoint gave it, not the record."""
    generations = result_of(parts).generations
    answer = _message(generations[0].message) if generations else {"role": ""}
    return any(
        all(one.get(key) == answer.get(key) for key in ("role", "content", "calls")) for one in request["messages"]
    )


def told_of(request: Mapping[str, Any], call_id: str) -> bool:
    """Return whether a question holds what came of a call: a message for it, which no later call has the id of."""
    for one in reversed(request["messages"]):
        if one.get("call") == call_id:
            return True
        if any(call.get("id") == call_id for call in one.get("calls", ())):
            return False
    return False


def _message(message: BaseMessage) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.type}
    content = message.content
    if content is not None:  # pyright: ignore[reportUnnecessaryComparison]
        said["content"] = content if type(content) is str else meaning(content)
    if message.name is not None:
        said["name"] = message.name
    if isinstance(message, AIMessage):
        said["role"] = "ai"
        said["calls"] = [
            meaning({"id": one["id"], "name": one["name"], "arguments": finite(meaning(one["args"]))})
            for one in message.tool_calls
        ]
    elif isinstance(message, ToolMessage):
        said["call"] = message.tool_call_id
        if message.status == "error":
            said["failed"] = True
    elif isinstance(message, ChatMessage):
        said["role"] = message.role
    return said
