"""A chat model that answers from a list and counts, for tests in one process and for programs that are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from agent_run_ledger.testing import BodyCounter


class Scripted(BaseChatModel):
    """Gives the n-th reply to a question with n answers in it. Each question is a line of the counter."""

    replies: list[AIMessage]
    counter_path: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def asked(self) -> int:
        return BodyCounter(self.counter_path).count()["model"]

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **settings)  # type: ignore[return-value]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        message = self._reply(messages)
        return ChatResult(generations=[ChatGeneration(message=message, generation_info={"finish_reason": "stop"})])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._reply(messages)
        for letter in str(message.content):
            yield ChatGenerationChunk(message=AIMessageChunk(content=letter))
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_calls=message.tool_calls,
                usage_metadata=message.usage_metadata,
                response_metadata=message.response_metadata,
            )
        )

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        BodyCounter(self.counter_path).ran("model")
        return self.replies[sum(isinstance(message, AIMessage) for message in messages)].model_copy(deep=True)


def scripted(folder: Path, *replies: AIMessage | str) -> Scripted:
    messages = [AIMessage(content=reply) if isinstance(reply, str) else reply for reply in replies]
    return Scripted(replies=messages, counter_path=str(folder / "bodies.log"))


def calls(*asked: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """An answer that asks for tools: (call id, name, arguments) each."""
    return AIMessage(content="", tool_calls=[{"id": one, "name": name, "args": args} for one, name, args in asked])
