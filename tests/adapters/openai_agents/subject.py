"""The adapter for the OpenAI Agents SDK, as a subject of the conformance kit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.testing import assistant_message, function_call

from agent_run_ledger.adapters.openai_agents import check_interruptions, wrap_agent
from agent_run_ledger.testing.adapter_kit import Job, KitTool, Turn
from tests.adapters.openai_agents.fakes import results_in, stream_of

QUIET = RunConfig(tracing_disabled=True)


class Subject:
    adapter = "agent_run_ledger.adapters.openai_agents"
    framework = ("agents",)
    unsupported: ClassVar[Mapping[str, str]] = {}

    def run(self, job: Job) -> str:
        agent = Agent(
            name="clerk",
            instructions=job.system,
            model=ScriptedModel(job),
            tools=[_tool(tool, job) for tool in job.tools],
        )
        wrap_agent(agent, tools=job.rules, effects=job.effects, gate=job.gate)
        return asyncio.run(_run(agent, job)) if job.is_async or job.streams else _run_sync(agent, job)


def _run_sync(agent: Agent[Any], job: Job) -> str:
    with job.ledger.run(job.run_id):
        try:
            result = Runner.run_sync(agent, job.question, run_config=QUIET, max_turns=100)
            if job.approves and result.interruptions:
                state = result.to_state()
                for item in result.interruptions:
                    state.approve(item)
                result = Runner.run_sync(agent, state, run_config=QUIET, max_turns=100)
        except Exception:
            if not job.deaf:
                raise
            return "something went wrong"
        if not job.deaf:
            check_interruptions(result)
        return str(result.final_output)


async def _run(agent: Agent[Any], job: Job) -> str:
    async with job.ledger.run(job.run_id):
        if not job.streams:
            result = await Runner.run(agent, job.question, run_config=QUIET, max_turns=100)
            check_interruptions(result)
            return str(result.final_output)
        streamed = Runner.run_streamed(agent, job.question, run_config=QUIET, max_turns=100)
        async for event in streamed.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                job.got(event.data.delta)
        check_interruptions(streamed)
        return str(streamed.final_output)


def _tool(tool: KitTool, job: Job) -> FunctionTool:
    """A decorated tool has the SDK's own handling of errors: they become texts for the model."""

    def call(text: str) -> str:
        return tool.call(text)

    async def acall(text: str) -> str:
        return await tool.acall(text)

    said: dict[str, Any] = {} if job.swallow else {"failure_error_function": None}
    return function_tool(
        acall if job.is_async else call, name_override=tool.name, description_override=tool.description, **said
    )


class ScriptedModel(Model):
    """The fake model of the kit."""

    def __init__(self, job: Job) -> None:
        self.job = job

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **said: Any) -> ModelResponse:
        turn = self.job.asked(results_in(input))
        usage = Usage(
            requests=1,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            total_tokens=turn.input_tokens + turn.output_tokens,
        )
        return ModelResponse(output=_items(turn), usage=usage, response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **said: Any
    ) -> AsyncIterator[Any]:
        turn = self.job.asked(results_in(input))
        for event in stream_of(_items(turn), (turn.input_tokens, turn.output_tokens), lambda _: turn.chunks):
            if event.type == "response.output_text.delta":
                self.job.sent(event.delta)
                await asyncio.sleep(0.01)
            yield event


def _items(turn: Turn) -> list[Any]:
    calls = [function_call(one.name, json.dumps(one.arguments), call_id=one.call_id) for one in turn.calls]
    return calls or [assistant_message(turn.text)]
