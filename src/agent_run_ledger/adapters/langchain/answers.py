"""Answers of chat models as plain values, and the messages that are made of them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from agent_run_ledger.adapters.langchain.plain import kept
from agent_run_ledger.errors import Misuse

CHUNK: Final = "AIMessageChunk"
_FIELDS: Final = ("id", "name", "tool_calls", "invalid_tool_calls", "usage_metadata", "chunk_position")
_METADATA: Final = ("response_metadata", "additional_kwargs")


def whole_answers(result: ChatResult, message_id: str) -> Iterator[dict[str, Any]]:
    """Yield each generation of a result, with this id where it has none of its own."""
    for number, generation in enumerate(result.generations):
        said = _plain(generation, message_id if number == 0 else f"{message_id}-{number}")
        if number == 0 and result.llm_output:
            said["llm_output"] = kept(result.llm_output)
        yield said


class Chunks:
    """The chunks of one stream as plain values, all with one id where they have none of their own."""

    def __init__(self, message_id: str) -> None:
        self._id = message_id
        self._over = False

    def plain(self, chunk: ChatGenerationChunk) -> dict[str, Any]:
        """Return one chunk."""
        said = _plain(chunk, self._id)
        self._id = said["id"]
        self._over = "chunk_position" in said
        return said

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yield the empty chunk that ends a stream, as LangChain does, unless the last one said so itself."""
        if not self._over:
            yield {"type": CHUNK, "content": "", "id": self._id, "chunk_position": "last"}


def result_of(parts: Sequence[Mapping[str, Any]]) -> ChatResult:
    """Return the result that these parts make: whole generations, or the chunks of one."""
    if parts and parts[0]["type"] == CHUNK:
        return generate_from_stream(chunk_of(part) for part in parts)
    generations = [
        ChatGeneration(message=AIMessage(**_arguments(part)), generation_info=part.get("generation_info"))
        for part in parts
    ]
    return ChatResult(
        generations=generations, llm_output=next((p["llm_output"] for p in parts if "llm_output" in p), None)
    )


def chunk_of(part: Mapping[str, Any]) -> ChatGenerationChunk:
    """Return a part as a chunk of a stream; a whole generation is one chunk."""
    arguments = _arguments(part)
    if part["type"] != CHUNK:
        arguments["chunk_position"] = "last"
    if "tool_call_chunks" in arguments:  # the calls are made of them
        arguments.pop("tool_calls", None)
        arguments.pop("invalid_tool_calls", None)
    return ChatGenerationChunk(message=AIMessageChunk(**arguments), generation_info=part.get("generation_info"))


def _plain(generation: ChatGeneration, message_id: str) -> dict[str, Any]:
    message = generation.message
    if not isinstance(message, AIMessage):
        raise Misuse(f"a chat model answered with a {type(message).__name__}, not with an AIMessage", code="bad_answer")
    said: dict[str, Any] = {"type": message.type, "content": message.content}
    for name in (*_FIELDS, "tool_call_chunks"):
        value = getattr(message, name, None)
        if value:
            said[name] = [dict(one) for one in value] if isinstance(value, list) else value
    for name in _METADATA:
        value = kept(getattr(message, name))
        if value:
            said[name] = value
    if "usage_metadata" in said:
        said["usage_metadata"] = kept(said["usage_metadata"])
    if "id" not in said:
        said["id"] = message_id
    if generation.generation_info:
        said["generation_info"] = kept(generation.generation_info)
    return said


def _arguments(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in ("type", "generation_info", "llm_output")}
