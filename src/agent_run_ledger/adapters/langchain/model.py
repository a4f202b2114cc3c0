"""A chat model whose answers are recorded: for graphs of your own, and what the middleware puts around an agent's."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field

from agent_run_ledger.adapters.langchain.answers import Chunks, chunk_of, result_of, whole_answers
from agent_run_ledger.adapters.langchain.request import request_of, stands_in, told_of
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.errors import Misuse

STEP = "model"
_TAKEN_OVER = ("profile", "output_version", "callbacks", "tags", "metadata")


class LedgerChatModel(BaseChatModel):
    """A chat model that records the answers of another one, in the run around the call.

    Guarantees: the other model is asked only when nothing is on record of the question (see `request_of`), by invoke,
    stream and their async forms alike: one may restore what another recorded. A stream that is left before its end is
    no record. What it is asked with passes on unchanged. LangChain's own cache is not used: it would answer past the
    record. Misuse("outside_run") outside of a run.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseChatModel
    recorder: Recorder = Field(repr=False, exclude=True)
    step: str = STEP

    def __init__(self, *, inner: BaseChatModel, recorder: Recorder, step: str = STEP) -> None:
        taken_over = {name: getattr(inner, name) for name in _TAKEN_OVER}
        settings: dict[str, Any] = {"inner": inner, "recorder": recorder, "step": step, "cache": False, **taken_over}
        super().__init__(**settings)

    def __getattr__(self, name: str) -> Any:
        """Return what else is asked of the model from the one that is asked."""
        inner = self.__dict__.get("inner")
        if inner is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(inner, name)

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.inner._identifying_params)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def _should_stream(self, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        return self.inner._should_stream(async_api=async_api, run_manager=run_manager, **kwargs)

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as the other model binds them."""
        bound: Any = self.inner.bind_tools(tools, **kwargs)
        if isinstance(bound, RunnableBinding) and bound.bound is self.inner:
            bound = bound.model_copy(update={"bound": self})
        else:
            bound = around(bound, self.recorder, self.step)
        return cast("Runnable[LanguageModelInput, AIMessage]", bound)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        def make() -> Iterator[dict[str, Any]]:
            if self.inner.rate_limiter is not None:
                self.inner.rate_limiter.acquire(blocking=True)
            result = self.inner._generate(messages, stop=stop, run_manager=run_manager, **kwargs)
            yield from whole_answers(result, _id(run_manager))

        request = request_of(self.inner, messages, stop=stop, settings=kwargs)
        return result_of([*self.recorder.stream(self.step, request, make, went_on_from=stands_in, told_of=told_of)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def make() -> AsyncIterator[dict[str, Any]]:
            if self.inner.rate_limiter is not None:
                await self.inner.rate_limiter.aacquire(blocking=True)
            result = await self.inner._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs)
            for answer in whole_answers(result, _id(run_manager)):
                yield answer

        request = request_of(self.inner, messages, stop=stop, settings=kwargs)
        parts = self.recorder.astream(self.step, request, make, went_on_from=stands_in, told_of=told_of)
        return result_of([part async for part in parts])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        def make() -> Iterator[dict[str, Any]]:
            if self.inner.rate_limiter is not None:
                self.inner.rate_limiter.acquire(blocking=True)
            if type(self.inner)._stream is BaseChatModel._stream:
                yield from whole_answers(self.inner._generate(messages, stop=stop, **kwargs), _id(run_manager))
                return
            chunks = Chunks(_id(run_manager))
            for chunk in self.inner._stream(messages, stop=stop, **kwargs):
                yield chunks.plain(chunk)
            yield from chunks.rest()

        request = request_of(self.inner, messages, stop=stop, settings=kwargs)
        for part in self.recorder.stream(self.step, request, make, went_on_from=stands_in, told_of=told_of):
            yield chunk_of(part)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async def make() -> AsyncIterator[dict[str, Any]]:
            if self.inner.rate_limiter is not None:
                await self.inner.rate_limiter.aacquire(blocking=True)
            kind = type(self.inner)
            if kind._stream is BaseChatModel._stream and kind._astream is BaseChatModel._astream:
                result = await self.inner._agenerate(messages, stop=stop, **kwargs)
                for answer in whole_answers(result, _id(run_manager)):
                    yield answer
                return
            chunks = Chunks(_id(run_manager))
            async for chunk in self.inner._astream(messages, stop=stop, **kwargs):
                yield chunks.plain(chunk)
            for last in chunks.rest():
                yield last

        request = request_of(self.inner, messages, stop=stop, settings=kwargs)
        async for part in self.recorder.astream(self.step, request, make, went_on_from=stands_in, told_of=told_of):
            yield chunk_of(part)


def wrap_chat_model(model: Any, *, recorder: Recorder | None = None, step: str = STEP) -> Any:
    """Return the model with its answers recorded; one with tools or settings bound keeps them.

    `recorder`: shared with `ledger_tool_node` in a graph of your own, so that a call that waits or a run that was
    stopped holds the model back. `step`: the name that its calls have on record. Misuse for what is no chat model.
    """
    return around(model, recorder or Recorder(), step)


def around(model: Any, recorder: Recorder, step: str) -> Any:
    """Return this chat model, or the one within a binding, as a LedgerChatModel; what is one already as it is."""
    if isinstance(model, LedgerChatModel):
        return model
    if isinstance(model, BaseChatModel):
        return LedgerChatModel(inner=model, recorder=recorder, step=step)
    if isinstance(model, RunnableBinding):
        return model.model_copy(update={"bound": around(model.bound, recorder, step)})
    raise Misuse(
        f"a {type(model).__name__} is no chat model whose answers can be recorded",
        code="bad_model",
        hint="wrap the chat model before it is made part of a chain",
    )


def _id(run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None) -> str:
    """Return the id of a message that has none, so that it is on record: the one LangChain gives, where it is known."""
    return f"lc_run--{uuid.uuid4() if run_manager is None else run_manager.run_id}"
