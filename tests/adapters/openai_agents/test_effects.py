"""Tools of the SDK that are effects: approved in a RunState they execute nothing, granted in the ledger once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool
from agents.mcp import MCPServer, MCPUtil
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from agent_run_ledger import ApprovalPending, EffectInDoubt, Misuse, Pending, RunLedger
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.openai_agents import check_interruptions, make_recorder, wrap_agent, wrap_tool
from agent_run_ledger.effects import ActionState
from agent_run_ledger.kernel.states import RunState as State
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.people import People
from tests.adapters.openai_agents.fakes import FakeModel, call, text
from tests.adapters.openai_agents.lives import RUN, Log, die, killed
from tests.contract.engine_kit import each_engine, new_place

KEY = "refund:17"
EFFECTS = {"refund": ToolEffect(key="refund:{order}", approval="finance")}


class House:
    """One run, its people, its saved RunState, and all that really ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.people = People(new_place(folder, "ledger.db"), folder / "trust.json")
        self.log, self.saved = Log(folder), folder / "state.json"
        self.does = ""
        self.timeout_s: float | None = None
        self.arguments: dict[str, Any] = {"order": 17, "cents": 3_000}

    def agent(self) -> Agent[Any]:
        @function_tool(timeout=self.timeout_s)
        async def refund(order: int, cents: int) -> str:
            self.log.note(f"refund-{order}-{cents}")
            if self.does == "die":
                die()
            if self.does == "raise":
                raise ValueError("connection reset")
            if self.does == "wait":
                await asyncio.sleep(60)
            return f"refunded {cents} of {order}"

        def answers(told: Any, system: str) -> list[Any]:
            return [text(told["p"])] if "p" in told else [call("refund", "p", **self.arguments)]

        model = FakeModel(answers, self.folder / "asked")
        return wrap_agent(Agent(name="clerk", instructions="clerk", model=model, tools=[refund]), effects=EFFECTS)

    def ledger(self) -> RunLedger:
        return RunLedger(db_path=self.people.db_path, effects=self.people.settings)

    def live(self, *, word: str = "", run: str = RUN) -> Any:
        """One life: from the beginning, or from the saved state with a word of the SDK."""

        async def go() -> Any:
            agent = self.agent()
            with self.ledger() as opened:
                async with opened.run(run):
                    start: Any = "Refund."
                    if word:
                        start = await RunState.from_json(agent, json.loads(self.saved.read_text()))
                        for item in start.get_interruptions():
                            getattr(start, word)(item)
                    result = await Runner.run(agent, start)
                    if result.interruptions:
                        self.saved.write_text(json.dumps(result.to_state().to_json()))
                    check_interruptions(result)
                    return result.final_output

        try:
            return asyncio.run(go())
        finally:
            check_ledger(self.people.db_path)

    def asked(self) -> int:
        path = self.folder / "asked"
        count = len(path.read_text().split()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count

    @property
    def state(self) -> ActionState:
        return self.people.members(KEY)[-1].state

    @property
    def run_state(self) -> State | None:
        with self.ledger() as opened:
            return opened.bind(RUN).state


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A run that was interrupted before its refund."""
    found = House(tmp_path)
    with pytest.raises(Pending, match="refund"):
        found.live()
    assert (found.log.take(), found.asked()) == ([], 1)
    assert (found.state, found.run_state) == (ActionState.PROPOSED, State.SUSPENDED)
    return found


@each_engine
def test_a_word_of_the_framework_executes_nothing(house: House) -> None:
    for _ in range(2):
        with pytest.raises(ApprovalPending) as caught:
            house.live(word="approve")
        assert caught.value.action_id == house.people.members(KEY)[-1].action_id.hex()
        assert (house.log.take(), house.asked(), house.run_state) == ([], 0, State.SUSPENDED)
    with pytest.raises(Pending):
        house.live()
    assert (house.log.take(), house.state) == ([], ActionState.PROPOSED)


@each_engine
@pytest.mark.parametrize("word", ["", "approve"])
def test_a_grant_executes_once_from_the_beginning_and_from_the_state(house: House, word: str) -> None:
    house.people.grant(KEY)
    for _ in range(2):
        assert house.live(word=word) == "refunded 3000 of 17"
    assert (house.log.take(), house.asked()) == (["refund-17-3000"], 1)
    assert (house.state, house.run_state) == (ActionState.SUCCEEDED, State.COMPLETED)
    assert house.live(run="another") == "refunded 3000 of 17"
    assert house.log.take() == []


@pytest.mark.parametrize("word", ["", "approve"])
def test_a_no_in_the_ledger_is_told_to_the_model(house: House, word: str) -> None:
    house.people.reject(KEY)
    for _ in range(2):
        assert "is rejected" in house.live(word=word)
    assert (house.log.take(), house.run_state) == ([], State.COMPLETED)


def test_rejected_in_the_framework_it_does_not_execute_whatever_people_say(house: House) -> None:
    house.people.grant(KEY)
    assert "not approved" in house.live(word="reject")
    assert (house.log.take(), house.state) == ([], ActionState.AVAILABLE)


@pytest.mark.parametrize("does", ["raise", "timeout"])
def test_an_error_and_a_timeout_are_doubts_that_nobody_repeats(house: House, does: str) -> None:
    house.people.grant(KEY)
    house.does, house.timeout_s = ("wait", 0.2) if does == "timeout" else ("raise", None)
    for word in ("approve", "approve", ""):
        with pytest.raises(EffectInDoubt):
            house.live(word=word)
    assert (house.log.take(), house.state, house.run_state) == (
        ["refund-17-3000"],
        ActionState.UNRESOLVED,
        State.SUSPENDED,
    )
    house.people.saw_it(KEY)
    assert "evidence" in house.live()
    assert house.log.take() == []


def test_killed_between_hand_out_and_record_it_is_never_called_again(house: House) -> None:
    house.people.grant(KEY)
    house.does = "die"
    killed(house.live)
    assert house.log.take() == ["refund-17-3000"]
    house.does = ""
    for word in ("", "approve"):
        with pytest.raises(EffectInDoubt):
            house.live(word=word)
    assert (house.log.take(), house.state) == ([], ActionState.UNRESOLVED)


def test_other_arguments_under_the_key_are_refused(house: House) -> None:
    house.people.grant(KEY)
    house.arguments["cents"] = 9_999
    assert "another request" in house.live(run="another")
    assert house.log.take() == []


class Till(MCPServer):
    """A server whose only tool answers as it is told to."""

    name = "till"

    def __init__(self, log: Log, *, fails: bool) -> None:
        super().__init__()
        self.log, self.fails = log, fails

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
        schema = {"type": "object", "properties": {"order": {"type": "integer"}, "cents": {"type": "integer"}}}
        return [MCPTool(name="refund", description="Refunds.", inputSchema=schema)]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        self.log.note(f"{tool_name}-{arguments['order']}")
        return CallToolResult(content=[TextContent(type="text", text="so it is said")], isError=self.fails)

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


@pytest.mark.parametrize("fails", [True, False])
def test_an_error_result_of_an_mcp_server_is_no_evidence(tmp_path: Path, monkeypatch: Any, fails: bool) -> None:
    house = House(tmp_path)
    till = Till(house.log, fails=fails)

    def agent() -> Agent[Any]:
        def answers(told: Any, system: str) -> list[Any]:
            return [text(told["p"])] if "p" in told else [call("refund", "p", order=17, cents=3_000)]

        model = FakeModel(answers, tmp_path / "asked")
        return wrap_agent(Agent(name="clerk", model=model, mcp_servers=[till]), effects=EFFECTS)

    monkeypatch.setattr(house, "agent", agent)
    with pytest.raises(Pending, match="waits for approval"):
        house.live()
    house.people.grant(KEY)
    if fails:
        for _ in range(2):
            with pytest.raises(EffectInDoubt):
                house.live()
    else:
        assert "so it is said" in house.live()
    assert house.state is (ActionState.UNRESOLVED if fails else ActionState.SUCCEEDED)
    assert house.log.take() == ["refund-17"]


def test_a_tool_of_an_mcp_server_that_is_wrapped_alone_is_no_effect(tmp_path: Path) -> None:
    till = Till(Log(tmp_path), fails=True)
    (tool,) = asyncio.run(MCPUtil.get_function_tools(till, False, None, None))
    with pytest.raises(Misuse, match="MCP server") as caught:
        wrap_tool(tool, recorder=make_recorder(effects=EFFECTS))
    assert caught.value.code == "bad_effect"
    wrap_tool(tool, recorder=make_recorder())


def test_a_key_that_cannot_be_made_is_told_to_the_model(tmp_path: Path, monkeypatch: Any) -> None:
    def key(**arguments: Any) -> str:
        return str(arguments["order"].number)

    monkeypatch.setitem(EFFECTS, "refund", ToolEffect(key=key, approval="finance"))
    house = House(tmp_path)
    for _ in range(2):
        assert "names no effect: AttributeError" in house.live()
    assert (house.log.take(), house.run_state) == ([], State.COMPLETED)


def test_an_agent_is_no_effect_and_effects_beside_a_recorder_are_not_dropped(tmp_path: Path) -> None:
    model = FakeModel(lambda *_: [text("x")], tmp_path / "asked")
    inner = Agent(name="inner", model=model)
    lead = Agent(name="lead", model=model, tools=[inner.as_tool("refund", "Works.")])
    with pytest.raises(Misuse, match="is an agent"):
        wrap_agent(lead, effects=EFFECTS)
    with pytest.raises(Misuse) as caught:
        wrap_agent(Agent(name="a", model=model), effects=EFFECTS, recorder=make_recorder())
    assert caught.value.code == "bad_effect"


def test_effects_that_would_not_hold_are_refused(tmp_path: Path) -> None:
    @function_tool
    def refund(order: int) -> str:
        return ""

    model = FakeModel(lambda *_: [text("x")], tmp_path / "asked")
    agent = wrap_agent(Agent(name="a", model=model, tools=[refund]))
    with pytest.raises(Misuse) as caught:
        wrap_agent(agent, effects=EFFECTS)
    assert caught.value.code == "wrapped_twice"
