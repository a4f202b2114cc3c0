"""Calls of tools in a graph: each asks the gate, and is recorded by its call id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt

from agent_run_ledger.adapters.effects import state_of
from agent_run_ledger.adapters.gate import Answer, CallWaits, Permission
from agent_run_ledger.adapters.langchain.plain import meaning
from agent_run_ledger.adapters.langchain.results import ToolFailed, failure, plain_result, result_of, says_error
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.adapters.tool_target import NotDone
from agent_run_ledger.errors import EffectPending, Pending, Vetoed

Handler = Callable[[ToolCallRequest], ToolMessage | Command[Any]]
AsyncHandler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


class ToolHook:
    """The hook of a tool node: `ToolNode(tools, wrap_tool_call=hook.call, awrap_tool_call=hook.acall)`.

    Guarantees: a call that is on record is answered from it; any other is made after the rules and the gate allowed
    it. A veto, and what a tool node makes of an error, is a message for the model. A call that waits for its approval
    raises Pending or, with `interrupts`, interrupts the graph, and asks the gate again when it is resumed: what it is
    resumed with decides nothing. A tool may interrupt too; it runs again from its start on resuming, as in LangGraph.
    Not so an effect: it is called once, with the arguments that people approved, and one that interrupts, raises, or
    whose error becomes a message leaves a doubt. While it waits, it interrupts the graph too; no resuming decides it.
    """

    def __init__(self, recorder: Recorder, *, interrupts: bool = False) -> None:
        self.recorder = recorder
        self._interrupts = interrupts

    def call(self, request: ToolCallRequest, handler: Handler) -> Any:
        """Answer a call from its record, or make it."""
        call, bubbled = request.tool_call, list[GraphBubbleUp]()

        def make() -> Any:
            try:
                return plain_result(handler(request))
            except GraphBubbleUp as up:
                raise _put_off(bubbled, up) from None

        def make_with(approved: dict[str, Any]) -> Any:
            with _no_evidence():
                return _evidence(handler(_with(request, approved)))

        asked, call_id = self._arguments(call), call["id"] or ""
        while True:
            try:
                value = self.recorder.tool(call["name"], asked, make, call_id=call_id, make_with=make_with)
                return result_of(value, call)
            except (Vetoed, ToolFailed) as error:
                return failure(str(error), call)
            except Pending as waits:
                self._wait(request, waits, bubbled)

    async def acall(self, request: ToolCallRequest, handler: AsyncHandler) -> Any:
        """Do what `call` does, on the running event loop."""
        call, bubbled = request.tool_call, list[GraphBubbleUp]()

        async def make() -> Any:
            try:
                return plain_result(await handler(request))
            except GraphBubbleUp as up:
                raise _put_off(bubbled, up) from None

        async def make_with(approved: dict[str, Any]) -> Any:
            with _no_evidence():
                return _evidence(await handler(_with(request, approved)))

        asked, call_id = self._arguments(call), call["id"] or ""
        while True:
            try:
                value = await self.recorder.atool(call["name"], asked, make, call_id=call_id, make_with=make_with)
                return result_of(value, call)
            except (Vetoed, ToolFailed) as error:
                return failure(str(error), call)
            except Pending as waits:
                self._wait(request, waits, bubbled)

    def _wait(self, request: ToolCallRequest, waits: Pending, bubbled: list[GraphBubbleUp]) -> None:
        """Leave the graph with what the tool left it with, an interrupt or Pending; return when it was resumed."""
        if bubbled:
            raise bubbled[0]
        if not self._interrupts or not isinstance(waits, CallWaits | EffectPending):
            raise waits
        call, told = request.tool_call, dict[str, Any]()
        if isinstance(waits, EffectPending):
            answer: Answer | EffectPending = waits
            approval_id = waits.action_id
            told = {"state": state_of(waits), "code": waits.code, "action_key": waits.action_key}
            told["display"] = waits.display
        else:
            approval_id = waits.approval_id
            answer = Answer(permission=Permission.PENDING, approval_id=approval_id, reason=waits.hint)
        self.recorder.waits_elsewhere(call["name"], self._arguments(call), call["id"] or "", answer)
        interrupt(
            {
                "approval_id": approval_id,
                "tool": call["name"],
                "arguments": call["args"],
                "call_id": call["id"],
                "message": str(waits),
                **told,
            }
        )

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        """Return what a call is known by: of an effect exactly what the model wrote, as that is what is approved."""
        if self.recorder.is_effect(call["name"]):
            return dict(call["args"])
        arguments: dict[str, Any] = meaning(call["args"])
        return arguments


def _with(request: ToolCallRequest, approved: dict[str, Any]) -> ToolCallRequest:
    """Return the request for a call with the arguments that were approved."""
    return request.override(tool_call={**request.tool_call, "args": approved})


@contextmanager
def _no_evidence() -> Iterator[None]:
    """Let an error that a tool node made a message of be no evidence that an effect happened, and none against it."""
    try:
        yield
    except ToolFailed as error:
        raise NotDone(str(error)) from error


def _evidence(result: object) -> Any:
    """Return what a tool gave, as plain values. NotDone where some message of it says that the tool failed."""
    plain = plain_result(result)
    if says_error(plain):
        raise NotDone(plain)
    return plain


def _put_off(bubbled: list[GraphBubbleUp], up: GraphBubbleUp) -> Pending:
    """Keep what leaves the graph, and return what the record of the call says: nothing happened, ask again."""
    bubbled.append(up)
    return Pending("the tool waits: the graph was interrupted in it")


def ledger_tool_node(
    tools: Sequence[BaseTool | Callable[..., Any]], *, recorder: Recorder, interrupts: bool = False, **settings: Any
) -> ToolNode:
    """Return a ToolNode whose calls are recorded; see `ToolHook`. `settings`: those of ToolNode.

    `recorder`: the one of the model in the same graph (`wrap_chat_model`), which holds the tools' rules and the gate.
    """
    hook = ToolHook(recorder, interrupts=interrupts)
    return ToolNode(tools, wrap_tool_call=hook.call, awrap_tool_call=hook.acall, **settings)
