"""Faults from public bug reports of LangGraph, as scenarios of our own beside a ledger."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from agent_run_ledger import Diverged, Pending, RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.langchain import ledger_tool_node, suspend_if_waiting, wrap_chat_model
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing import check_ledger
from tests.adapters.langchain.scripted import calls, scripted

HERE = Path(__file__).parent
CONFIG: Any = {"configurable": {"thread_id": "r1"}}

CASES = {
    "DUP-01": "test_interrupts.py::test_a_tool_that_interrupts_by_itself_waits_and_the_one_beside_it_runs_once",
    "RES-02": "test_cases.py::test_a_graph_that_was_changed_never_goes_on_with_the_old_node",
    "RES-06": "test_cases.py::test_a_subgraph_that_waits_goes_on_where_it_was",
    "SER-01": "test_tools.py::test_content_blocks_and_artifacts_are_restored_type_exact",
    "SER-02": "test_tools.py::test_an_artifact_whose_class_is_gone_is_an_error_and_nothing_runs_again",
    "SER-05": "test_tools.py::test_content_blocks_and_artifacts_are_restored_type_exact",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    with RunLedger(db_path=tmp_path / "ledger.db") as ledger:
        yield ledger
    check_ledger(tmp_path / "ledger.db")


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteSaver]:
    connection = sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("crash_after", ["load", "analyst_old"])
def test_a_graph_that_was_changed_never_goes_on_with_the_old_node(
    ledger: RunLedger, saver: SqliteSaver, tmp_path: Path, crash_after: str
) -> None:
    ran: Counter[str] = Counter()

    def build(analyst: str, *, crashes: bool) -> Any:
        model = scripted(tmp_path, *(f"{name} of step {n}" for n, name in enumerate(("load", analyst, "decide"))))

        def node(name: str) -> Any:
            def ask(state: MessagesState) -> dict[str, Any]:
                asked = model.asked
                answer = wrap_chat_model(model).invoke([*state["messages"], HumanMessage(f"You are {name}.")])
                ran[name] += model.asked - asked
                if crashes and name == crash_after:
                    raise Crash
                return {"messages": [answer]}

            return ask

        builder = StateGraph(MessagesState)
        for before, name in ((START, "load"), ("load", analyst), (analyst, "decide")):
            builder.add_node(name, node(name))
            builder.add_edge(before, name)
        return builder.compile(checkpointer=saver)

    with pytest.raises(Crash), ledger.run("r1"):
        build("analyst_old", crashes=True).invoke({"messages": [HumanMessage("go")]}, CONFIG)

    again = build("analyst_new", crashes=False)
    first = {"messages": [HumanMessage("go")]}
    if crash_after == "analyst_old":
        with pytest.raises(Diverged, match=r"messages\[\d\]"), ledger.run("r1"):
            again.invoke(first, {"configurable": {"thread_id": "r2"}})
        assert ran == Counter(load=1, analyst_old=1)
        return
    with ledger.run("r1"):
        state = again.invoke(first, {"configurable": {"thread_id": "r2"}})
    assert [m.content for m in state["messages"] if isinstance(m, AIMessage)][1] == "analyst_new of step 1"
    assert ran == Counter(load=1, analyst_new=1, decide=1)


def test_a_subgraph_that_waits_goes_on_where_it_was(ledger: RunLedger, saver: SqliteSaver) -> None:
    ran: list[str] = []
    said = [Permission.PENDING]

    def gate(request: ToolRequest) -> Answer:
        return Answer(permission=said[0], approval_id="a-1") if request.tool == "approve" else allow_all(request)

    def make(name: str) -> Any:
        @tool(name)
        def work(text: str) -> str:
            """Work."""
            ran.append(name)
            return f"{name} done"

        return work

    hooked = ledger_tool_node(
        [make(name) for name in ("prep", "c1", "approve", "c3", "post")], recorder=Recorder(gate=gate), interrupts=True
    )

    def chain(names: list[str], **nodes: Any) -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(MessagesState)
        before = START
        for name in names:
            if name in nodes:
                builder.add_node(name, nodes[name])
            else:
                builder.add_node(
                    name, lambda state, name=name: {"messages": [calls((f"call-{name}", name, {"text": ""}))]}
                )
                builder.add_node(f"run {name}", hooked)
                builder.add_edge(name, f"run {name}")
            builder.add_edge(before, name)
            before = name if name in nodes else f"run {name}"
        return builder

    child = chain(["c1", "approve", "c3"]).compile()
    graph = chain(["prep", "child", "post"], child=child).compile(checkpointer=saver)

    for asked in ({"messages": [HumanMessage("go")]}, Command(resume=True)):
        with pytest.raises(Pending, match="a-1"), ledger.run("r1"):
            suspend_if_waiting(graph.invoke(asked, CONFIG))
        assert ran == ["prep", "c1"]
    said[0] = Permission.ALLOWED
    with ledger.run("r1"):
        suspend_if_waiting(graph.invoke(Command(resume=True), CONFIG))
    assert ran == ["prep", "c1", "approve", "c3", "post"]


def test_every_case_is_a_shared_one_and_has_a_test(shared: Path) -> None:
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    of_langgraph = {case["id"] for case in map(json.loads, lines) if case["framework"] == "langgraph"}
    assert set(CASES) <= of_langgraph
    for place in CASES.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (HERE / file).read_text(encoding="utf-8")
