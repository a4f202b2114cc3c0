"""Measures what the ledger adds to a model call with a tool call of the OpenAI Agents SDK, beside the SDK alone."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call

from agent_run_ledger import RunLedger
from agent_run_ledger.adapters.openai_agents import wrap_agent

RUNS, TURNS = 40, 5
"""Runs of each kind, one after the other by turns; and how many calls of a model and of a tool each makes."""


class Scripted(Model):
    """Asks for one tool per turn, and answers at once."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        """Answer by the number of results."""
        done = 0 if isinstance(input, str) else sum(item.get("type") == "function_call_output" for item in input)
        output = (
            [function_call("look", {"page": done}, call_id=f"c{done}")] if done < TURNS else [assistant_message("x")]
        )
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse: nothing is streamed here."""
        raise NotImplementedError


@function_tool
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}"


def agent() -> Agent[Any]:
    """Make the agent."""
    return Agent(name="a", instructions="Look at every page.", model=Scripted(), tools=[look])


async def measure(ledger: RunLedger) -> tuple[list[float], list[float]]:
    """Return the seconds of each run with the ledger and without it; a run with it begins and ends in the time."""
    recorded, bare = wrap_agent(agent()), agent()
    with_ledger: list[float] = []
    without: list[float] = []
    for number in range(RUNS + 2):
        begun = time.perf_counter()
        await Runner.run(bare, "Go.", max_turns=TURNS + 2)
        between = time.perf_counter()
        async with ledger.run(f"run-{number}"):
            inside = time.perf_counter()
            await Runner.run(recorded, "Go.", max_turns=TURNS + 2)
            ended = time.perf_counter()
        if number >= 2:  # the first ones import and compile
            without.append(between - begun)
            with_ledger.append(ended - inside)
    return with_ledger, without


def main() -> None:
    """Print the figures as JSON, in milliseconds for one call of a model with one of a tool."""
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as folder, RunLedger(db_path=Path(folder) / "ledger.db") as ledger:
        with_ledger, without = asyncio.run(measure(ledger))
    pairs = TURNS + 0.5  # the last answer comes without a tool: half a pair
    overheads = [(one - other) / pairs * 1000 for one, other in zip(with_ledger, without, strict=True)]
    said = {
        "name": "openai_agents",
        "overhead_ms_median": round(statistics.median(overheads), 3),
        "floor_ms_median": round(statistics.median(without) / pairs * 1000, 3),
        "calls": RUNS * TURNS,
    }
    json.dump(said, sys.stdout)
    print()


if __name__ == "__main__":
    main()
