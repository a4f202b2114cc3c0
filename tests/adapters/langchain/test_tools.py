"""What a recorded tool gives the graph: messages, artifacts and commands as they were, errors as errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from agent_run_ledger import ClassGone, RunLedger, RunState, Unstorable
from agent_run_ledger.adapters.langchain import ledger_middleware, ledger_tool_node
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.testing import check_ledger, recorded_calls
from tests.adapters.langchain.scripted import calls, scripted


class State(MessagesState):
    shelf: int


class UserModel(BaseModel):
    name: str


@dataclass
class Late:
    """The case of the public report: a field that the constructor does not take."""

    a: int
    b: int = field(init=False)

    def __post_init__(self) -> None:
        self.b = self.a * 2


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    with RunLedger(db_path=tmp_path / "ledger.db") as ledger:
        yield ledger
    check_ledger(tmp_path / "ledger.db")


def live(ledger: RunLedger, tools: list[Any], *asked: AIMessage, rules: Any = None, **settings: Any) -> dict[str, Any]:
    """Run a graph of a tool node alone, in the ledger's run."""
    node = ledger_tool_node(tools, recorder=Recorder(tools=rules), **settings)
    builder = StateGraph(State)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    with ledger.run("tools"):
        return dict(builder.compile().invoke({"messages": [HumanMessage("go"), *asked], "shelf": 0}))


def _twice(ledger: RunLedger, make: Callable[[list[str]], Any], **settings: Any) -> tuple[Any, Any, list[str]]:
    """The last messages of a live and a restored call, and the bodies that ran."""
    ran: list[str] = []
    asked = calls(("call-1", "look", {"at": "shelf 7"}))
    found = [live(ledger, [make(ran)], asked, **settings)["messages"][-1] for _ in range(2)]
    return found[0], found[1], ran


def test_a_text_is_recorded_as_the_text_alone(ledger: RunLedger) -> None:
    def make(ran: list[str]) -> Any:
        @tool
        def look(at: str) -> str:
            """Look."""
            ran.append(at)
            return f"{at} is empty"

        return look

    first, again, ran = _twice(ledger, make)
    assert ran == ["shelf 7"]
    assert (first.content, first.tool_call_id, first.status) == ("shelf 7 is empty", "call-1", "success")
    assert again.model_dump(exclude={"id"}) == first.model_dump(exclude={"id"})


def test_content_blocks_and_artifacts_are_restored_type_exact(ledger: RunLedger) -> None:
    def make(ran: list[str]) -> Any:
        @tool(response_format="content_and_artifact")
        def look(at: str) -> tuple[Any, Any]:
            """Look."""
            ran.append(at)
            return [{"type": "text", "text": at}], {"late": Late(3), "user": UserModel(name="Ada")}

        return look

    first, again, ran = _twice(ledger, make)
    assert ran == ["shelf 7"]
    assert again.content == first.content == [{"type": "text", "text": "shelf 7"}]
    assert again.artifact == {"late": Late(3), "user": UserModel(name="Ada")}
    assert type(again.artifact["late"]) is Late
    assert again.artifact["late"].b == 6
    assert type(again.artifact["user"]) is UserModel


def test_an_artifact_without_a_stored_form_is_refused_loudly(ledger: RunLedger) -> None:
    @tool(response_format="content_and_artifact")
    def look(at: str) -> tuple[Any, Any]:
        """Look."""
        return at, {"handle": (n for n in range(3))}

    with pytest.raises(Unstorable, match=r"handle"):
        live(ledger, [look], calls(("call-1", "look", {"at": "x"})))


def test_an_artifact_whose_class_is_gone_is_an_error_and_nothing_runs_again(ledger: RunLedger) -> None:
    ran: list[str] = []
    module = ModuleType("arl_gone_module")
    exec("from pydantic import BaseModel\nclass Gone(BaseModel):\n    name: str\n", module.__dict__)
    module.Gone.__module__ = "arl_gone_module"
    sys.modules["arl_gone_module"] = module

    @tool(response_format="content_and_artifact")
    def look(at: str) -> tuple[Any, Any]:
        """Look."""
        ran.append(at)
        return at, module.Gone(name="Ada")

    asked = calls(("call-1", "look", {"at": "x"}))
    with pytest.raises(KeyboardInterrupt):
        _cut(ledger, look, asked)
    del sys.modules["arl_gone_module"]
    with pytest.raises(ClassGone, match="Gone"):
        live(ledger, [look], asked)
    assert ran == ["x"]
    sys.modules["arl_gone_module"] = module
    assert live(ledger, [look], asked)["messages"][-1].artifact == module.Gone(name="Ada")
    assert ran == ["x"]


def _cut(ledger: RunLedger, look: Any, asked: AIMessage) -> None:
    """Run the tool, and leave the run as a dying process does."""
    with ledger.run("tools"):
        _invoke(ledger_tool_node([look], recorder=Recorder()), asked)
        raise KeyboardInterrupt


def _invoke(node: Any, asked: AIMessage) -> Any:
    builder = StateGraph(State)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    return builder.compile().invoke({"messages": [asked], "shelf": 0})


def test_a_command_is_restored_with_its_messages_and_where_it_goes(ledger: RunLedger) -> None:
    ran: list[str] = []

    @tool
    def move(to: int, call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Move on."""
        ran.append(str(to))
        message = ToolMessage(f"at {to}", tool_call_id=call_id, name="move")
        return Command(update={"messages": [message], "shelf": to}, goto="done")

    def build() -> Any:
        builder = StateGraph(State)
        builder.add_node("tools", ledger_tool_node([move], recorder=Recorder()))
        builder.add_node("done", lambda state: {"messages": [HumanMessage(f"shelf {state['shelf']}")]})
        builder.add_edge(START, "tools")
        builder.add_edge("done", END)
        return builder.compile()

    found: list[Any] = []
    for _ in range(2):
        with ledger.run("command"):
            state = build().invoke({"messages": [calls(("call-1", "move", {"to": 7}))], "shelf": 0})
            found.append([(message.type, message.content) for message in state["messages"]][1:])
            assert state["shelf"] == 7
    assert found[0] == found[1] == [("tool", "at 7"), ("human", "shelf 7")]
    assert ran == ["7"]


@pytest.mark.parametrize("swallow", [True, False])
def test_what_a_tool_raises_is_an_error_on_record(ledger: RunLedger, tmp_path: Path, swallow: bool) -> None:
    ran: list[str] = []

    @tool
    def look(at: str) -> str:
        """Look."""
        ran.append(at)
        raise OSError("the lamp is broken")

    asked = calls(("call-1", "look", {"at": "x"}))
    if swallow:
        for _ in range(2):
            message = live(ledger, [look], asked, handle_tool_errors=True)["messages"][-1]
            assert message.status == "error"
            assert "the lamp is broken" in message.content
    else:
        for _ in range(2):
            with pytest.raises(OSError, match="the lamp is broken"):
                live(ledger, [look], asked, handle_tool_errors=False)
        assert ledger.bind("tools").state is RunState.FAILED
    assert ran == ["x"], "a tool that is not safe ran again after its error"
    errors = recorded_calls(tmp_path / "ledger.db", kinds=(RecordKind.ERROR,))
    assert [one.name for one in errors] == ["look"]


def test_a_forbidden_tool_is_not_called_and_the_model_is_told(ledger: RunLedger) -> None:
    ran: list[str] = []

    @tool
    def look(at: str) -> str:
        """Look."""
        ran.append(at)
        return at

    asked = calls(("call-1", "look", {"at": "x"}))
    for _ in range(2):
        message = live(ledger, [look], asked, rules={"look": {"deny": "only by day"}})["messages"][-1]
        assert (message.status, message.content) == ("error", "tool 'look' may not be called: only by day")
    assert ran == []


def test_a_tool_that_nobody_has_is_told_to_the_model(ledger: RunLedger) -> None:
    @tool
    def look(at: str) -> str:
        """Look."""
        return at

    message = live(ledger, [look], calls(("call-1", "fly", {"to": "x"})))["messages"][-1]
    assert message.status == "error"
    assert "fly is not a valid tool" in message.content


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_an_error_of_its_call_that_the_model_is_told_of(
    ledger: RunLedger, tmp_path: Path, number: float
) -> None:
    ran = list[float]()

    @tool
    def pay(amount: float) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    said, asked = [], []
    for _ in range(2):
        first, second = calls(("c1", "pay", {"amount": number})), calls(("c2", "pay", {"amount": 4.5}))
        model = scripted(tmp_path, first, second, "done")
        with ledger.run("numbers"):
            state = create_agent(model, [pay], middleware=[ledger_middleware()]).invoke({"messages": [("user", "go")]})
        said.append([message.content for message in state["messages"][1:] if message.content])
        asked.append(model.asked)
    assert said[0] == said[1]
    assert "NaN or infinite" in said[0][0]
    assert said[0][1:] == ["paid", "done"]
    assert (ran, asked) == ([4.5], [3, 3])


def test_one_call_id_for_several_calls_gives_each_its_own_result(ledger: RunLedger, tmp_path: Path) -> None:
    ran = list[int]()

    @tool
    def look(shelf: int) -> str:
        """Look."""
        ran.append(shelf)
        return f"shelf {shelf}"

    for _ in range(2):
        model = scripted(tmp_path, *(calls(("same", "look", {"shelf": shelf})) for shelf in (1, 2)), "done")
        with ledger.run("one-id"):
            state = create_agent(model, [look], middleware=[ledger_middleware()]).invoke({"messages": [("user", "go")]})
        assert [one.content for one in state["messages"] if one.type == "tool"] == ["shelf 1", "shelf 2"]
        assert ran == [1, 2]
