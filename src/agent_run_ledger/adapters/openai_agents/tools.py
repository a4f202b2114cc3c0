"""Function tools of the SDK whose results are recorded, and restored without calling them again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from agents import FunctionTool, RunContextWrapper
from agents.agent_tool_state import (
    drop_agent_tool_run_result,
    get_agent_tool_state_scope,
    peek_agent_tool_run_result,
)
from agents.tool import (
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext
from agents.util._approvals import evaluate_function_tool_approval

from agent_run_ledger import codecs
from agent_run_ledger.adapters.effects import GivenEffects
from agent_run_ledger.adapters.gate import Answer, Gate, Permission, allow_all
from agent_run_ledger.adapters.openai_agents.errors import bare, carried
from agent_run_ledger.adapters.openai_agents.mcp_errors import noted_errors
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.adapters.rules import RulesByTool, ToolRules
from agent_run_ledger.adapters.tool_target import NotDone
from agent_run_ledger.errors import LedgerError, Misuse, Vetoed
from agent_run_ledger.runs.run import Run

Rules = Mapping[str, ToolRules | Mapping[str, Any]]

_WRAPPED: Final = "__agent_run_ledger__"
_HANDLED: Final = "_function_tool_default_failure_handled"
"""The SDK's own mark of a text that stands for an error: it is not checked against the tool's output schema."""

_STRUCTURED: Final = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_UNKNOWN: Final = {"outcome", "tool", "call", "message"}


class AgentRules(RulesByTool):
    """Rules by tool name, in which a tool that is an agent is safe: what that agent calls is recorded by itself."""

    def __init__(self, given: Rules | None = None) -> None:
        super().__init__(given)
        self._agents: set[str] = set()

    def note_agent(self, tool: str) -> None:
        """Note that a tool is an agent."""
        self._agents.add(tool)

    def of(self, tool: str) -> ToolRules:
        """Return the rules of a tool."""
        rules = super().of(tool)
        return replace(rules, safe=True) if tool in self._agents else rules


class _Paused(BaseException):
    """A nested agent waits for approvals: its tool has no result, and nothing is to be recorded of this call."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output


def make_recorder(
    *,
    tools: Rules | None = None,
    effects: GivenEffects | None = None,
    gate: Gate = allow_all,
    run: Run | None = None,
) -> Recorder:
    """Return a recorder for agents of this SDK; see `Recorder` for `tools`, `effects`, `gate` and `run`."""
    recorder = Recorder(effects=effects, gate=gate, run=run)
    recorder.rules = AgentRules(tools)
    return recorder


def wrap_tool(tool: FunctionTool, *, recorder: Recorder) -> FunctionTool:
    """Return a copy of the tool whose calls are recorded; one that is wrapped already is returned as it is.

    Misuse("wrapped_twice") for one that is wrapped already, where this recorder has another gate, other rules or other
    effects; Misuse("bad_effect") for an agent that would be an effect, and for a tool of an MCP server that would be
    one, whose error results only `wrap_agent` tells from others.

    Guarantees: the body runs only when nothing is on record of its call, known by the call id of the SDK, and only
    when the rules and the gate allow it, who is asked at every call: an approval of the SDK is none. A gate that waits
    for a decision interrupts the run, as `needs_approval` does; where the SDK goes on without one, Pending is raised.
    What the body raises is recorded as an error, and told to the model as the tool's `failure_error_function` says. A
    veto and an unknown outcome are texts for the model. Errors of the ledger leave `Runner.run` as what they are.

    A tool that is an effect interrupts the run until people have approved it in the ledger, and an approval of the SDK
    is none. It is called once, with the arguments that they approved. What it raises, and a timeout, leave a doubt:
    EffectInDoubt leaves `Runner.run`, and nobody calls it again. What people refused is a text for the model.

    Guardrails, `is_enabled`, timeouts and the tool's own `needs_approval` hold as they did.
    """
    if recorder.is_effect(tool.qualified_name) and getattr(tool, "_mcp_tool_binding", None) is not None:
        raise Misuse(
            f"tool {tool.name!r} is one of an MCP server: wrapped alone, its errors look like results",
            code="bad_effect",
            hint="wrap the agent that has the server: `wrap_agent(agent, effects=...)`",
        )
    return wrap_watched(tool, recorder=recorder)


def wrap_watched(tool: FunctionTool, *, recorder: Recorder) -> FunctionTool:
    """Do what `wrap_tool` does, of a tool of an MCP server too: of one that is watched (see `mcp_errors`)."""
    earlier = getattr(tool.on_invoke_tool, _WRAPPED, None)
    if earlier is not None:
        check_wrapped_once(tool.name, earlier, recorder)
        return tool
    body = copy.copy(tool)
    set_function_tool_failure_error_function(body, None)  # an error is to be recorded as one
    if recorder.is_effect(tool.qualified_name):
        if tool._is_agent_tool:
            raise Misuse(
                f"tool {tool.name!r} is an agent, which does many things: none of them would be approved",
                code="bad_effect",
                hint="let those of its tools be effects that act on the world",
            )
        body.timeout_behavior = "raise_exception"  # a text about a timeout would look like a result
    if tool._is_agent_tool and isinstance(recorder.rules, AgentRules):
        recorder.rules.note_agent(tool.qualified_name)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        return await _invoked(tool, body, recorder, context, arguments)

    setattr(invoke, _WRAPPED, recorder)
    invoke.__annotations__ = {"context": ToolContext, "arguments": str}  # no text, which the SDK would evaluate
    outer = copy.copy(tool)
    outer.on_invoke_tool = invoke
    outer.timeout_seconds = None  # the body has it
    if recorder.rules.of(tool.qualified_name).deny:
        outer.needs_approval = False  # nobody is to approve what may never run
    elif recorder.gated or recorder.is_effect(tool.qualified_name) or tool.needs_approval:
        outer.needs_approval = _needs_approval(tool, recorder)
    return outer


def check_wrapped_once(name: str, earlier: Recorder, recorder: Recorder) -> None:
    """Raise Misuse where a gate or rules would silently not hold, as others stand already."""
    says_nothing = not recorder.gated and not recorder.effects and recorder.rules == RulesByTool()
    if not says_nothing and not recorder.guards_as(earlier):
        raise Misuse(
            f"{name!r} was wrapped before, and this gate and these rules would not hold for it",
            code="wrapped_twice",
            hint="wrap it once, from the agent that leads to all others, or with one recorder: recorder=...",
        )


async def _invoked(
    tool: FunctionTool, body: FunctionTool, recorder: Recorder, context: ToolContext[Any], arguments: str
) -> Any:
    ran = False
    # The SDK looks at the annotations of an invoker at each call, to see what context it takes: its own take this one.
    direct = body.timeout_seconds is None and hasattr(body.on_invoke_tool, "__agents_bind_function_tool__")

    async def make() -> Any:
        nonlocal ran
        ran = True
        try:
            if direct:
                output = await body.on_invoke_tool(context, arguments)
            else:
                output = await invoke_function_tool(function_tool=body, context=context, arguments=arguments)
        except LedgerError as error:
            raise bare(error) from None
        if tool._is_agent_tool and _waits(context):
            raise _Paused(output)
        return _plain_output(output)

    async def make_with(approved: dict[str, Any]) -> Any:
        said = json.dumps(approved, ensure_ascii=False)  # not what the model wrote: it may name a thing twice
        with noted_errors() as errors:
            output = _plain_output(await invoke_function_tool(function_tool=body, context=context, arguments=said))
        if errors:
            raise NotDone(output)
        return output

    asked = _arguments(arguments)
    try:
        output = await recorder.atool(
            tool.qualified_name, asked, make, call_id=context.tool_call_id, make_with=make_with
        )
    except _Paused as paused:
        return paused.output
    except Vetoed as veto:
        return _instead(context, veto.message)
    except LedgerError as error:
        raise carried(error) from error
    except Exception as error:
        said = await maybe_invoke_function_tool_failure_error_function(function_tool=tool, context=context, error=error)
        if said is None:
            raise
        return said
    if tool._is_agent_tool and not ran and context.tool_call is not None:  # it waits no more, whatever a RunState says
        drop_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
    if isinstance(output, dict) and output.get("outcome") == "unknown" and set(output) == _UNKNOWN:
        return _instead(context, json.dumps(output, ensure_ascii=False))
    return output


def _needs_approval(tool: FunctionTool, recorder: Recorder) -> Callable[..., Any]:
    """Return the tool's own question, and the gate's after it: a call that is waited for interrupts the run."""
    own: Final = Answer(permission=Permission.PENDING, reason="the tool itself needs an approval of the SDK")

    async def asked(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> Answer:
        needed = tool.needs_approval
        if callable(needed):
            said = await evaluate_function_tool_approval(tool, context, json.dumps(arguments), call_id)
            needed = said.outcome == "require_approval"
        return own if needed else await recorder.aask(tool.qualified_name, arguments, call_id=call_id)

    async def needs(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        answer = await asked(context, arguments, call_id)
        if answer.permission is Permission.PENDING:
            recorder.waits_elsewhere(tool.qualified_name, arguments, call_id, answer)
        return answer.permission is Permission.PENDING

    return needs


def _waits(context: ToolContext[Any]) -> bool:
    """Return whether the agent that the tool is waits for approvals."""
    if context.tool_call is None:
        return False
    result = peek_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
    return bool(getattr(result, "interruptions", None))


def _instead(context: ToolContext[Any], text: str) -> str:
    setattr(context, _HANDLED, True)
    return text


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments as the model wrote them; what is no object is kept as a text."""
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        said = None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {"arguments": text}


def _plain_output(output: Any) -> Any:
    """Return what is recorded of an output: as it is where it can be stored, else the text that the model would see."""
    if isinstance(output, _STRUCTURED):
        return output.model_dump(mode="json", exclude_none=True)
    if isinstance(output, list | tuple) and any(isinstance(one, _STRUCTURED) for one in output):
        return [_plain_output(one) for one in output]
    if codecs.is_plain(output):
        return output
    try:
        codecs.tree(output)
    except LedgerError:
        return str(output)
    return output
