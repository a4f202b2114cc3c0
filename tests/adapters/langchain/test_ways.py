"""Ways in which LangGraph calls what is recorded: branches at once, sync nodes in async graphs, agents in agents."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from agent_run_ledger import LoopDetected, RunLedger
from agent_run_ledger.adapters.langchain import ledger_middleware, wrap_chat_model
from agent_run_ledger.testing import BodyCounter, check_ledger
from tests.adapters.langchain.scripted import Scripted, calls, scripted


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    with RunLedger(db_path=tmp_path / "ledger.db") as ledger:
        yield ledger
    check_ledger(tmp_path / "ledger.db")


def _fan_out(model: Any, *, is_async: bool) -> Any:
    """A graph that asks the same model five questions at once."""

    def ask(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [model.invoke([HumanMessage(state["question"])])]}

    async def aask(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([HumanMessage(state["question"])])]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", aask if is_async else ask)
    builder.add_conditional_edges(START, lambda _: [Send("ask", {"question": f"q{n % 4}"}) for n in range(5)])
    return builder.compile()


class Echo(Scripted):
    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        BodyCounter(self.counter_path).ran("model")
        return AIMessage(f"answer to {messages[-1].content}")


@pytest.mark.parametrize("is_async", [False, True])
def test_questions_that_are_asked_at_once_keep_their_answers(ledger: RunLedger, tmp_path: Path, is_async: bool) -> None:
    model = Echo(replies=[], counter_path=str(tmp_path / "bodies.log"))
    wanted = Counter({"answer to q0": 2, "answer to q1": 1, "answer to q2": 1, "answer to q3": 1})

    def live() -> Any:
        with ledger.run("fan"):
            return _fan_out(wrap_chat_model(model), is_async=False).invoke({"messages": []})

    async def alive() -> Any:
        async with ledger.run("fan"):
            return await _fan_out(wrap_chat_model(model), is_async=True).ainvoke({"messages": []})

    for _ in range(2):
        state = asyncio.run(alive()) if is_async else live()
        assert Counter(message.content for message in state["messages"]) == wanted
    assert model.asked == 5


@pytest.mark.parametrize("sync_run", [False, True])
def test_sync_nodes_in_an_async_graph_and_async_graphs_in_a_sync_run(
    ledger: RunLedger, tmp_path: Path, sync_run: bool
) -> None:
    model = Echo(replies=[], counter_path=str(tmp_path / "bodies.log"))

    async def alive() -> None:
        async with ledger.run("mixed"):
            await _fan_out(wrap_chat_model(model), is_async=False).ainvoke({"messages": []})

    def live() -> None:
        with ledger.run("mixed"):
            asyncio.run(_fan_out(wrap_chat_model(model), is_async=True).ainvoke({"messages": []}))

    for _ in range(2):
        live() if sync_run else asyncio.run(alive())
    assert model.asked == 5


def test_an_agent_that_is_a_tool_of_another_one(ledger: RunLedger, tmp_path: Path) -> None:
    inner_model = scripted(tmp_path, calls(("call-1", "read", {"page": 1})), "the page is blank")
    outer_model = scripted(tmp_path, calls(("call-1", "research", {"about": "page 1"})), "blank")
    counter = BodyCounter(tmp_path / "bodies.log")

    @tool
    def read(page: int) -> str:
        """Read a page."""
        counter.ran("read")
        return f"page {page}: nothing"

    inner = create_agent(inner_model, [read], middleware=[ledger_middleware(tools={"read": {"safe": True}})])

    @tool
    def research(about: str) -> str:
        """Let another agent look."""
        counter.ran("research")
        return str(inner.invoke({"messages": [HumanMessage(about)]})["messages"][-1].text)

    outer = create_agent(outer_model, [research], middleware=[ledger_middleware(tools={"research": {"safe": True}})])
    for _ in range(2):
        with ledger.run("nested"):
            assert outer.invoke({"messages": [HumanMessage("go")]})["messages"][-1].content == "blank"
    assert counter.count() == Counter(model=4, research=1, read=1)


class Failing(Scripted):
    """Fails as long as there is a file that says so."""

    fails: str

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        BodyCounter(self.counter_path).ran("failing")
        if Path(self.fails).exists():
            raise OSError("overloaded")
        return AIMessage("from the first model")


def test_retries_and_fallbacks_around_it_are_gone_through_again_without_asking(
    ledger: RunLedger, tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    first = Failing(replies=[], counter_path=str(tmp_path / "bodies.log"), fails=str(tmp_path / "fails"))
    second = scripted(tmp_path, "from the second model")
    middleware = [
        ModelFallbackMiddleware(second),
        ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure="error"),
        ledger_middleware(),
    ]
    agent: Any = create_agent(first, [], middleware=middleware)
    for _ in range(2):
        with ledger.run("fallback"):
            state = agent.invoke({"messages": [HumanMessage("go")]})
        assert state["messages"][-1].content == "from the second model"
        (tmp_path / "fails").unlink(missing_ok=True)
    assert BodyCounter(tmp_path / "bodies.log").count() == Counter(failing=2, model=1)


def test_a_run_that_was_stopped_asks_no_model_even_in_another_graph(ledger: RunLedger, tmp_path: Path) -> None:
    turns = [calls((f"call-{n}", "look", {"at": "shelf 7"})) for n in range(20)]
    model = scripted(tmp_path, *turns, "done")

    @tool
    def look(at: str) -> str:
        """Look."""
        return "the shelf is empty, as it was the last time; the catalogue lists no other one"

    agent = create_agent(model, [look], middleware=[ledger_middleware(tools={"look": {"safe": True}})])
    with pytest.raises(LoopDetected):
        _swallowing(ledger, agent, model)
    assert model.asked <= 6


def _swallowing(ledger: RunLedger, agent: Any, model: Scripted) -> None:
    with ledger.run("stopped"):
        try:
            agent.invoke({"messages": [HumanMessage("go")]}, {"recursion_limit": 100})
        except LoopDetected:
            asked = model.asked
            with pytest.raises(LoopDetected):
                wrap_chat_model(model).invoke([HumanMessage("go on all the same")])
            assert model.asked == asked
