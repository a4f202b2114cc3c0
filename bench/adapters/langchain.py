"""What the LangChain adapter adds to each model call with its tool call, beside the same agent without it, as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agent_run_ledger import RunLedger
from agent_run_ledger.adapters.langchain import ledger_middleware

TURNS = 10
"""So many questions with one call of a tool each, in one run of the agent; then it answers."""


class Model(BaseChatModel):
    """Asks for the tool TURNS times, then answers."""

    @property
    def _llm_type(self) -> str:
        return "bench"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Runnable[Any, AIMessage]:
        """Know the tools."""
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **settings)  # type: ignore[return-value]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        asked = [{"id": f"call-{turn}", "name": "look", "args": {"page": turn}}] if turn < TURNS else []
        message = AIMessage("" if asked else "done", tool_calls=asked)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} of the catalogue"


def seconds(agent: Any) -> float:
    """Run the agent once, and return how long that took."""
    begun = time.perf_counter()
    agent.invoke({"messages": [HumanMessage("Look at every page.")]}, {"recursion_limit": 10 * TURNS})
    return time.perf_counter() - begun


def measure(rounds: int, ledger: RunLedger) -> dict[str, Any]:
    """Run both agents in turn, so that a slow minute is in both, and return the figures per call of the model."""
    bare = create_agent(Model(), [look])
    recorded = create_agent(Model(), [look], middleware=[ledger_middleware(tools={"look": {"safe": True}})])
    floors: list[float] = []
    wholes: list[float] = []
    for number in range(rounds + 2):
        floor = seconds(bare)
        with ledger.run(f"round-{number}"):
            whole = seconds(recorded)
        if number >= 2:  # the first ones import and warm up
            floors.append(floor)
            wholes.append(whole)
    ms = 1000 / (TURNS + 0.5)  # the last question has no tool call
    return {
        "name": "langchain",
        "overhead_ms_median": round(statistics.median(w - f for w, f in zip(wholes, floors, strict=True)) * ms, 3),
        "floor_ms_median": round(statistics.median(floors) * ms, 3),
        "calls": rounds * (2 * TURNS + 1),
    }


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RunLedger(db_path=Path(folder) / "ledger.db") as ledger:
        print(json.dumps(measure(given.rounds, ledger)))


if __name__ == "__main__":
    main()
