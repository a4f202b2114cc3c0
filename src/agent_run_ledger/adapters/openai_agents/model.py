"""Models of the SDK whose answers are recorded, and restored without asking again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from agents import Model, ModelBehaviorError, ModelProvider
from agents.items import ModelResponse, TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai.types.responses import ResponseCompletedEvent, ResponseOutputItemDoneEvent, ResponseTextDeltaEvent

from agent_run_ledger.adapters.openai_agents.requests import IN_ORDER, request_of, stands_in, told_of
from agent_run_ledger.adapters.openai_agents.responses import (
    Kept,
    completed_of,
    events_of,
    kept_of,
    kept_of_stream,
    report,
    response_of,
)
from agent_run_ledger.adapters.recorder import Recorder

STEP: Final = "model"
"""The name of the step that every question to a model is: which model it was is in the request."""


class LedgerModel(Model):
    """A model that is asked only what is not on record.

    Guarantees: an answer is handed on after it is recorded, and the same one is given at every restart, streamed or
    not, however it came first. Every call goes through the run of the context: in a run that was stopped (a loop, a
    budget, a divergence) it raises the error that says why, so an agent whose tools' exceptions were swallowed gets
    no further. Misuse("outside_run") where there is no run.

    A live stream hands its events on as they come, but for the last one, which comes when the answer is recorded. One
    that is left before its end is not recorded.

    `model`: the model that is asked, or what makes it: that is called when the first question is not on record.
    `name`: what it is known by in records and in `arl usage`; by default what the model says.
    """

    def __init__(self, model: Model | Callable[[], Model], *, recorder: Recorder, name: str = "") -> None:
        self._made = model if isinstance(model, Model) else None
        self._make: Callable[[], Model] | None = None if isinstance(model, Model) else model
        self._recorder = recorder
        said = name or getattr(model, "model", None) or type(model).__name__
        self.model = str(said)

    @property
    def asked(self) -> Model:
        """The model that is asked."""
        if self._made is None:
            if self._make is None:
                raise AttributeError("asked")
            self._made = self._make()
        return self._made

    async def get_response(self, *args: Any, **said: Any) -> ModelResponse:
        """See Model.get_response."""

        async def ask() -> Kept:
            kept = kept_of(await self.asked.get_response(*args, **said))
            report(kept, self.model)
            return kept

        return response_of(
            await self._recorder.amodel(STEP, self._request(args, said), ask, went_on_from=stands_in, told_of=told_of)
        )

    async def stream_response(self, *args: Any, **said: Any) -> AsyncIterator[TResponseStreamEvent]:
        """See Model.stream_response."""
        async for event in self._streamed(self._request(args, said), lambda: self.asked.stream_response(*args, **said)):
            yield event

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """See Model.get_retry_advice; there is none for an error that came from the record."""
        return None if self._made is None else self._made.get_retry_advice(request)

    async def close(self) -> None:
        """See Model.close."""
        if self._made is not None:
            await self._made.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._made is not None:
            await self._made._cleanup_on_run_end(owner)

    def _request(self, args: Sequence[Any], said: Mapping[str, Any]) -> dict[str, Any]:
        return request_of(self.model, **dict(zip(IN_ORDER, args, strict=False)), **said)

    async def _streamed(
        self, request: dict[str, Any], source: Callable[[], AsyncIterator[TResponseStreamEvent]]
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the events of a call that is made in a task of its own, so that its record is that of any call."""
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()
        passed = 0

        async def ask() -> Kept:
            nonlocal passed
            passed = 1
            kept = await _collected(source(), events.put_nowait)
            report(kept, self.model)
            return kept

        call = asyncio.ensure_future(self._recorder.amodel(STEP, request, ask, went_on_from=stands_in, told_of=told_of))
        call.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                passed += 1
                yield event
            kept: Kept = await call
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        if passed:
            yield completed_of(kept, self.model, passed - 1)
            return
        for event in events_of(kept, self.model):
            yield event


async def _collected(
    stream: AsyncIterator[TResponseStreamEvent], hand_on: Callable[[TResponseStreamEvent], None]
) -> Kept:
    """Hand on each event but the one that completes the response, and return what is to be recorded.

    ModelBehaviorError for a stream that ends without such an event: that is no answer.
    """
    completed: ResponseCompletedEvent | None = None
    output: list[Any] = []
    deltas: list[tuple[int, int, str]] = []
    async for event in stream:
        if isinstance(event, ResponseCompletedEvent):
            completed = event
            continue
        if isinstance(event, ResponseTextDeltaEvent):
            deltas.append((event.output_index, event.content_index, event.delta))
        elif isinstance(event, ResponseOutputItemDoneEvent):
            output.append(event.item)
        hand_on(event)
    if completed is None:
        raise ModelBehaviorError("the model's stream ended without a completed response")
    return kept_of_stream(completed.response, output, deltas)


class LedgerModelProvider(ModelProvider):
    """A provider whose models are LedgerModels: for `RunConfig(model_provider=...)` and agents that name their model.

    The model itself is made when it is first asked something that is not on record.
    """

    def __init__(self, provider: ModelProvider, *, recorder: Recorder) -> None:
        self._provider = provider
        self._recorder = recorder

    def get_model(self, model_name: str | None) -> Model:
        """See ModelProvider.get_model."""
        return LedgerModel(
            lambda: self._provider.get_model(model_name), recorder=self._recorder, name=model_name or "default"
        )

    async def aclose(self) -> None:
        """See ModelProvider.aclose."""
        await self._provider.aclose()


def wrap_model(model: Model, *, recorder: Recorder | None = None, name: str = "") -> LedgerModel:
    """Return the model with its answers recorded and restored; one that is wrapped already is returned as it is."""
    if isinstance(model, LedgerModel):
        return model
    return LedgerModel(model, recorder=recorder or Recorder(), name=name)
