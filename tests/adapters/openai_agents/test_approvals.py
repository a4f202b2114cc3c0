"""Approvals: what the SDK calls approved executes nothing; the gate is asked each time, however the run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool

from agent_run_ledger import Diverged, Pending, RunLedger
from agent_run_ledger.adapters.gate import Answer, Permission, ToolRequest
from agent_run_ledger.adapters.openai_agents import check_interruptions, make_recorder, wrap_agent
from agent_run_ledger.kernel.states import RunState as State
from agent_run_ledger.testing import check_ledger
from tests.adapters.openai_agents.fakes import FakeModel, call, text
from tests.adapters.openai_agents.lives import RUN, Log, ledger

Results = Mapping[str, str]


class FileGate:
    """What a person decided, in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "decision"
        self.asked: list[ToolRequest] = []

    def decide(self, verdict: Permission) -> None:
        self.file.write_text(str(verdict))

    def __call__(self, request: ToolRequest) -> Answer:
        self.asked.append(request)
        said = Permission(self.file.read_text()) if self.file.exists() else Permission.PENDING
        return Answer(
            permission=said if request.tool == "pay" else Permission.ALLOWED,
            approval_id="ap-1",
            reason="a person decides",
        )


class House:
    """One run, its gate, its saved RunState, and all that really ran."""

    def __init__(self, folder: Path, *, nested: bool = False, own_approval: bool = False) -> None:
        self.folder, self.nested, self.own_approval = folder, nested, own_approval
        self.log, self.gate, self.state = Log(folder), FileGate(folder), folder / "state.json"
        self.suffix = ""

    def agent(self) -> Agent[Any]:
        @function_tool(needs_approval=self.own_approval)
        def pay(amount: int) -> str:
            self.log.note("pay")
            return f"paid {amount}"

        @function_tool
        def look() -> str:
            self.log.note("look")
            return "a page"

        def answers(told: Results, system: str) -> list[Any]:
            if self.nested and system.startswith("lead"):
                return [text(told["n"])] if "n" in told else [call("clerk", "n", input="pay")]
            if "p" in told:
                return [text(f"{told['p']}, {told['l']}")]
            return [call("look", "l"), call("pay", "p", amount=4)]

        model = FakeModel(answers, self.folder / "asked")
        agent = Agent(name="clerk", instructions="clerk" + self.suffix, model=model, tools=[pay, look])
        if self.nested:
            tool = agent.as_tool("clerk", "Works.")
            agent = Agent(name="lead", instructions="lead" + self.suffix, model=model, tools=[tool])
        return wrap_agent(agent, gate=self.gate)

    def start(self) -> Any:
        """Run from the beginning, save the state where it was interrupted, and wait."""
        return asyncio.run(self.go_on(approve=None))

    def resume(self, *, approve: bool = True) -> Any:
        """Run on from the saved state, approved in the SDK."""
        return asyncio.run(self.go_on(approve=approve))

    async def go_on(self, *, approve: bool | None) -> Any:
        agent = self.agent()
        try:
            with ledger(self.folder) as opened:
                async with opened.run(RUN):
                    start: Any = "Pay."
                    if approve is not None:
                        start = await RunState.from_json(agent, json.loads(self.state.read_text()))
                        for item in start.get_interruptions():
                            start.approve(item) if approve else start.reject(item)
                    result = await Runner.run(agent, start)
                    if result.interruptions:
                        self.state.write_text(json.dumps(result.to_state().to_json()))
                    check_interruptions(result)
                    return result
        finally:
            check_ledger(self.folder / "ledger.db")

    def asked(self) -> int:
        path = self.folder / "asked"
        count = len(path.read_text().split()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count

    def suspended(self) -> bool:
        with ledger(self.folder) as opened:
            return opened.bind(RUN).state is State.SUSPENDED


@pytest.fixture(params=["gate", "gate and needs_approval", "nested"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """A run that waits: of the gate alone, where the tool says needs_approval too, and in an agent that is a tool."""
    found = House(tmp_path, nested=request.param == "nested", own_approval="needs" in request.param)
    with pytest.raises(Pending, match="pay"):
        found.start()
    assert found.log.take() == ["look"]
    assert found.asked() == (2 if found.nested else 1)
    assert found.suspended()
    return found


def test_a_word_of_the_framework_executes_nothing(house: House) -> None:
    for _ in range(2):
        with pytest.raises(Pending, match="ap-1"):
            house.resume()
        assert (house.log.take(), house.asked()) == ([], 0)
        assert house.suspended()
    assert house.gate.asked[-1].call_id == "p"
    assert house.gate.asked[-1].arguments == {"amount": 4}
    assert house.gate.asked[-1].run_id == RUN


def test_allowed_it_executes_once_from_the_state(house: House) -> None:
    house.gate.decide(Permission.ALLOWED)
    result = house.resume()
    assert result.final_output == "paid 4, a page"
    assert house.log.take() == ["pay"]
    assert house.asked() == (2 if house.nested else 1)
    assert house.resume().final_output == "paid 4, a page"
    assert (house.log.take(), house.asked()) == ([], 0)


def test_allowed_it_executes_once_from_the_beginning(house: House) -> None:
    house.gate.decide(Permission.ALLOWED)
    if house.own_approval:  # the tool's own question interrupts every run from the beginning, without a model call
        with pytest.raises(Pending):
            house.start()
        assert (house.log.take(), house.asked()) == ([], 0)
        assert house.resume().final_output == "paid 4, a page"
    else:
        assert house.start().final_output == "paid 4, a page"
    assert house.log.take() == ["pay"]
    assert house.asked() == (2 if house.nested else 1)


def test_both_ways_on_lead_to_the_same_records(house: House) -> None:
    house.gate.decide(Permission.ALLOWED)
    house.resume()
    assert house.log.take() == ["pay"]
    house.asked()
    assert (house.resume() if house.own_approval else house.start()).final_output == "paid 4, a page"
    assert (house.log.take(), house.asked()) == ([], 0)


def test_another_prompt_after_the_pause_is_a_divergence(house: House) -> None:
    house.gate.decide(Permission.ALLOWED)
    house.suffix = " It is another day."
    with pytest.raises(Diverged):
        house.start()
    assert (house.log.take(), house.asked()) == ([], 0)


def test_denied_by_the_gate_it_is_told_to_the_model_whatever_the_framework_says(house: House) -> None:
    house.gate.decide(Permission.DENIED)
    assert "refused: a person decides" in house.resume().final_output
    house.gate.decide(Permission.ALLOWED)  # the veto is on record, and stands
    assert "refused: a person decides" in house.resume().final_output
    assert house.log.take() == []


def test_rejected_in_the_framework_it_does_not_execute(house: House) -> None:
    house.gate.decide(Permission.ALLOWED)
    assert "not approved" in house.resume(approve=False).final_output
    assert house.log.take() == []


def test_a_call_that_waits_ends_the_run_of_an_agent_that_would_end_with_its_result(tmp_path: Path) -> None:
    """No question to a model comes after it, which would be refused: the tool itself must raise."""
    said = [Permission.PENDING, Permission.ALLOWED]

    @function_tool
    def pay() -> str:
        raise AssertionError

    model = FakeModel(lambda *_: [call("pay", "p")], tmp_path / "asked")
    agent = Agent(name="clerk", model=model, tools=[pay], tool_use_behavior="stop_on_first_tool")
    wrap_agent(agent, gate=lambda _: Answer(permission=said.pop(), approval_id="ap-1"))
    with ledger(tmp_path) as opened:
        with pytest.raises(Pending, match="ap-1"), opened.run(RUN):
            Runner.run_sync(agent, "Pay.")
        assert opened.bind(RUN).state is State.SUSPENDED


@pytest.mark.parametrize("own", [False, True])
def test_a_run_whose_interruptions_nobody_looks_at_is_suspended(tmp_path: Path, own: bool) -> None:
    """Whoever asked: the gate, or the tool itself where there is none; and whichever agent beside it is asked."""
    said, ran = [Permission.PENDING], list[str]()

    @function_tool(needs_approval=own)
    def pay() -> str:
        ran.append("pay")
        return "paid"

    def live(opened: RunLedger, *, approve: bool = False) -> None:
        model = FakeModel(lambda told, _: [text("done")] if told else [call("pay", "p")], tmp_path / "asked")
        agent = Agent(name="clerk", model=model, tools=[pay])
        beside = Agent(name="beside", model=FakeModel(lambda *_: [text("hello")], tmp_path / "asked"))
        recorder = make_recorder() if own else make_recorder(gate=lambda _: Answer(permission=said[-1]))
        wrap_agent(agent, recorder=recorder)
        wrap_agent(beside, recorder=recorder)
        with opened.bind(RUN, on_change="rerun").run():
            result = Runner.run_sync(agent, "Pay.")
            Runner.run_sync(beside, "Hello.")
            if approve:
                state = result.to_state()
                state.approve(result.interruptions[0])
                Runner.run_sync(agent, state)

    with ledger(tmp_path) as opened:
        with pytest.raises(Pending, match="'pay' waits for approval"):
            live(opened)
        assert (opened.bind(RUN).state, ran) == (State.SUSPENDED, [])
        said.append(Permission.ALLOWED)
        live(opened, approve=own)
        assert (opened.bind(RUN).state, ran) == (State.COMPLETED, ["pay"])


@pytest.mark.parametrize("last", [False, True])
def test_rejected_in_the_sdk_the_run_is_over_only_when_a_model_was_told(tmp_path: Path, last: bool) -> None:
    @function_tool
    def pay() -> str:
        raise AssertionError

    model = FakeModel(lambda told, _: [text("well")] if told else [call("pay", "p")], tmp_path / "asked")
    behaviour: Any = "stop_on_first_tool" if last else "run_llm_again"
    agent = Agent(name="clerk", model=model, tools=[pay], tool_use_behavior=behaviour)
    wrap_agent(agent, gate=lambda _: Answer(permission=Permission.PENDING, approval_id="ap-1"))

    def live(opened: RunLedger) -> None:
        with opened.run(RUN):
            result = Runner.run_sync(agent, "Pay.")
            state = result.to_state()
            state.reject(result.interruptions[0])
            assert not Runner.run_sync(agent, state).interruptions

    with ledger(tmp_path) as opened:
        if last:
            with pytest.raises(Pending, match="ap-1"):
                live(opened)
        else:
            live(opened)
        assert opened.bind(RUN).state is (State.SUSPENDED if last else State.COMPLETED)


@pytest.mark.parametrize("own", [False, True])
def test_nobody_is_asked_to_approve_what_the_rules_deny(tmp_path: Path, own: bool) -> None:
    asked = list[str]()

    @function_tool(needs_approval=own)
    def pay() -> str:
        raise AssertionError

    def gate(request: ToolRequest) -> Answer:
        asked.append(request.tool)
        return Answer(permission=Permission.PENDING, approval_id="ap-1")

    model = FakeModel(lambda told, _: [text(told["p"])] if told else [call("pay", "p")], tmp_path / "asked")
    agent = wrap_agent(
        Agent(name="clerk", model=model, tools=[pay]), gate=gate, tools={"pay": {"deny": "not in this house"}}
    )
    with ledger(tmp_path) as opened, opened.run(RUN):
        assert "not in this house" in Runner.run_sync(agent, "Pay.").final_output
    assert asked == []
