"""A fake model of the SDK that counts in a file how often it was asked, and answers by a rule of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.testing import assistant_message, function_call
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

Answers = Callable[[Mapping[str, str], str], Sequence[Any]]
"""From the results of tools so far, by call id, and the system prompt, to the items that the model says."""


def text(words: str) -> Any:
    return assistant_message(words)


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


def results_in(items: Any) -> dict[str, str]:
    """What a request holds of results of tools, by call id."""
    given = [] if isinstance(items, str) else items
    return {item["call_id"]: str(item["output"]) for item in given if item.get("type") == "function_call_output"}


class FakeModel(Model):
    """Answers by a rule, streamed or not."""

    model = "fake-1"

    def __init__(self, answers: Answers, asked: Path, *, tokens: tuple[int, int] = (100, 10)) -> None:
        self.answers = answers
        self.asked = asked
        self.tokens = tokens
        self.requests: list[Any] = []

    def items(self, instructions: Any, items: Any) -> list[Any]:
        with self.asked.open("a") as log:
            log.write("asked\n")
        self.requests.append(items)
        return list(self.answers(results_in(items), str(instructions)))

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **said: Any) -> ModelResponse:
        given, taken = self.tokens
        output = self.items(system_instructions, input)
        usage = Usage(requests=1, input_tokens=given, output_tokens=taken, total_tokens=given + taken)
        return ModelResponse(output=output, usage=usage, response_id="resp-1")

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **said: Any
    ) -> AsyncIterator[Any]:
        for event in stream_of(self.items(system_instructions, input), self.tokens):
            yield event


def stream_of(output: list[Any], tokens: tuple[int, int], chunks: Callable[[str], Sequence[str]] | None = None) -> Any:
    """The events of a response: text comes word by word."""
    yield ResponseCreatedEvent(response=_response([], None), sequence_number=0, type="response.created")
    for index, item in enumerate(output):
        yield ResponseOutputItemAddedEvent(
            item=item, output_index=index, sequence_number=1, type="response.output_item.added"
        )
        for part in getattr(item, "content", None) or ():
            for chunk in (chunks or words)(part.text):
                yield ResponseTextDeltaEvent(
                    content_index=0,
                    delta=chunk,
                    item_id=item.id,
                    logprobs=[],
                    output_index=index,
                    sequence_number=2,
                    type="response.output_text.delta",
                )
        yield ResponseOutputItemDoneEvent(
            item=item, output_index=index, sequence_number=3, type="response.output_item.done"
        )
    given, taken = tokens
    usage = ResponseUsage(
        input_tokens=given,
        input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
        output_tokens=taken,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        total_tokens=given + taken,
    )
    yield ResponseCompletedEvent(response=_response(output, usage), sequence_number=4, type="response.completed")


def words(said: str) -> list[str]:
    parts = said.split()
    return [part + " " for part in parts[:-1]] + parts[-1:]


def _response(output: list[Any], usage: ResponseUsage | None) -> Response:
    return Response(
        id="resp-1",
        created_at=1.0,
        model="fake-1",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=usage,
    )
