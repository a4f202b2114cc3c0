"""Programs that the tests start, kill and start again: graphs beside a checkpointer on a file of its own."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

from agent_run_ledger import RunLedger
from agent_run_ledger.adapters.langchain import ledger_middleware, ledger_tool_node, wrap_chat_model
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.store.ledger_place import LedgerPlace
from agent_run_ledger.testing import BodyCounter
from tests.adapters import offline
from tests.adapters.langchain.scripted import calls, scripted
from tests.adapters.langchain.subject import raw_graph

offline.refuse()  # a life is a process of its own

CONFIG: Any = {"configurable": {"thread_id": "ticket"}}
RULES: Any = {"read": {"safe": True}}


@contextmanager
def checkpointer(folder: Path) -> Iterator[SqliteSaver]:
    connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
    try:
        yield SqliteSaver(connection)
    finally:
        connection.close()


def tools(folder: Path) -> list[Any]:
    counter = BodyCounter(folder / "bodies.log")

    def dies(name: str) -> None:
        counter.ran(name)
        if os.environ.get("DIES_IN") == name and os.environ["ARL_LIFE"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    @tool
    def read(shelf: str) -> str:
        """Read a shelf."""
        dies("read")
        return f"shelf {shelf} is empty"

    @tool
    def order(thing: str) -> str:
        """Order a thing."""
        dies("order")
        return f"ordered {thing}"

    return [read, order]


def agent(folder: Path) -> dict[str, Any]:
    """An agent that reads, orders and answers; it goes on from its checkpoint where there is one."""
    with checkpointer(folder) as saver, RunLedger(db_path=LedgerPlace.here(folder).named) as ledger:
        graph = _graph(folder, saver)
        with ledger.run("ticket"):
            begun = graph.get_state(CONFIG).values
            state = graph.invoke(None if begun else {"messages": [HumanMessage("stock up")]}, CONFIG)
        told = {m.tool_call_id: str(m.content) for m in state["messages"] if isinstance(m, ToolMessage)}
        return {"answer": state["messages"][-1].content, "told": told, "messages": len(state["messages"])}


def _graph(folder: Path, saver: SqliteSaver) -> Any:
    model = scripted(
        folder, calls(("c1", "read", {"shelf": "7"})), calls(("c2", "order", {"thing": "ink"})), "stocked up"
    )
    if os.environ["KIND"] == "agent":
        middleware = [ledger_middleware(tools=RULES)]
        return create_agent(model, tools(folder), middleware=middleware, checkpointer=saver)
    recorder = Recorder(tools=RULES)
    bound = wrap_chat_model(model, recorder=recorder).bind_tools(tools(folder))
    return raw_graph(bound, ledger_tool_node(tools(folder), recorder=recorder), is_async=False, checkpointer=saver)
