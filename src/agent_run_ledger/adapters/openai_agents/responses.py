"""Keeps what a model answered as plain values, and makes the SDK's responses and stream events of them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from agents import ModelResponse
from agents.items import TResponseOutputItem, TResponseStreamEvent
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response_usage import ResponseUsage
from pydantic import Field, TypeAdapter

from agent_run_ledger import report_usage
from agent_run_ledger.adapters.openai_agents.requests import plain
from agent_run_ledger.errors import Misuse

Kept = dict[str, Any]
"""What is on record of an answer: `output` and `usage`, and where there are any `id`, `request_id`, `raw_usage`,
`stream` (what a response has beside these) and `deltas` (output and content index, and the text, of each one)."""

_OUTPUT: Final[TypeAdapter[TResponseOutputItem]] = TypeAdapter(
    Annotated[TResponseOutputItem, Field(discriminator="type")]  # told apart as OpenAI's own client does
)
_USAGE: Final = TypeAdapter(Usage)
_ALONE: Final = frozenset({"output", "usage", "id", "status", "tools", "tool_choice", "instructions"})
"""Fields of a response that are kept elsewhere, or that only say again what it was asked."""


def kept_of(response: ModelResponse) -> Kept:
    """Return what is recorded of an answer."""
    said = {
        "output": [_kept_item(item) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
        "id": response.response_id,
        "request_id": response.request_id,
        "raw_usage": response.raw_usage,
    }
    return {name: value for name, value in said.items() if value is not None}


def kept_of_stream(response: Response, output: Sequence[Any], deltas: Sequence[Sequence[Any]]) -> Kept:
    """Return what is recorded of a stream that ended with this response; `output`: the items that it brought."""
    usage = Usage(requests=1) if response.usage is None else _usage(response.usage)
    kept = kept_of(
        ModelResponse(
            output=list(response.output or output),
            usage=usage,
            response_id=response.id,
            request_id=getattr(response, "_request_id", None),
        )
    )
    kept["stream"] = plain(response.model_dump(mode="json", exclude_unset=True, exclude=set(_ALONE)))
    kept["deltas"] = [list(delta) for delta in deltas]
    return kept


def response_of(kept: Kept) -> ModelResponse:
    """Return an answer as it was recorded. Misuse("bad_record") for items that this version of the SDK does not know.

    Usage is what the recorded call used: the SDK adds it up over the conversation, the ledger says what was spent.
    """
    return ModelResponse(
        output=_items(kept),
        usage=_USAGE.validate_python(kept["usage"]),
        response_id=kept.get("id"),
        request_id=kept.get("request_id"),
        raw_usage=kept.get("raw_usage"),
    )


def completed_of(kept: Kept, model: str, number: int = 0) -> ResponseCompletedEvent:
    """Return the event that ends a stream, with the whole response; `number`: its place in the stream."""
    return ResponseCompletedEvent(
        response=_response(kept, model, _items(kept), "completed"), sequence_number=number, type="response.completed"
    )


def events_of(kept: Kept, model: str) -> Iterator[TResponseStreamEvent]:
    """Yield the events of a restored stream: it is created, its items come with their text in deltas, it is completed.

    Text comes in the chunks in which it came first; a whole text at once where the answer was not streamed.
    """
    items = _items(kept)
    yield ResponseCreatedEvent(
        response=_response(kept, model, [], "in_progress"), sequence_number=0, type="response.created"
    )
    number = 1
    for index, item in enumerate(items):
        yield ResponseOutputItemAddedEvent(
            item=item, output_index=index, sequence_number=number, type="response.output_item.added"
        )
        number += 1
        for content, text in _deltas(kept, index, item):
            yield ResponseTextDeltaEvent(
                content_index=content,
                delta=text,
                item_id=str(getattr(item, "id", "")),
                logprobs=[],
                output_index=index,
                sequence_number=number,
                type="response.output_text.delta",
            )
            number += 1
        yield ResponseOutputItemDoneEvent(
            item=item, output_index=index, sequence_number=number, type="response.output_item.done"
        )
        number += 1
    yield completed_of(kept, model, number)


def report(kept: Kept, model: str) -> None:
    """Say what an answer used, inside the body of its step: nothing is known where the model counted nothing."""
    usage = kept["usage"]
    if not usage["requests"] and not usage["total_tokens"]:
        report_usage(model=model)
        return
    cached = usage.get("input_tokens_details") or {}
    report_usage(
        model=model,
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=cached.get("cached_tokens") or 0,
        cache_write_tokens=cached.get("cache_write_tokens") or 0,
        calls=max(1, usage["requests"]),
    )


def _kept_item(item: Any) -> Any:
    """Return an item as it was sent: a None that was said is kept, for the item may not be read without it."""
    return dict(item) if isinstance(item, Mapping) else item.model_dump(mode="json", exclude_unset=True)


def _items(kept: Kept) -> list[TResponseOutputItem]:
    try:
        return [_OUTPUT.validate_python(item) for item in kept["output"]]
    except ValueError as error:
        raise Misuse(
            f"the record of a model's answer cannot be read by this version of the SDK: {error}",
            code="bad_record",
            hint="go on with the version that the run was begun with",
        ) from error


def _deltas(kept: Kept, index: int, item: TResponseOutputItem) -> list[tuple[int, str]]:
    recorded = [(content, text) for place, content, text in kept.get("deltas", ()) if place == index]
    if recorded or kept.get("deltas") is not None:
        return recorded
    parts: Sequence[Any] = getattr(item, "content", None) or ()
    return [(place, part.text) for place, part in enumerate(parts) if getattr(part, "type", "") == "output_text"]


def _response(kept: Kept, model: str, output: list[TResponseOutputItem], status: Any) -> Response:
    said: dict[str, Any] = {
        "created_at": 0.0,
        "model": model,
        "object": "response",
        "parallel_tool_calls": True,
        **kept.get("stream", {}),
        "id": kept.get("id") or "",
        "status": status,
        "tools": [],
        "tool_choice": "auto",
        "output": [],
    }
    response = Response.model_validate(said)
    response.output = output
    if status == "completed":
        response.usage = _response_usage(_USAGE.validate_python(kept["usage"]))
    return response


def _usage(used: ResponseUsage) -> Usage:
    return Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens_details=used.output_tokens_details,
    )


def _response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens=usage.output_tokens,
        output_tokens_details=usage.output_tokens_details,
        total_tokens=usage.total_tokens,
    )
