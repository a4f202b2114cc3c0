"""What the adapter kit drives: LangChain's own agent, and a raw LangGraph graph, each with a fake chat model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic import ConfigDict

from agent_run_ledger.adapters.langchain import (
    ledger_middleware,
    ledger_tool_node,
    suspend_if_waiting,
    wrap_chat_model,
)
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing.adapter_kit import Job, KitTool, Turn


class FakeModel(BaseChatModel):
    """Answers as the kit's script says."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    job: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Runnable[Any, AIMessage]:
        named = [{"name": tool.name, "description": tool.description, "parameters": tool.args} for tool in tools]
        return self.bind(tools=named, **settings)  # type: ignore[return-value]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        turn = _turn(self.job, messages)
        message = AIMessage(
            content=turn.text,
            tool_calls=[{"name": c.name, "args": dict(c.arguments), "id": c.call_id} for c in turn.calls],
            usage_metadata=_usage(turn),
            response_metadata={"model_name": "fake-1"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(_turn(self.job, messages)):
            self.job.sent(chunk.content)
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(_turn(self.job, messages)):
            await self.job.asent(chunk.content)
            yield ChatGenerationChunk(message=chunk)


def _turn(job: Job, messages: list[BaseMessage]) -> Turn:
    return job.asked({m.tool_call_id: str(m.content) for m in messages if isinstance(m, ToolMessage)})


def _usage(turn: Turn) -> Any:
    return {
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }


def _chunks(turn: Turn) -> Iterator[AIMessageChunk]:
    for text in turn.chunks:
        yield AIMessageChunk(content=text)
    yield AIMessageChunk(
        content="",
        tool_call_chunks=[
            {"name": c.name, "args": json.dumps(c.arguments), "id": c.call_id, "index": n}
            for n, c in enumerate(turn.calls)
        ],
        usage_metadata=_usage(turn),
        response_metadata={"model_name": "fake-1"},
    )


def tool_of(tool: KitTool, *, is_async: bool) -> BaseTool:
    def body(text: str) -> str:
        return tool.call(text)

    async def abody(text: str) -> str:
        return await tool.acall(text)

    made = StructuredTool.from_function(
        func=None if is_async else body, coroutine=abody if is_async else None, name=tool.name, description="Works."
    )
    made.handle_tool_error = False
    return made


class Agent:
    """`create_agent` with the ledger's middleware."""

    adapter: str = "agent_run_ledger.adapters.langchain"
    framework: tuple[str, ...] = ("langchain", "langchain_core", "langgraph")
    unsupported: ClassVar[Mapping[str, str]] = {}

    def run(self, job: Job) -> str:
        graph, first = self.graph(job)
        return asyncio.run(_arun(job, graph, first)) if job.is_async else _run(job, graph, first)

    def graph(self, job: Job) -> tuple[Any, list[BaseMessage]]:
        swallowing = [_Deaf()] if job.deaf else [_Swallow()] if job.swallow else []
        agent = create_agent(
            FakeModel(job=job),
            [tool_of(tool, is_async=job.is_async) for tool in job.tools],
            system_prompt=job.system,
            middleware=[
                *swallowing,
                ledger_middleware(tools=job.rules, effects=job.effects, gate=job.gate, interrupts=job.approves),
            ],
            checkpointer=InMemorySaver() if job.approves else None,
        )
        return agent, [HumanMessage(job.question)]


class Graph(Agent):
    """A graph of one's own: a model node and a tool node."""

    def graph(self, job: Job) -> tuple[Any, list[BaseMessage]]:
        recorder = Recorder(tools=job.rules, effects=job.effects, gate=job.gate)
        tools = [tool_of(tool, is_async=job.is_async) for tool in job.tools]
        model = wrap_chat_model(FakeModel(job=job), recorder=recorder).bind_tools(tools)
        return raw_graph(
            model,
            ledger_tool_node(tools, recorder=recorder, interrupts=job.approves, handle_tool_errors=job.swallow),
            is_async=job.is_async,
            deaf=job.deaf,
            checkpointer=InMemorySaver() if job.approves else None,
        ), [SystemMessage(job.system), HumanMessage(job.question)]


class ToolFirst(Graph):
    """The same, where tools with their bindings are wrapped: `wrap_chat_model(model.bind_tools(...))`."""

    def graph(self, job: Job) -> tuple[Any, list[BaseMessage]]:
        recorder = Recorder(tools=job.rules, gate=job.gate)
        tools = [tool_of(tool, is_async=job.is_async) for tool in job.tools]
        model = wrap_chat_model(FakeModel(job=job).bind_tools(tools), recorder=recorder)
        node = ledger_tool_node(tools, recorder=recorder, handle_tool_errors=job.swallow)
        return raw_graph(model, node, is_async=job.is_async), [SystemMessage(job.system), HumanMessage(job.question)]


def raw_graph(model: Any, node: ToolNode, *, is_async: bool, deaf: bool = False, checkpointer: Any = None) -> Any:
    def ask(state: MessagesState) -> dict[str, Any]:
        try:
            return {"messages": [model.invoke(state["messages"])]}
        except Exception:
            if not deaf:
                raise
            return {"messages": [AIMessage("something went wrong")]}

    async def aask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", aask if is_async else ask)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=checkpointer)


def _run(job: Job, graph: Any, first: list[BaseMessage]) -> str:
    with job.ledger.run(job.run_id):
        if job.approves:
            return _approved(job, graph, first)
        if not job.streams:
            return _text(graph.invoke({"messages": first}))
        last: Any = None
        for kind, item in graph.stream({"messages": first}, stream_mode=["messages", "values"]):
            last = _took(job, kind, item, last)
        return _text(last)


def _approved(job: Job, graph: Any, first: list[BaseMessage]) -> str:
    """Approve in the framework what it is interrupted for, once."""
    config: Any = {"configurable": {"thread_id": "1"}}
    result = graph.invoke({"messages": first}, config)
    if "__interrupt__" in result:
        result = graph.invoke(Command(resume=True), config)
    if "__interrupt__" in result and job.deaf:
        return "something waits"
    return _text(suspend_if_waiting(result))


async def _arun(job: Job, graph: Any, first: list[BaseMessage]) -> str:
    async with job.ledger.run(job.run_id):
        if not job.streams:
            return _text(await graph.ainvoke({"messages": first}))
        last: Any = None
        async for kind, item in graph.astream({"messages": first}, stream_mode=["messages", "values"]):
            last = _took(job, kind, item, last)
        return _text(last)


def _took(job: Job, kind: str, item: Any, last: Any) -> Any:
    if kind == "values":
        return item
    message = item[0]
    if isinstance(message, AIMessageChunk) and message.content:
        job.got(str(message.content))
    return last


def _text(result: Mapping[str, Any]) -> str:
    return str(result["messages"][-1].text)


class _Swallow(AgentMiddleware[Any, Any, Any]):
    """Makes messages of whatever tools raise, the ledger's own errors too."""

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            call = request.tool_call
            return ToolMessage(content=f"error: {error}", tool_call_id=call["id"], name=call["name"], status="error")


class _Deaf(_Swallow):
    """Makes messages of whatever models raise, too."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(request)
        except Exception:
            return AIMessage("something went wrong")
