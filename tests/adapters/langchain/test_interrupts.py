"""Graphs that wait: interrupted beside a checkpointer, resumed, and the ledger asked again each time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from agent_run_ledger import Pending, RunLedger, RunState
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.langchain import (
    ledger_middleware,
    ledger_tool_node,
    suspend_if_waiting,
    wrap_chat_model,
)
from agent_run_ledger.adapters.langchain.request import told_of
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing import check_ledger
from tests.adapters.langchain.scripted import Scripted, calls, scripted
from tests.adapters.langchain.subject import raw_graph
from tests.contract.engine_kit import each_engine, new_place

CONFIG: Any = {"configurable": {"thread_id": "ticket"}}
EMAIL = ("p1", "send_email", {"to": "Ada"})
ASK = ("p2", "ask_human", {"question": "well?"})


class Office:
    """Tools that count, a gate that says what it is told to, and one ledger and checkpointer file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = new_place(folder, "ledger.db")
        self.ran: list[str] = []
        self.asked_gate: list[str] = []
        self.said = Permission.PENDING
        self.gated = "send_email"

    def gate(self, request: ToolRequest) -> Answer:
        if request.tool != self.gated:
            return allow_all(request)
        self.asked_gate.append(request.call_id)
        return Answer(permission=self.said, approval_id="approval-7", reason="Ada decides")

    @property
    def tools(self) -> list[Any]:
        @tool
        def send_email(to: str) -> str:
            """Send an email."""
            self.ran.append("send_email")
            return f"sent to {to}"

        @tool
        def ask_human(question: str) -> str:
            """Ask a person."""
            answer = interrupt({"question": question})
            self.ran.append("ask_human")
            return str(answer)

        return [send_email, ask_human]

    def agent(self, model: Scripted, saver: Any = None) -> Any:
        middleware = [ledger_middleware(gate=self.gate, interrupts=True)]
        return create_agent(model, self.tools, middleware=middleware, checkpointer=saver)

    def graph(self, model: Scripted, saver: Any) -> Any:
        recorder = Recorder(gate=self.gate)
        bound = wrap_chat_model(model, recorder=recorder).bind_tools(self.tools)
        node = ledger_tool_node(self.tools, recorder=recorder, interrupts=True, handle_tool_errors=True)
        return raw_graph(bound, node, is_async=False, checkpointer=saver)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    yield (made := Office(tmp_path))
    check_ledger(made.db)


@pytest.fixture
def ledger(office: Office) -> Iterator[RunLedger]:
    with RunLedger(db_path=office.db) as ledger:
        yield ledger


@pytest.fixture
def saver(office: Office) -> Iterator[SqliteSaver]:
    """The checkpointer, on a file of its own."""
    connection = sqlite3.connect(office.folder / "checkpoints.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def _given(state: Any) -> dict[str, str]:
    return {message.tool_call_id: message.content for message in state["messages"] if message.type == "tool"}


@each_engine
@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_a_pending_call_interrupts_and_only_the_gate_lets_it_go(
    office: Office, ledger: RunLedger, saver: SqliteSaver, kind: str
) -> None:
    model = scripted(office.folder, calls(EMAIL), "done")
    graph = getattr(office, kind)(model, saver)

    def go(asked: Any) -> Any:
        with ledger.run("ticket"):
            return suspend_if_waiting(graph.invoke(asked, CONFIG))

    with pytest.raises(Pending, match="approval-7"):
        go({"messages": [HumanMessage("go")]})
    assert ledger.bind("ticket").state is RunState.SUSPENDED
    (waiting,) = graph.get_state(CONFIG).interrupts
    assert waiting.value["approval_id"] == "approval-7"
    assert (waiting.value["tool"], waiting.value["arguments"], waiting.value["call_id"]) == (
        "send_email",
        {"to": "Ada"},
        "p1",
    )

    with pytest.raises(Pending, match="approval-7"):
        go(Command(resume={"approved": True}))  # who resumes decides nothing
    assert office.ran == []

    office.said = Permission.ALLOWED
    state = go(Command(resume=True))
    assert state["messages"][-1].content == "done"
    assert _given(state) == {"p1": "sent to Ada"}
    assert office.ran == ["send_email"]
    assert office.asked_gate == ["p1"] * 4, "not once at each start, and once more where resuming changed nothing"
    assert model.asked == 2
    assert ledger.bind("ticket").state is RunState.COMPLETED


def test_a_denied_call_is_told_to_the_model_after_resuming(
    office: Office, ledger: RunLedger, saver: SqliteSaver
) -> None:
    model = scripted(office.folder, calls(EMAIL), "well then")
    graph = office.agent(model, saver)
    with pytest.raises(Pending), ledger.run("ticket"):
        suspend_if_waiting(graph.invoke({"messages": [HumanMessage("go")]}, CONFIG))
    office.said = Permission.DENIED
    with ledger.run("ticket"):
        state = suspend_if_waiting(graph.invoke(Command(resume=True), CONFIG))
    assert "was refused: Ada decides" in _given(state)["p1"]
    assert state["messages"][-1].content == "well then"
    assert office.ran == []


def test_interrupted_and_resumed_within_one_attempt(office: Office, ledger: RunLedger, saver: SqliteSaver) -> None:
    model = scripted(office.folder, calls(EMAIL), "done")
    graph = office.graph(model, saver)
    with ledger.run("ticket"):
        first = graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        assert len(first["__interrupt__"]) == 1
        office.said = Permission.ALLOWED
        assert graph.invoke(Command(resume=True), CONFIG)["messages"][-1].content == "done"
    assert (office.ran, model.asked) == (["send_email"], 2)


def test_without_a_checkpointer_the_run_is_started_again_and_goes_the_same_way(
    office: Office, ledger: RunLedger
) -> None:
    model = scripted(office.folder, calls(EMAIL), "done")
    for said in (Permission.PENDING, Permission.PENDING, Permission.ALLOWED, Permission.ALLOWED):
        office.said = said
        graph = office.agent(model)
        try:
            with ledger.run("ticket"):
                state = suspend_if_waiting(graph.invoke({"messages": [HumanMessage("go")]}))
                assert state["messages"][-1].content == "done"
        except Pending:
            assert said is Permission.PENDING
            assert (office.ran, model.asked) == ([], 1)
    assert (office.ran, model.asked) == (["send_email"], 2)


@pytest.mark.parametrize("kind", ["agent", "graph"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_tool_that_interrupts_by_itself_waits_and_the_one_beside_it_runs_once(
    office: Office, ledger: RunLedger, saver: SqliteSaver, kind: str, times: int
) -> None:
    office.gated = ""
    model = scripted(office.folder, calls(EMAIL, ASK), "done")
    for _ in range(times):
        graph = getattr(office, kind)(model, saver)
        first = None if model.asked else {"messages": [HumanMessage("go")]}
        with pytest.raises(Pending, match="well"), ledger.run("ticket"):
            suspend_if_waiting(graph.invoke(first, CONFIG))
        assert office.ran == ["send_email"]
    with ledger.run("ticket"):
        state = suspend_if_waiting(getattr(office, kind)(model, saver).invoke(Command(resume="yes"), CONFIG))
    assert _given(state) == {"p1": "sent to Ada", "p2": "yes"}
    assert office.ran == ["send_email", "ask_human"]
    assert model.asked == 2


def test_another_model_may_be_asked_while_the_graph_itself_waits_and_the_run_waits_on(
    office: Office, ledger: RunLedger
) -> None:
    recorder = Recorder(gate=office.gate)
    model = scripted(office.folder, calls(EMAIL), "done")
    node = ledger_tool_node(office.tools, recorder=recorder, interrupts=True)
    graph = raw_graph(wrap_chat_model(model, recorder=recorder), node, is_async=False)

    def work() -> None:
        assert graph.invoke({"messages": [HumanMessage("go")]})["__interrupt__"]
        for one in (recorder, Recorder()):
            beside = wrap_chat_model(model, recorder=one).invoke([HumanMessage("tell Ada that an approval waits")])
            assert beside.tool_calls

    with pytest.raises(Pending, match="approval-7"), ledger.run("ticket"):
        work()
    assert ledger.bind("ticket").state is RunState.SUSPENDED
    assert (office.ran, model.asked) == ([], 3)


@pytest.mark.parametrize("answered", [True, False])
def test_a_call_that_was_answered_past_the_tool_node_waits_no_more(
    office: Office, ledger: RunLedger, saver: SqliteSaver, answered: bool
) -> None:
    model = scripted(office.folder, calls(EMAIL), "done", "done")
    recorder = Recorder(gate=office.gate)
    node = ledger_tool_node(office.tools, recorder=recorder, interrupts=True)
    graph = raw_graph(wrap_chat_model(model, recorder=recorder), node, is_async=False, checkpointer=saver)
    told = ToolMessage("not today", tool_call_id="p1") if answered else HumanMessage("and now?")

    def work() -> None:
        said = graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)["messages"]
        assert wrap_chat_model(model, recorder=recorder).invoke([told, *said, told]).content == "done"

    if answered:
        with ledger.run("ticket"):
            work()
    else:
        with pytest.raises(Pending, match="approval-7"), ledger.run("ticket"):
            work()
    assert office.ran == []


def test_an_answer_to_an_earlier_call_of_its_id_ends_no_wait() -> None:
    answers = [{"role": "ai", "calls": [{"id": "p1"}]}, {"role": "tool", "call": "p1"}]
    assert told_of({"messages": answers}, "p1")
    assert not told_of({"messages": [*answers, answers[0]]}, "p1")
    assert not told_of({"messages": answers}, "p2")


def test_what_is_not_interrupted_passes_through() -> None:
    state = {"messages": [HumanMessage("done")]}
    assert suspend_if_waiting(state) is state


def test_a_run_whose_interrupts_nobody_looks_at_is_suspended(
    office: Office, ledger: RunLedger, saver: SqliteSaver
) -> None:
    graph = office.agent(scripted(office.folder, calls(EMAIL), "done"), saver)
    with pytest.raises(Pending, match="approval-7"), ledger.run("ticket"):
        graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert ledger.bind("ticket").state is RunState.SUSPENDED
    office.said = Permission.ALLOWED
    with ledger.run("ticket"):
        graph.invoke(Command(resume=True), CONFIG)
    assert (ledger.bind("ticket").state, office.ran) == (RunState.COMPLETED, ["send_email"])
