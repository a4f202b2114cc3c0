"""The programs in the guide run as they stand there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command

from agent_run_ledger import Pending, RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.langchain import ledger_middleware, suspend_if_waiting
from agent_run_ledger.effects import ActionState
from agent_run_ledger.testing.people import People
from tests.adapters.guides import live, pieces
from tests.adapters.langchain.scripted import Scripted, calls, scripted

AGENTS, GRAPHS, APPROVALS, EFFECTS = pieces("adapter_langchain.md")
RULES = {"search": {"safe": True}, "send_email": {}}
ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ran.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_RUN_LEDGER_DB", raising=False)
    return tmp_path


@tool
def search(text: str) -> str:
    """Search."""
    ran["search"] += 1
    return f"found {text}"


@tool
def send_email(to: str) -> str:
    """Send."""
    ran["send_email"] += 1
    return f"sent to {to}"


@tool
def refund(order: int) -> str:
    """Refund."""
    ran["refund"] += 1
    return f"refunded {order}"


def _model(folder: Path, *asked: Any) -> Scripted:
    return scripted(folder, calls(*asked), "done")


def test_an_agent_is_recorded(folder: Path) -> None:
    model = _model(folder, ("c1", "search", {"text": "a"}), ("c2", "send_email", {"to": "b"}))
    for _ in range(2):
        names: dict[str, Any] = {"model": model, "search": search, "send_email": send_email}
        live(AGENTS, names)
        assert names["state"]["messages"][-1].content == "done"
    assert (dict(ran), model.asked) == ({"search": 1, "send_email": 1}, 2)


def test_a_graph_of_your_own_is_recorded(folder: Path) -> None:
    chat_model = _model(folder, ("c1", "search", {"text": "a"}))
    for _ in range(2):
        builder = StateGraph(MessagesState)
        names: dict[str, Any] = {"rules": RULES, "chat_model": chat_model, "tools": [search], "builder": builder}
        live(GRAPHS, names)
        model = names["model"]
        builder.add_node("model", lambda state, model=model: {"messages": [model.invoke(state["messages"])]})
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        with RunLedger(db_path="runs.db") as ledger, ledger.run("ticket-17"):
            state = builder.compile().invoke({"messages": [HumanMessage("go")]})
        assert state["messages"][-1].content == "done"
    assert (dict(ran), chat_model.asked) == ({"search": 1}, 2)


def test_a_graph_that_waits_suspends_its_run(folder: Path) -> None:
    says = [Permission.PENDING]

    def gate(request: ToolRequest) -> Answer:
        return Answer(permission=says[0], approval_id="a1")

    config: Any = {"configurable": {"thread_id": "t"}}
    agent = create_agent(
        _model(folder, ("c1", "send_email", {"to": "b"})),
        [send_email],
        middleware=[ledger_middleware(gate=gate, interrupts=True)],
        checkpointer=InMemorySaver(),
    )
    with RunLedger(db_path="runs.db") as ledger:
        with pytest.raises(Pending), ledger.run("ticket-17"):
            suspend_if_waiting(agent.invoke({"messages": [HumanMessage("go")]}, config))
        names: dict[str, Any] = {"ledger": ledger, "agent": agent, "Command": Command, "config": config}
        with pytest.raises(Pending):
            live(APPROVALS, names)
        assert not ran
        says[0] = Permission.ALLOWED
        live(APPROVALS, names)
    assert names["state"]["messages"][-1].content == "done"
    assert dict(ran) == {"send_email": 1}


def test_an_effect_waits_for_people_and_happens_once(folder: Path) -> None:
    people = People("agent_run_ledger.db", "trust.json")
    model = _model(folder, ("c1", "refund", {"order": 17}))

    def names() -> dict[str, Any]:
        return {
            "create_agent": create_agent,
            "ledger_middleware": ledger_middleware,
            "suspend_if_waiting": suspend_if_waiting,
            "RunLedger": RunLedger,
            "model": model,
            "refund": refund,
            "saver": InMemorySaver(),
            "question": HumanMessage("refund 17"),
            "config": {"configurable": {"thread_id": "t"}},
        }

    with pytest.raises(Pending, match="waits for approval"):
        live(EFFECTS, names())
    assert not ran
    people.grant("refund:17")
    for _ in range(2):
        again = names()
        live(EFFECTS, again)
        assert again["state"]["messages"][-1].content == "done"
    assert (dict(ran), people.members("refund:17")[-1].state) == ({"refund": 1}, ActionState.SUCCEEDED)
