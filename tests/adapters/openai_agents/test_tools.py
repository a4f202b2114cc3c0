"""Tools, handoffs and agents as tools: what runs, what is restored, and what the model is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    AgentsException,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    LocalShellTool,
    ModelBehaviorError,
    Runner,
    ToolOutputText,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    tool_input_guardrail,
)
from agents.mcp import MCPServer
from agents.testing import function_call
from agents.tool_guardrails import ToolGuardrailFunctionOutput
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from agent_run_ledger import LoopDetected, Misuse
from agent_run_ledger.adapters.openai_agents import wrap_agent
from agent_run_ledger.adapters.openai_agents.errors import bare, carried
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger, recorded_calls
from tests.adapters.openai_agents.fakes import FakeModel, call, text
from tests.adapters.openai_agents.lives import RUN, Log, die, killed, ledger, live

pytestmark = pytest.mark.fault

Results = Mapping[str, str]


def _fake(folder: Path, answers: Any) -> FakeModel:
    return FakeModel(answers, folder / "asked")


def _once(name: str, **arguments: Any) -> Any:
    """Call one tool, and say what it gave."""
    return lambda told, _: [text(told["c1"])] if "c1" in told else [call(name, "c1", **arguments)]


def _asked(folder: Path) -> int:
    path = folder / "asked"
    count = len(path.read_text().split()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return count


# agents within agents


def _lead(folder: Path, log: Log, *, kills: bool) -> Agent[Any]:
    """Two agents as tools, called at once; each calls a tool that is not safe."""

    @function_tool
    def file_issue(title: str) -> str:
        log.note(f"file:{title}")
        return f"filed {title}"

    @function_tool
    def look(title: str) -> str:
        log.note(f"look:{title}")
        if kills and title == "b":
            die()
        return f"saw {title}"

    def answers(told: Results, system: str) -> list[Any]:
        if system == "lead":
            if "n-a" in told:
                return [text(f"{told['n-a']} and {told['n-b']}")]
            return [call("worker_a", "n-a", input="a"), call("worker_b", "n-b", input="b")]
        if "l" in told:
            return [text(told["f"] + ", " + told["l"])]
        return [call("look", "l", title=system)] if "f" in told else [call("file_issue", "f", title=system)]

    model = _fake(folder, answers)
    workers = [Agent(name=f"worker {name}", instructions=name, model=model, tools=[file_issue, look]) for name in "ab"]
    return wrap_agent(
        Agent(
            name="lead",
            instructions="lead",
            model=model,
            tools=[worker.as_tool(worker.name.replace(" ", "_"), "Works.") for worker in workers],
        ),
        tools={"look": {"safe": True}},
    )


def test_agents_as_tools_go_on_within_after_a_kill(tmp_path: Path) -> None:
    log = Log(tmp_path)
    killed(lambda: live(tmp_path, _lead(tmp_path, log, kills=True)))
    assert sorted(log.take())[:2] == ["file:a", "file:b"]
    _asked(tmp_path)
    result = live(tmp_path, _lead(tmp_path, log, kills=False))
    assert result.final_output == "filed a, saw a and filed b, saw b"
    ran = log.take()
    assert "look:b" in ran
    assert not [one for one in ran if one.startswith("file:")]
    assert _asked(tmp_path) <= 3
    assert live(tmp_path, _lead(tmp_path, log, kills=False)).final_output == result.final_output
    assert (log.take(), _asked(tmp_path)) == ([], 0)


def test_a_handoff_is_walked_again_for_free(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def team() -> Agent[Any]:
        @function_tool
        def bill(amount: int) -> str:
            log.note("bill")
            return f"billed {amount}"

        def answers(told: Results, system: str) -> list[Any]:
            if system == "triage":
                return [call("transfer_to_billing", "h1")]
            if system == "billing":
                return [call("ask_back", "h2")] if "c1" in told else [call("bill", "c1", amount=3)]
            return [text(told["c1"])]

        model = _fake(tmp_path, answers)
        billing = Agent(name="billing", instructions="billing", model=model, tools=[bill])
        closing = Agent(name="closing", instructions="closing", model=model)
        triage = Agent(name="triage", instructions="triage", model=model, handoffs=[billing])
        billing.handoffs = [handoff(closing, tool_name_override="ask_back"), triage]
        return wrap_agent(triage)

    first = live(tmp_path, team())
    assert first.last_agent.name == "closing"
    assert (log.take(), _asked(tmp_path)) == (["bill"], 4)
    again = live(tmp_path, team())
    assert again.final_output == first.final_output == "billed 3"
    assert (log.take(), _asked(tmp_path)) == ([], 0)


# errors


def test_a_halted_run_asks_no_model_where_a_tool_swallows_the_error(tmp_path: Path) -> None:
    """A tool that nobody wrapped runs an agent: the SDK makes a text of LoopDetected, and asks the model again."""
    log = Log(tmp_path)

    @function_tool
    def look() -> str:
        log.note("look")
        return "the shelf is empty, as it was the last time; the catalogue lists no other one"

    inner = Agent(
        name="inner",
        model=_fake(tmp_path, lambda told, _: [call("look", f"c{len(told)}")]),
        tools=[look],
    )
    wrap_agent(inner)

    @function_tool
    async def delegate() -> str:
        return str((await Runner.run(inner, "Look.", max_turns=50)).final_output)

    outer_model = _fake(tmp_path, lambda told, _: [text("fine")] if told else [call("delegate", "d1")])
    outer = wrap_agent(Agent(name="outer", model=outer_model))
    outer.tools = [delegate]  # not wrapped
    with pytest.raises(LoopDetected):
        live(tmp_path, outer)
    ran = log.take()
    assert 1 < len(ran) < 12
    assert _asked(tmp_path) == len(ran) + 1  # the outer model was asked once, before
    with pytest.raises(LoopDetected):
        live(tmp_path, outer)
    assert (log.take(), _asked(tmp_path)) == ([], 0)


def test_an_error_is_on_record_as_one_and_told_as_the_tool_says(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def agent(**said: Any) -> Agent[Any]:
        @function_tool(**said)
        def pay(amount: int) -> str:
            log.note("pay")
            raise ValueError(f"no {amount}")

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("pay", amount=4)), tools=[pay]))

    for ran in (["pay"], []):
        told = live(tmp_path, agent(failure_error_function=lambda _, error: f"told: {type(error).__name__} {error}"))
        assert told.final_output == "told: ValueError no 4"
        assert log.take() == ran
    kinds = [record.kind for record in recorded_calls(tmp_path / "ledger.db") if record.name == "pay"]
    assert kinds == [RecordKind.ERROR]


def test_a_timeout_is_told_again_and_the_tool_is_not_called_again(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def agent() -> Agent[Any]:
        @function_tool(timeout=0.05)
        async def slow() -> str:
            log.note("slow")
            await asyncio.sleep(30)
            return "late"

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("slow")), tools=[slow]))

    said = {live(tmp_path, agent()).final_output for _ in range(2)}
    assert len(said) == 1
    assert "timed out" in said.pop()
    assert log.take() == ["slow"]


def test_a_forbidden_tool_is_not_called_and_the_model_is_told_why(tmp_path: Path) -> None:
    log = Log(tmp_path)

    @function_tool
    def drop() -> str:
        log.note("drop")
        return "gone"

    agent = wrap_agent(
        Agent(name="a", model=_fake(tmp_path, _once("drop")), tools=[drop]), tools={"*": {"deny": "not in this house"}}
    )
    assert "not in this house" in live(tmp_path, agent).final_output
    assert log.take() == []


def test_an_unknown_outcome_is_a_text_for_the_model(tmp_path: Path) -> None:
    log = Log(tmp_path)

    def agent(*, kills: bool) -> Agent[Any]:
        @function_tool
        def pay(amount: int) -> int:
            log.note("pay")
            if kills:
                die()
            return amount

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("pay", amount=4)), tools=[pay]))

    killed(lambda: live(tmp_path, agent(kills=True)))
    result = live(tmp_path, agent(kills=False))
    assert '"outcome": "unknown"' in result.final_output
    assert log.take() == ["pay"]


# outputs, guardrails, what cannot be recorded


@dataclass
class Page:
    number: int
    lines: list[str]


class Handle:
    def __str__(self) -> str:
        return "a handle"


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (7, "7"),
        ({"a": [1, None]}, "{'a': [1, None]}"),
        (Page(1, ["x"]), "Page(number=1, lines=['x'])"),
        (Handle(), "a handle"),
        (ToolOutputText(text="as a part"), "[{'type': 'input_text', 'text': 'as a part'}]"),
    ],
)
def test_outputs_come_back_as_they_were_told(value: Any, seen: str, tmp_path: Path) -> None:
    log = Log(tmp_path)

    def agent() -> Agent[Any]:
        @function_tool
        def give() -> Any:
            log.note("give")
            return value

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("give")), tools=[give]))

    assert [live(tmp_path, agent()).final_output for _ in range(2)] == [seen, seen]
    assert log.take() == ["give"]


def test_guardrails_are_asked_at_every_start_and_stop_what_they_stop(tmp_path: Path) -> None:
    log = Log(tmp_path)

    @tool_input_guardrail
    def careful(data: Any) -> ToolGuardrailFunctionOutput:
        log.note("guard")
        return ToolGuardrailFunctionOutput.reject_content("not this one")

    @function_tool(tool_input_guardrails=[careful])
    def drop() -> str:
        log.note("drop")
        return "gone"

    @input_guardrail
    async def trips(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    for _ in range(2):
        agent = wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("drop")), tools=[drop]))
        assert live(tmp_path, agent).final_output == "not this one"
        assert log.take() == ["guard"]
    agent.input_guardrails = [trips]
    with pytest.raises(InputGuardrailTripwireTriggered):
        live(tmp_path, agent)


def test_a_tool_that_runs_here_and_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    shell = LocalShellTool(executor=lambda _: "done")
    with pytest.raises(Misuse, match="LocalShellTool") as refused:
        wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("x")), tools=[shell]))
    assert refused.value.code == "unrecorded_tool"
    wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("x")), tools=[shell]), unrecorded=[shell.name])


def test_tools_of_an_mcp_server_are_recorded(tmp_path: Path) -> None:
    log = Log(tmp_path)

    class Server(MCPServer):
        name = "shelf"

        async def connect(self) -> None: ...

        async def cleanup(self) -> None: ...

        async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
            schema = {"type": "object", "properties": {"shelf": {"type": "integer"}}}
            return [MCPTool(name="look", description="Looks.", inputSchema=schema)]

        async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
            log.note(f"{tool_name}:{arguments['shelf']}")
            return CallToolResult(content=[TextContent(type="text", text="two books")])

        async def list_prompts(self) -> Any: ...

        async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...

    said = []
    for ran in (["look:7"], []):
        agent = Agent(name="a", model=_fake(tmp_path, _once("look", shelf=7)), mcp_servers=[Server()])
        said.append(live(tmp_path, wrap_agent(agent)).final_output)
        assert log.take() == ran
    assert "two books" in said[0]
    assert said[0] == said[1]


def test_usage_is_spent_once(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "x"

    for _ in range(2):
        agent = wrap_agent(Agent(name="a", model=_fake(tmp_path, _once("look")), tools=[look]))
        result = live(tmp_path, agent)
        usage: Usage = result.context_wrapper.usage
        assert (usage.requests, usage.input_tokens, usage.output_tokens) == (2, 200, 20)  # of the conversation
    with ledger(tmp_path) as opened:
        account = opened.bind(RUN).usage()
    assert account is not None
    used = account.total
    assert (used.spent.calls, used.spent.input_tokens, used.spent.output_tokens) == (2, 200, 20)
    check_ledger(tmp_path / "ledger.db")


def test_an_error_that_is_carried_is_what_it_was(tmp_path: Path) -> None:
    error = LoopDetected("in circles", hint="release it")
    through = carried(error)
    assert isinstance(through, LoopDetected)
    assert isinstance(through, AgentsException)
    assert (str(through), through.code, type(through).__name__) == (str(error), error.code, "LoopDetected")
    assert bare(through) is error
    assert carried(through) is through
    make, args = through.__reduce__()[:2]  # type: ignore[misc]
    assert type(make(*args)) is LoopDetected


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_an_error_of_its_call_that_the_model_is_told_of(number: str, tmp_path: Path) -> None:
    log = Log(tmp_path)

    def answers(told: Results, _: str) -> list[Any]:
        if "c2" in told:
            return [text(f"{told['c1']} / {told['c2']}")]
        if "c1" in told:
            return [call("pay", "c2", amount=4)]
        return [function_call("pay", f'{{"amount": {number}}}', call_id="c1")]

    def agent() -> Agent[Any]:
        @function_tool
        def pay(amount: float) -> str:
            log.note(f"pay:{amount}")
            return "paid"

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, answers), tools=[pay]))

    for ran, asked in ((["pay:4.0"], 3), ([], 0)):
        said = live(tmp_path, agent()).final_output
        assert "NaN or infinite" in said
        assert said.endswith("/ paid")
        assert (log.take(), _asked(tmp_path)) == (ran, asked)


def test_one_call_id_for_another_call_ends_the_run_by_the_sdk_and_answers_nothing(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path)

    def agent() -> Agent[Any]:
        @function_tool
        def look(shelf: int) -> str:
            log.note(f"look:{shelf}")
            return f"shelf {shelf}"

        def answers(told: Results, _: str) -> list[Any]:
            return [call("look", "same", shelf=1 + len(told))]

        return wrap_agent(Agent(name="a", model=_fake(tmp_path, answers), tools=[look]))

    for ran in (["look:1"], []):
        with pytest.raises(ModelBehaviorError, match="reused a completed tool call ID"):
            live(tmp_path, agent(), [{"role": "user", "content": "Go."}])
        assert log.take() == ran
