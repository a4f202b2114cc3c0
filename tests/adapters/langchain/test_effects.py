"""Tools of a graph that are effects: the framework's word executes nothing, a grant in the ledger once, a no never."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt

from agent_run_ledger import (
    ApprovalPending,
    EffectInDoubt,
    Misuse,
    Pending,
    Request,
    RunLedger,
    RunState,
)
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.langchain import (
    ledger_middleware,
    ledger_tool_node,
    suspend_if_waiting,
    wrap_chat_model,
)
from agent_run_ledger.adapters.langchain.tool_node import ToolHook
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.effects import ActionState
from agent_run_ledger.runs.effect_steps import Effect
from agent_run_ledger.targets import http
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.people import People
from tests.adapters.langchain.scripted import Scripted, calls, scripted
from tests.adapters.langchain.subject import raw_graph
from tests.contract.engine_kit import each_engine, new_place
from tests.contract.target_servers import answer, serving

CONFIG: Any = {"configurable": {"thread_id": "ticket"}}
KEY = "refund:17"
REFUND = ("p1", "refund", {"order": 17, "cents": 3_000})
EFFECT = ToolEffect(key="refund:{order}", approval="finance")


class Office:
    """A store with people, a tool that counts, and an agent that is made anew for each life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.people = People(new_place(folder, "ledger.db"), folder / "trust.json")
        self.ran: list[dict[str, Any]] = []
        self.raises: BaseException | None = None
        self.asks = False
        self.effect: Any = EFFECT

    def _refund(self, order: int, cents: int, note: str | None = "none given") -> str:
        self.ran.append({"order": order, "cents": cents, "note": note})
        if self.asks:
            interrupt("well?")
        if self.raises is not None:
            raise self.raises
        return f"refunded {cents} of {order}"

    def tools(self, *, is_async: bool = False) -> list[Any]:
        async def arefund(order: int, cents: int, note: str | None = "none given") -> str:
            return self._refund(order, cents, note)

        def refund(order: int, cents: int, note: str | None = "none given") -> str:
            return self._refund(order, cents, note)

        made = StructuredTool.from_function(
            func=None if is_async else refund,
            coroutine=arefund if is_async else None,
            name="refund",
            description="Refund an order.",
        )

        @tool
        def look() -> str:
            """Look."""
            return "a page"

        return [made, look]

    def agent(self, model: Scripted, saver: Any = None, **settings: Any) -> Any:
        chosen = {"effects": {"refund": self.effect}, "interrupts": saver is not None, **settings}
        return create_agent(model, self.tools(), middleware=[ledger_middleware(**chosen)], checkpointer=saver)

    def graph(self, model: Scripted, saver: Any = None) -> Any:
        recorder = Recorder(effects={"refund": self.effect})
        bound = wrap_chat_model(model, recorder=recorder).bind_tools(self.tools())
        node = ledger_tool_node(self.tools(), recorder=recorder, interrupts=saver is not None, handle_tool_errors=True)
        return raw_graph(bound, node, is_async=False, checkpointer=saver)

    def live(self, model: Scripted, asked: Any = None, *, saver: Any = None, kind: str = "agent") -> Any:
        """One life of the program: a ledger and a graph of its own."""
        with RunLedger("ticket", self.people.db_path, effects=self.people.settings) as ledger, ledger.run():
            graph = getattr(self, kind)(model, saver)
            return suspend_if_waiting(graph.invoke(asked or {"messages": [HumanMessage("go")]}, CONFIG))

    @property
    def state(self) -> ActionState:
        return self.people.members(KEY)[-1].state

    @property
    def run_state(self) -> RunState | None:
        with RunLedger(db_path=self.people.db_path, create=False) as ledger:
            return ledger.bind("ticket").state


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    yield (made := Office(tmp_path))
    check_ledger(made.people.db_path)


@pytest.fixture
def saver(office: Office) -> Iterator[SqliteSaver]:
    connection = sqlite3.connect(office.folder / "checkpoints.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def _given(state: Any) -> dict[str, str]:
    return {message.tool_call_id: message.content for message in state["messages"] if message.type == "tool"}


# -- with interrupts -----------------------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_it_interrupts_and_only_a_grant_in_the_ledger_lets_it_go(office: Office, saver: Any, kind: str) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    with pytest.raises(Pending, match="waits for approval"):
        office.live(model, saver=saver, kind=kind)
    (action,) = office.people.members(KEY)
    (waiting,) = getattr(office, kind)(model, saver).get_state(CONFIG).interrupts
    assert waiting.value["approval_id"] == action.action_id.hex()
    assert (waiting.value["state"], waiting.value["action_key"], waiting.value["call_id"]) == ("pending", KEY, "p1")
    assert "call refund" in waiting.value["display"]
    assert "3000" in waiting.value["display"]

    for resume in (True, {"approved": True}, [{"type": "approve"}]):  # who resumes decides nothing
        with pytest.raises(Pending, match="waits for approval"):
            office.live(model, Command(resume=resume), saver=saver, kind=kind)
    assert (office.ran, office.run_state, office.state) == ([], RunState.SUSPENDED, ActionState.PROPOSED)

    office.people.grant(KEY)
    state = office.live(model, Command(resume=True), saver=saver, kind=kind)
    assert state["messages"][-1].content == "done"
    assert _given(state) == {"p1": "refunded 3000 of 17"}
    assert (len(office.ran), model.asked, office.run_state) == (1, 2, RunState.COMPLETED)
    assert office.state is ActionState.SUCCEEDED


def test_a_no_in_the_ledger_is_told_to_the_model_after_resuming(office: Office, saver: Any) -> None:
    model = scripted(office.folder, calls(REFUND), "well then")
    with pytest.raises(Pending):
        office.live(model, saver=saver)
    office.people.reject(KEY)
    state = office.live(model, Command(resume={"approved": True}), saver=saver)
    assert "is rejected" in _given(state)["p1"]
    assert (office.ran, office.run_state) == ([], RunState.COMPLETED)


def test_a_doubt_interrupts_too_and_no_resuming_repeats_it(office: Office, saver: Any) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    office.raises = TimeoutError("no reply")
    with pytest.raises(Pending):
        office.live(model, saver=saver)
    office.people.grant(KEY)
    for _ in range(2):
        with pytest.raises(Pending, match="nobody knows"):
            office.live(model, Command(resume=True), saver=saver)
    (waiting,) = office.agent(model, saver).get_state(CONFIG).interrupts
    assert waiting.value["state"] == "in_doubt"
    assert (len(office.ran), office.state) == (1, ActionState.UNRESOLVED)
    office.people.saw_it(KEY)
    state = office.live(model, Command(resume=True), saver=saver)
    assert "evidence" in _given(state)["p1"]
    assert (len(office.ran), office.run_state) == (1, RunState.COMPLETED)


# -- without them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_without_interrupts_what_it_waits_for_is_raised(office: Office, kind: str) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    for _ in range(2):
        with pytest.raises(ApprovalPending) as caught:
            office.live(model, kind=kind)
        assert caught.value.action_key == KEY
    assert (office.ran, office.run_state, model.asked) == ([], RunState.SUSPENDED, 1)
    office.people.grant(KEY)
    for _ in range(2):
        assert _given(office.live(model, kind=kind)) == {"p1": "refunded 3000 of 17"}
    assert (len(office.ran), model.asked) == (1, 2)


def test_a_doubt_is_raised_and_what_a_tool_node_makes_of_an_error_is_no_evidence(office: Office) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    office.raises = ValueError("connection reset")
    with pytest.raises(ApprovalPending):
        office.live(model, kind="graph")
    office.people.grant(KEY)
    for _ in range(2):
        with pytest.raises(EffectInDoubt):
            office.live(model, kind="graph")
    assert (len(office.ran), office.state) == (1, ActionState.UNRESOLVED)


FAILED: Any = ToolMessage(content="no such order", tool_call_id="p1", status="error", artifact={"code": 404})


@pytest.mark.parametrize(
    "result", [FAILED, [FAILED], Command(update={"messages": [FAILED]})], ids=["message", "list", "command"]
)
def test_an_error_in_whatever_form_a_tool_gives_it_is_no_evidence(office: Office, result: Any) -> None:
    for granted in (False, True):
        recorder = Recorder(effects={"refund": EFFECT}, run=None)
        request = ToolCallRequest(
            tool_call={"name": "refund", "args": dict(REFUND[2]), "id": "p1", "type": "tool_call"},
            tool=None,
            state={},
            runtime=cast("Any", None),
        )
        ledger = RunLedger("ticket", office.people.db_path, effects=office.people.settings)
        with ledger, pytest.raises(EffectInDoubt if granted else ApprovalPending), ledger.run():
            ToolHook(recorder, interrupts=False).call(request, lambda _: result)
        if not granted:
            office.people.grant(KEY)


def test_an_effect_that_interrupts_in_its_body_is_not_run_again(office: Office, saver: Any) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    office.asks = True
    with pytest.raises(ApprovalPending):
        office.live(model)
    office.people.grant(KEY)
    for asked in (None, Command(resume=True), Command(resume=True)):
        with pytest.raises(Pending, match="nobody knows"):
            office.live(model, asked, saver=saver)
    assert (len(office.ran), office.state) == (1, ActionState.UNRESOLVED)


def test_two_runs_that_want_the_same_effect_share_it(office: Office) -> None:
    model = scripted(office.folder, calls(REFUND, ("p2", "look", {})), "done")
    with pytest.raises(ApprovalPending):
        office.live(model)
    office.people.grant(KEY)
    first = office.live(model)
    with RunLedger("another", office.people.db_path, effects=office.people.settings) as ledger, ledger.run():
        other = office.agent(scripted(office.folder, calls(REFUND), "done")).invoke({"messages": [HumanMessage("go")]})
    assert _given(other)["p1"] == _given(first)["p1"] == "refunded 3000 of 17"
    assert len(office.ran) == 1


@pytest.mark.parametrize("cents", [3_000, 9_999])
def test_what_was_approved_is_what_the_tool_gets(office: Office, cents: int) -> None:
    """Also None, which a model wrote on purpose; and other arguments under the key are refused."""
    wrote = {"order": 17, "cents": 3_000, "note": None}
    model = scripted(office.folder, calls(("p1", "refund", wrote)), "done")
    with pytest.raises(ApprovalPending):
        office.live(model)
    office.people.grant(KEY)
    if cents == 3_000:
        office.live(model)
        assert office.ran == [wrote]
        return
    with RunLedger("another", office.people.db_path, effects=office.people.settings) as ledger, ledger.run():
        changed = scripted(office.folder, calls(("p9", "refund", {**wrote, "cents": cents})), "well")
        state = office.agent(changed).invoke({"messages": [HumanMessage("go")]})
    assert "another request" in _given(state)["p9"]
    assert office.ran == []


def test_arguments_that_name_no_effect_are_told_to_the_model(office: Office) -> None:
    model = scripted(office.folder, calls(("p1", "refund", {"order": 1.5, "cents": 1})), "well")
    assert "names no effect" in _given(office.live(model))["p1"]
    assert office.ran == []


def _key_that_fails(**arguments: Any) -> str:
    return str(arguments["order"].number)


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_a_key_that_cannot_be_made_is_told_to_the_model(office: Office, kind: str) -> None:
    office.effect = ToolEffect(key=_key_that_fails, approval="finance")
    model = scripted(office.folder, calls(REFUND), "well")
    for _ in range(2):
        said = office.live(model, kind=kind)["messages"]
        assert [m.status for m in said if m.type == "tool"] == ["error"]
        assert "names no effect: AttributeError" in said[-2].content
    assert (office.ran, office.run_state) == ([], RunState.COMPLETED)


def test_what_holds_a_call_up_is_told_to_who_resumes(office: Office, saver: Any) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    with pytest.raises(Pending):
        office.live(model, saver=saver)
    office.people.grant(KEY)
    office.effect = ToolEffect(key="refund:{order}", approval="finance", audience="tool:of-another-name")
    with pytest.raises(Pending, match="another target"):
        office.live(model, Command(resume=True), saver=saver)
    (waiting,) = office.agent(model, saver).get_state(CONFIG).interrupts
    assert (waiting.value["state"], waiting.value["code"]) == ("held_up", "other_terms")
    assert "`arl actions successor " in waiting.value["message"]
    assert (office.ran, office.run_state, office.state) == ([], RunState.SUSPENDED, ActionState.AVAILABLE)


def test_an_async_tool_runs_once_on_its_loop_and_cancelled_it_is_a_doubt(office: Office) -> None:
    model = scripted(office.folder, calls(REFUND), "done")

    async def live(act: Any = None) -> Any:
        async with asyncio.timeout(30):
            with RunLedger("ticket", office.people.db_path, effects=office.people.settings) as ledger:
                async with ledger.run():
                    middleware = [ledger_middleware(effects={"refund": office.effect})]
                    tools = office.tools(is_async=True)
                    if act is not None:
                        tools[0].coroutine = act
                    agent = create_agent(model, tools, middleware=middleware)
                    return await agent.ainvoke({"messages": [HumanMessage("go")]})

    with pytest.raises(ApprovalPending):
        asyncio.run(live())
    office.people.grant(KEY)

    async def cancelled() -> None:
        begun = asyncio.Event()

        async def endless(order: int, cents: int, note: str | None = "none given") -> str:
            office.ran.append({})
            begun.set()
            await asyncio.Event().wait()
            return ""

        task = asyncio.create_task(live(endless))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert (len(office.ran), office.state) == (1, ActionState.UNRESOLVED)
    with pytest.raises(EffectInDoubt):
        asyncio.run(live())
    assert len(office.ran) == 1


def test_an_async_tool_executes_once(office: Office) -> None:
    model = scripted(office.folder, calls(REFUND), "done")

    async def live() -> Any:
        with RunLedger("ticket", office.people.db_path, effects=office.people.settings) as ledger:
            async with ledger.run():
                middleware = [ledger_middleware(effects={"refund": office.effect})]
                agent = create_agent(model, office.tools(is_async=True), middleware=middleware)
                return await agent.ainvoke({"messages": [HumanMessage("go")]})

    with pytest.raises(ApprovalPending):
        asyncio.run(live())
    office.people.grant(KEY)
    for _ in range(2):
        assert _given(asyncio.run(live())) == {"p1": "refunded 3000 of 17"}
    assert len(office.ran) == 1


# -- effects that build requests ------------------------------------------------------------------------------------


def test_an_effect_that_builds_a_request_is_sent_in_the_place_of_the_tool(office: Office) -> None:
    model = scripted(office.folder, calls(REFUND), "done")
    with serving(answer(201, b'{"refund":"r-1"}')) as server:

        def build(order: int, cents: int) -> Request:
            return Request.json("POST", "/refunds", {"order": order, "cents": cents})

        office.effect = Effect(build, name="refund", key="refund:{order}", target=http(server.url), approval="finance")
        with pytest.raises(ApprovalPending):
            office.live(model)
        office.people.grant(KEY)
        for _ in range(2):
            assert _given(office.live(model)) == {"p1": '{"refund":"r-1"}'}
        assert len(server.requests) == 1
    assert office.ran == []


def test_what_is_no_effect_is_misuse() -> None:
    async def build() -> Request:
        raise AssertionError

    for bad in ("refund:{order}", Effect(build, name="x", key="k", target=http("http://127.0.0.1:1"), approval="f")):
        with pytest.raises(Misuse) as caught:
            ledger_middleware(effects={"refund": bad})  # type: ignore[dict-item]
        assert caught.value.code == "bad_effect"
    with pytest.raises(Misuse):
        ledger_middleware(effects={"a tool": EFFECT})
