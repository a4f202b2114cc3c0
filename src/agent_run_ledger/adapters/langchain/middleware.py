"""Middleware for `create_agent`: models and tools of an agent, recorded in the run around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent_run_ledger.adapters.effects import GivenEffects
from agent_run_ledger.adapters.gate import Gate, allow_all
from agent_run_ledger.adapters.langchain.model import STEP, around
from agent_run_ledger.adapters.langchain.tool_node import AsyncHandler, Handler, ToolHook
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.adapters.rules import ToolRules


class LedgerMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Records the calls of an agent's model (see `LedgerChatModel`) and of its tools (see `ToolHook`)."""

    def __init__(self, recorder: Recorder, *, interrupts: bool = False, step: str = STEP) -> None:
        super().__init__()
        self._recorder = recorder
        self._hook = ToolHook(recorder, interrupts=interrupts)
        self._step = step
        self._latest: tuple[Any, Any] = (None, None)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Let the agent ask a model whose answers are recorded."""
        return handler(self._recorded(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Let the agent ask a model whose answers are recorded."""
        return await handler(self._recorded(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        """Answer a call of a tool from its record, or make it."""
        return self._hook.call(request, handler)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: AsyncHandler) -> Any:
        """Answer a call of a tool from its record, or make it."""
        return await self._hook.acall(request, handler)

    def _recorded(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        model, recorded = self._latest
        if model is not request.model:
            recorded = around(request.model, self._recorder, self._step)
            self._latest = (request.model, recorded)
        return request.override(model=recorded)


def ledger_middleware(
    *,
    tools: Mapping[str, ToolRules | Mapping[str, Any]] | None = None,
    effects: GivenEffects | None = None,
    gate: Gate = allow_all,
    interrupts: bool = False,
    step: str = STEP,
) -> LedgerMiddleware:
    """Return middleware for `create_agent(..., middleware=[..., ledger_middleware()])`, the last one in the list.

    Last, it is the innermost: each try of a retry and each model of a fallback has a record of its own. Call the
    agent within `ledger.run(...)`. `tools`: rules by tool name, see `ToolRules`. `effects`: tools that are called once,
    and only with people's approval, see `ToolEffect`. `gate`: who is asked before each call of a tool. `interrupts`: a
    call that waits interrupts the graph, for agents with a checkpointer; otherwise it raises Pending. `step`: the name
    that model calls have on record. Misuse("bad_rules", "bad_effect") for rules and effects that are none.
    """
    return LedgerMiddleware(Recorder(tools=tools, effects=effects, gate=gate), interrupts=interrupts, step=step)
