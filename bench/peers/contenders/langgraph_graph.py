"""LangGraph's graph API as a contender: one node in a loop, one superstep per step, and the SQLite saver."""

from __future__ import annotations

import sys
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph_saver import opened_saver
from protocol import RUN_ID, Life, Result


class Chain(TypedDict):
    """The state: the number of the next step, and the result of the last one, which replaces the one before."""

    i: int
    last: Result


def main(life: Life) -> None:
    """Run or resume the graph with the durability that `--option` names (sync or async)."""

    def step(state: Chain) -> Chain:
        return {"i": state["i"] + 1, "last": life.body(state["i"])}

    graph = StateGraph(Chain)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["i"] < life.steps else END)
    with opened_saver(life) as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": RUN_ID}, "recursion_limit": life.steps + 10}
        begin = None if life.resume else {"i": 0, "last": {}}
        life.start()
        life.end(app.invoke(begin, config, durability=life.option)["last"])


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
