"""A chat model made of rules, so that the example needs no network: it reads the conversation and says what is next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool


class StoreRoomModel(BaseChatModel):
    """Counts two things at once, orders what is missing, and looks where the outcome of an order is unknown."""

    asked: Callable[[], None]

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Runnable[Any, AIMessage]:
        """Know the tools, as a real model is told of them."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **settings)  # type: ignore[return-value]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        self.asked()
        told = {message.tool_call_id: str(message.content) for message in messages if isinstance(message, ToolMessage)}
        answer = _next(told)
        size = sum(len(str(message.content)) for message in messages) // 4
        answer.usage_metadata = {"input_tokens": size, "output_tokens": 12, "total_tokens": size + 12}
        answer.response_metadata = {"model_name": "rules"}
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _next(told: dict[str, str]) -> AIMessage:
    if "count-ink" not in told:
        return _calls(("count-ink", "count", {"thing": "ink"}), ("count-paper", "count", {"thing": "paper"}))
    if "order-ink" not in told:
        return _calls(("order-ink", "order", {"thing": "ink", "number": 3}))
    if '"unknown"' in told["order-ink"]:
        if "look" not in told:
            return _calls(("look", "list_orders", {}))
        if "ink" not in told["look"] and "order-again" not in told:
            return _calls(("order-again", "order", {"thing": "ink", "number": 3}))
    return AIMessage("There was no ink, so 3 were ordered. There is enough paper.")


def _calls(*asked: tuple[str, str, dict[str, Any]]) -> AIMessage:
    return AIMessage(content="", tool_calls=[{"id": one, "name": name, "args": given} for one, name, given in asked])
