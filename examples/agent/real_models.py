"""The same two questions put to models over the network, by the packages of those who sell them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models import Message, Reply

MAX_TOKENS = 2_000


class OpenAIModel:
    """Chat completions, of OpenAI or of what is compatible with them (OPENAI_BASE_URL)."""

    def __init__(self, package: Any, name: str | None) -> None:
        self._name = name or "gpt-4o-mini"
        self.environment: Mapping[str, object] = {"model": self._name}
        self._client = package.OpenAI(api_key=os.environ.get("OPENAI_API_KEY") or "none")

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next reply."""
        offered = [{"type": "function", "function": _schema(tool, "parameters")} for tool in tools]
        said = self._client.chat.completions.create(model=self._name, messages=self._sent(messages), tools=offered)
        message = said.choices[0].message
        calls = [
            {"id": call.id, "name": call.function.name, "arguments": json.loads(call.function.arguments or "{}")}
            for call in message.tool_calls or ()
        ]
        return Reply(
            text=message.content or "",
            calls=calls,
            usage=_usage(self._name, said.usage.prompt_tokens, said.usage.completion_tokens),
        )

    def stream(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the guide in pieces."""
        asked = self._sent([*messages, {"role": "user", "content": "Now write the guide."}])
        for chunk in self._client.chat.completions.create(model=self._name, messages=asked, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    def _sent(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [self._one(message) for message in messages]

    def _one(self, message: Message) -> dict[str, Any]:
        if message["role"] == "tool":
            return {"role": "tool", "tool_call_id": message["call"], "content": message["content"]}
        sent: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message.get("calls"):
            sent["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for call in message["calls"]
            ]
        return sent


class AnthropicModel:
    """Anthropic's messages."""

    def __init__(self, package: Any, name: str | None) -> None:
        self._name = name or "claude-3-5-haiku-latest"
        self.environment: Mapping[str, object] = {"model": self._name, "max_tokens": MAX_TOKENS}
        self._client = package.Anthropic()

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next reply."""
        said = self._client.messages.create(
            **self._sent(messages), tools=[_schema(tool, "input_schema") for tool in tools]
        )
        return Reply(
            text="".join(block.text for block in said.content if block.type == "text"),
            calls=[
                {"id": block.id, "name": block.name, "arguments": dict(block.input)}
                for block in said.content
                if block.type == "tool_use"
            ],
            usage=_usage(self._name, said.usage.input_tokens, said.usage.output_tokens),
        )

    def stream(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the guide in pieces."""
        asked = self._sent([*messages, {"role": "user", "content": "Now write the guide."}])
        with self._client.messages.stream(**asked) as stream:
            yield from stream.text_stream

    def _sent(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return what is sent: the system text apart, and the results of one turn's tools in one message."""
        turns: list[dict[str, Any]] = []
        for message in messages:
            if message["role"] == "system":
                continue
            role = "assistant" if message["role"] == "assistant" else "user"
            if not turns or turns[-1]["role"] != role:
                turns.append({"role": role, "content": []})
            turns[-1]["content"] += _blocks(message)
        return {
            "model": self._name,
            "max_tokens": MAX_TOKENS,
            "system": "\n".join(message["content"] for message in messages if message["role"] == "system"),
            "messages": [turn for turn in turns if turn["content"]],
        }


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["call"], "content": message["content"]}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message["content"]}] if message["content"] else []
    for call in message.get("calls") or ():
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
    return blocks


def _usage(model: str, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens}


def _schema(tool: Mapping[str, Any], parameters: str) -> dict[str, Any]:
    texts = {name: {"type": "string"} for name in tool["parameters"]}
    schema = {"type": "object", "properties": texts, "required": list(texts)}
    return {"name": tool["name"], "description": tool["description"], parameters: schema}
