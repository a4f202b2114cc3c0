"""Makes whole agents of the SDK record: their models, tools, MCP tools, nested agents and those they hand off to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, TypeVar

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    ModelProvider,
    MultiProvider,
    RunResult,
    RunResultStreaming,
    Tool,
    ToolSearchTool,
    WebSearchTool,
)

from agent_run_ledger.adapters.effects import GivenEffects
from agent_run_ledger.adapters.gate import Gate, allow_all
from agent_run_ledger.adapters.openai_agents.mcp_errors import watch
from agent_run_ledger.adapters.openai_agents.model import LedgerModelProvider, wrap_model
from agent_run_ledger.adapters.openai_agents.tools import (
    Rules,
    check_wrapped_once,
    make_recorder,
    wrap_tool,
    wrap_watched,
)
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.errors import Misuse, Pending

C = TypeVar("C")

HOSTED: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ToolSearchTool,
    WebSearchTool,
)
"""Tools that the provider runs while it answers: they are in the record of the answer."""

_WRAPPED: Final = "_agent_run_ledger"


def wrap_agent(
    agent: Agent[C],
    *,
    tools: Rules | None = None,
    effects: GivenEffects | None = None,
    gate: Gate = allow_all,
    recorder: Recorder | None = None,
    provider: ModelProvider | None = None,
    unrecorded: Iterable[str] = (),
) -> Agent[C]:
    """Make an agent record what it does, and return it: it is changed in place, as others refer to it.

    With it are changed the agents that it hands off to and those that are tools of it, at any depth. It works only
    within a run from then on. Wrapped twice it stays as it was first, but for tools that it got since;
    Misuse("wrapped_twice") where the second call has another gate, other rules or other effects.

    `tools`: rules by tool name; `effects`: tools that are called once, and only with people's approval; `gate`: who
    decides on calls (see `wrap_tool` for all three); or a `recorder` with them, and Misuse("bad_effect") for effects
    beside one. `provider`: where models come from that agents only name, the SDK's own by default. `unrecorded`: names
    of tools that the SDK runs in this process and that are no function tools (shell, computer, patches): they would run
    again at every restart, so that each is Misuse("unrecorded_tool") unless it is named here.
    """
    if recorder is not None and effects:
        raise Misuse("effects are given to the recorder, where there is one", code="bad_effect")
    chosen = recorder or make_recorder(tools=tools, effects=effects, gate=gate)
    _Wrapping(chosen, provider or MultiProvider(), frozenset(unrecorded)).wrap(agent)
    return agent


def check_interruptions(result: RunResult | RunResultStreaming) -> None:
    """Raise Pending where the agent waits for approvals: raised in the `with` block it makes the run suspended.

    To be called after the run of the agent, and after its RunState was saved, if it is to go on from that.
    """
    waiting = [f"{item.qualified_name} ({item.call_id})" for item in result.interruptions]
    if waiting:
        raise Pending(
            f"the agent waits for approval of {', '.join(waiting)}",
            hint="once it is decided, run the agent again: from the beginning, or from its RunState",
        )


class _Wrapping:
    """One walk through agents that refer to each other."""

    def __init__(self, recorder: Recorder, provider: ModelProvider, unrecorded: frozenset[str]) -> None:
        self._recorder = recorder
        self._provider = LedgerModelProvider(provider, recorder=recorder)
        self._unrecorded = unrecorded
        self._seen: dict[int, Agent[Any]] = {}

    def wrap(self, agent: Agent[Any]) -> None:
        """Wrap an agent and those that it leads to."""
        if id(agent) in self._seen:
            return
        self._seen[id(agent)] = agent
        earlier = getattr(agent, _WRAPPED, None)
        if earlier is not None:
            check_wrapped_once(agent.name, earlier, self._recorder)
        agent.tools = [self._tool(tool, earlier or self._recorder) for tool in agent.tools]
        if earlier is not None:
            return
        setattr(agent, _WRAPPED, self._recorder)
        named = agent.model
        agent.model = (
            wrap_model(named, recorder=self._recorder) if isinstance(named, Model) else self._provider.get_model(named)
        )
        for one in agent.handoffs:
            if isinstance(one, Handoff):
                self._handoff(one)
            else:
                self.wrap(one)
        # An instance has its own from here on: the SDK makes these tools anew at every turn.
        setattr(agent, "get_mcp_tools", partial(self._mcp_tools, agent, agent.get_mcp_tools))  # noqa: B010 - a method, to mypy

    def _tool(self, tool: Tool, recorder: Recorder) -> Tool:
        if isinstance(tool, FunctionTool):
            if tool._is_agent_tool and isinstance(tool._agent_instance, Agent):
                self.wrap(tool._agent_instance)
            return wrap_tool(tool, recorder=recorder)
        if not isinstance(tool, HOSTED) and tool.name not in self._unrecorded:
            raise Misuse(
                f"tool {tool.name!r} is a {type(tool).__name__}, which runs in this process and is not recorded",
                code="unrecorded_tool",
                hint="make it a function tool, or name it in unrecorded= where running it again does no harm",
            )
        return tool

    def _handoff(self, handoff: Handoff[Any, Any]) -> None:
        target = None if handoff._agent_ref is None else handoff._agent_ref()
        if isinstance(target, Agent):
            self.wrap(target)
            return
        handed_to = handoff.on_invoke_handoff

        async def wrapped(context: Any, arguments: str) -> Any:
            agent = await handed_to(context, arguments)
            if isinstance(agent, Agent):
                self.wrap(agent)
            return agent

        handoff.on_invoke_handoff = wrapped

    async def _mcp_tools(self, agent: Agent[Any], theirs: Any, run_context: Any) -> list[Tool]:
        for server in agent.mcp_servers:
            watch(server)
        return [
            wrap_watched(tool, recorder=self._recorder)
            if isinstance(tool, FunctionTool)
            else self._tool(tool, self._recorder)
            for tool in await theirs(run_context)
        ]
