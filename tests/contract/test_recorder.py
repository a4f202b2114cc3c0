"""What adapters share: tools side by side fail each for itself, waiting calls hold models back, and streams."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Diverged, Pending, RunLedger, RunState, Vetoed
from agent_run_ledger.adapters.finite import finite
from agent_run_ledger.adapters.gate import Answer, CallWaits, Permission, ToolRequest
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.errors import Unstorable
from agent_run_ledger.testing import check_ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[RunLedger]:
    with RunLedger(db_path=tmp_path / "ledger.db") as ledger:
        yield ledger
    check_ledger(tmp_path / "ledger.db")


class Bodies:
    """Counts, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken = True

    def tool(self, name: str) -> str:
        self.ran.append(name)
        if name == "left" and self.broken:
            raise OSError("the left one is broken")
        return f"{name} done"

    def ask(self) -> dict[str, Any]:
        self.ran.append("model")
        return {"text": "well", "usage": {"input_tokens": 1, "output_tokens": 1}}


def test_a_safe_tool_that_failed_beside_another_one_is_tried_again(ledger: RunLedger) -> None:
    bodies = Bodies()

    def live() -> list[str]:
        recorder = Recorder(tools={"*": {"safe": True}})
        with ledger.run("side-by-side"):
            recorder.model("model", {"messages": ["go"]}, bodies.ask)
            found: list[str] = []
            failure: Exception | None = None
            for name in ("left", "right"):
                try:
                    made = lambda name=name: bodies.tool(name)  # noqa: E731
                    found.append(recorder.tool(name, {}, made, call_id=f"call-{name}"))
                except OSError as error:
                    failure = error
            if failure is not None:
                raise failure
            recorder.model("model", {"messages": ["go", *found]}, bodies.ask)
            return found

    with pytest.raises(OSError, match="the left one"):
        live()
    bodies.broken = False
    assert live() == ["left done", "right done"]
    assert bodies.ran == ["model", "left", "right", "left", "model"]
    assert live() == ["left done", "right done"]
    assert len(bodies.ran) == 5


def test_an_error_that_the_model_was_told_of_is_given_again(ledger: RunLedger) -> None:
    bodies = Bodies()

    def live() -> str:
        recorder = Recorder(tools={"*": {"safe": True}})
        with ledger.run("told"):
            try:
                found = str(recorder.tool("left", {}, lambda: bodies.tool("left"), call_id="call-1"))
            except OSError as error:
                found = str(error)
            recorder.model("model", {"messages": [found]}, bodies.ask)
            if bodies.broken:
                raise KeyboardInterrupt
            return found

    with pytest.raises(KeyboardInterrupt):
        live()
    bodies.broken = False
    assert live() == "the left one is broken"
    assert bodies.ran == ["left", "model"]


def test_no_model_is_asked_while_a_call_waits_and_the_next_attempt_asks_the_gate_anew(ledger: RunLedger) -> None:
    bodies, said = Bodies(), [Permission.PENDING]
    bodies.broken = False

    def gate(request: ToolRequest) -> Answer:
        return Answer(permission=said[0], approval_id="approval-7", reason="ask Ada")

    recorder = Recorder(gate=gate)  # one for both attempts, as programs make it

    def live() -> str:
        with ledger.run("waits"):
            recorder.model("model", {"messages": ["go"]}, bodies.ask)
            try:
                found = str(recorder.tool("left", {}, lambda: bodies.tool("left"), call_id="call-1"))
            except Pending as error:
                found = str(error)  # as a framework does that makes messages of errors
            recorder.model("model", {"messages": ["go", found]}, bodies.ask)
            return found

    for _ in range(2):
        with pytest.raises(Pending, match=r"approval-7.*ask Ada"):
            live()
        assert bodies.ran == ["model"]
        assert ledger.bind("waits").state is RunState.SUSPENDED
    said[0] = Permission.ALLOWED
    assert live() == "left done"
    assert bodies.ran == ["model", "left", "model"]


def test_a_stream_is_recorded_when_it_is_taken_to_its_end(ledger: RunLedger) -> None:
    asked: list[str] = []

    def chunks() -> Iterator[str]:
        asked.append("model")
        yield from ("forty", "-", "two")

    for taken in (1, 3, 3):
        recorder = Recorder()
        try:
            with ledger.run("stream"):
                stream = recorder.stream("model", {"messages": ["?"]}, chunks)
                assert [next(stream) for _ in range(taken)] == ["forty", "-", "two"][:taken]
                assert taken == 1 or next(stream, None) is None
                if taken == 1:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    assert asked == ["model", "model"]


def _stands_in(request: Mapping[str, Any], answer: Any) -> bool:
    return answer["text"] in request["messages"]


def test_a_framework_that_goes_on_from_its_own_checkpoint_does_not_ask_for_earlier_answers(ledger: RunLedger) -> None:
    bodies = Bodies()

    def ask(*messages: str) -> None:
        recorder.model("model", {"messages": [*messages]}, bodies.ask, went_on_from=_stands_in)

    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        _cut(ledger, lambda: ask("go"))
    recorder = Recorder()
    with pytest.raises(Diverged, match=r"messages\[0\] differs"), ledger.run("checkpoint"):
        ask("go elsewhere")
    assert bodies.ran == ["model"]
    recorder = Recorder()
    with ledger.run("checkpoint"):
        ask("go", "well", "and then?")
    assert bodies.ran == ["model", "model"]
    account = ledger.bind("checkpoint").usage()
    assert account is not None
    assert (account.total.spent.calls, account.total.restored.calls) == (2, 1)


def _cut(ledger: RunLedger, act: Callable[[], object]) -> None:
    with ledger.run("checkpoint"):
        act()
        raise KeyboardInterrupt


def test_a_veto_of_the_gate_is_on_record_and_stands(ledger: RunLedger) -> None:
    said, asked, bodies = [Permission.DENIED], list[ToolRequest](), Bodies()

    def gate(request: ToolRequest) -> Answer:
        asked.append(request)
        return Answer(permission=said[-1], reason="not today")

    def live() -> None:
        recorder = Recorder(gate=gate)
        assert recorder.gated
        with ledger.run("vetoed"):
            assert recorder.ask("left", {"at": 1}, call_id="call-1").permission is said[-1]
            recorder.tool("left", {"at": 1}, lambda: bodies.tool("left"), call_id="call-1")

    for verdict in (Permission.DENIED, Permission.ALLOWED):
        said.append(verdict)
        with pytest.raises(Vetoed, match="not today"):
            live()
    assert bodies.ran == []
    assert {(one.run_id, one.tool, one.call_id) for one in asked} == {("vetoed", "left", "call-1")}
    assert not Recorder().gated


def test_a_run_that_was_given_is_recorded_in_from_anywhere_and_the_gate_hears_of_the_one_that_is(
    ledger: RunLedger,
) -> None:
    asked = list[str]()

    def gate(request: ToolRequest) -> Answer:
        asked.append(request.run_id)
        return Answer(permission=Permission.ALLOWED)

    def call(recorder: Recorder) -> None:
        recorder.tool("left", {}, lambda: "done", call_id="call-1")

    with ledger.run("first") as run:
        first = Recorder(gate=gate, run=run)
        thread = threading.Thread(target=lambda: call(Recorder(gate=gate, run=run)))
        thread.start()
        thread.join()
    with ledger.run("second"):
        call(first)
    assert asked == ["first", "second"]
    for name in asked:
        with ledger.run(name):
            assert Recorder().tool("left", {}, lambda: "again", call_id="call-1") == "done"


def test_a_framework_that_swallows_pending_everywhere_does_not_complete_the_run(ledger: RunLedger) -> None:
    said, bodies = [Permission.PENDING], Bodies()

    def agent() -> None:
        recorder = Recorder(gate=lambda _: Answer(permission=said[-1], approval_id="a-1"))
        with contextlib.suppress(Pending):
            recorder.tool("left", {}, lambda: bodies.tool("right"), call_id="call-1")
        with contextlib.suppress(Pending):
            Recorder().model("model", {"messages": ["go"]}, bodies.ask)  # another recorder holds back too

    with pytest.raises(CallWaits, match="a-1"), ledger.run("swallowed"):
        agent()
    assert (ledger.bind("swallowed").state, bodies.ran) == (RunState.SUSPENDED, [])
    said.append(Permission.ALLOWED)
    with ledger.run("swallowed"):
        agent()
    assert bodies.ran == ["right", "model"]


def test_nobody_is_asked_of_a_call_that_the_rules_deny(ledger: RunLedger) -> None:
    asked, bodies, denied = [""], Bodies(), {"left": {"deny": "never here"}}

    def gate(request: ToolRequest) -> Answer:
        asked.append(request.tool)
        return Answer(permission=Permission.PENDING, approval_id="a-1")

    def call(recorder: Recorder) -> None:
        recorder.tool("left", {}, lambda: bodies.tool("left"), call_id="call-1")

    with ledger.run("denied"):
        with contextlib.suppress(Pending):
            call(Recorder(gate=gate))
        assert asked == ["", "left"]
        recorder = Recorder(gate=gate, tools=denied)
        assert recorder.ask("left", {}, call_id="call-1").permission is Permission.DENIED
        with pytest.raises(Vetoed, match="never here"):
            call(recorder)
        recorder.model("model", {"messages": ["go"]}, bodies.ask)  # it waits no more
    assert (asked, bodies.ran) == (["", "left"], ["model"])
    assert ledger.bind("denied").state is RunState.COMPLETED


@pytest.mark.parametrize("call_id", ["same", ""])
def test_a_call_that_waits_is_not_forgotten_for_another_one_with_its_id(ledger: RunLedger, call_id: str) -> None:
    bodies = Bodies()

    def gate(request: ToolRequest) -> Answer:
        waits = request.arguments["to"] == "Ada"
        return Answer(permission=Permission.PENDING if waits else Permission.ALLOWED, approval_id="a-1")

    def agent() -> None:
        recorder = Recorder(gate=gate)
        for to in ("Ada", "Grace"):
            with contextlib.suppress(Pending):
                recorder.tool("pay", {"to": to}, lambda: bodies.tool("right"), call_id=call_id)
        with contextlib.suppress(Pending):
            recorder.model("model", {"messages": ["go"]}, bodies.ask)

    with pytest.raises(CallWaits, match="a-1"), ledger.run("two"):
        agent()
    assert (ledger.bind("two").state, bodies.ran) == (RunState.SUSPENDED, ["right"])


def _told_of(request: Mapping[str, Any], call_id: str) -> bool:
    return call_id in request["messages"]


def test_a_run_whose_framework_waits_by_itself_is_suspended_unless_it_goes_on(ledger: RunLedger) -> None:
    waits, bodies = Answer(permission=Permission.PENDING, approval_id="a-1", reason="ask Ada"), Bodies()
    with pytest.raises(CallWaits, match=r"a-1.*ask Ada"), ledger.run("elsewhere"):
        Recorder(gate=lambda _: waits).waits_elsewhere("left", {}, "call-1", waits)
    assert ledger.bind("elsewhere").state is RunState.SUSPENDED
    with ledger.run("elsewhere"):
        recorder = Recorder(gate=lambda _: waits)
        recorder.waits_elsewhere("left", {}, "call-1", waits)
        recorder.model("model", {"messages": ["call-1"]}, bodies.ask, told_of=_told_of)
    assert ledger.bind("elsewhere").state is RunState.COMPLETED


@pytest.mark.parametrize(("call_id", "told_of"), [("call-1", _told_of), ("", _told_of), ("call-1", None)])
def test_another_question_does_not_end_the_wait_of_a_framework(
    ledger: RunLedger, call_id: str, told_of: Callable[[Mapping[str, Any], str], bool] | None
) -> None:
    waits, bodies = Answer(permission=Permission.PENDING, approval_id="a-1"), Bodies()

    def agents() -> None:
        recorder = Recorder(gate=lambda _: waits)
        recorder.waits_elsewhere("left", {}, call_id, waits)
        for one in (recorder, Recorder()):
            one.model("model", {"messages": ["go", ""]}, bodies.ask, told_of=told_of)

    with pytest.raises(CallWaits, match="a-1"), ledger.run("beside"):
        agents()
    assert (ledger.bind("beside").state, bodies.ran) == (RunState.SUSPENDED, ["model", "model"])


def test_a_call_that_is_made_waits_no_more_in_whatever_order_its_arguments_come(ledger: RunLedger) -> None:

    def agent(waits_for: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        recorder = Recorder()
        recorder.waits_elsewhere("left", waits_for, "call-1", Answer(permission=Permission.PENDING))
        recorder.tool("left", made, lambda: "done", call_id="call-1")

    with ledger.run("order"):
        agent({"to": "Ada", "of": [1, 2]}, {"of": [1, 2], "to": "Ada"})
    assert ledger.bind("order").state is RunState.COMPLETED
    with pytest.raises(CallWaits, match=r"waits for approval(?! ')"), ledger.run("type"):
        agent({"of": 1}, {"of": 1.0})


def test_what_cannot_be_stored_is_refused_and_ends_no_wait_of_another_call(ledger: RunLedger) -> None:
    circle, waits = list[Any](), Answer(permission=Permission.PENDING, approval_id="a-1")
    circle.append(circle)

    def agent() -> None:
        recorder = Recorder()
        recorder.waits_elsewhere("left", {"a": circle}, "call-1", waits)
        with pytest.raises(Unstorable, match="contains itself"):
            recorder.tool("left", {"a": circle}, lambda: "no", call_id="call-1")

    with pytest.raises(CallWaits, match="a-1"), ledger.run("circle"):
        agent()
    assert ledger.bind("circle").state is RunState.SUSPENDED


def test_what_looks_like_a_number_that_is_none_is_another_call(ledger: RunLedger) -> None:
    with ledger.run("alike"):
        recorder = Recorder()
        with pytest.raises(Vetoed, match="NaN or infinite"):
            recorder.tool("pay", {"amount": float("nan")}, lambda: "no", call_id="same")
        for alike in (finite({"amount": float("nan")}), {"amount": {"not a number": "nan"}}):
            assert recorder.tool("pay", alike, lambda: "ran", call_id="same") == "ran"


def test_one_id_for_several_calls_answers_each_from_its_own_record(ledger: RunLedger) -> None:
    bodies = Bodies()
    calls = (("right", {"at": 1}), ("right", {"at": 2}), ("far", {"at": 1}), ("right", {"at": 1}))

    def live() -> list[str]:
        recorder, told = Recorder(), list[str]()
        with ledger.run("one-id"):
            for name, arguments in calls:
                recorder.model("model", {"messages": ["go", *told]}, bodies.ask)
                made = lambda name=name, at=arguments["at"]: f"{bodies.tool(name)} at {at}"  # noqa: E731
                told.append(recorder.tool(name, arguments, made, call_id="same"))
        return told

    expected = ["right done at 1", "right done at 2", "far done at 1", "right done at 1"]
    assert live() == expected
    ran = [*bodies.ran]
    assert [name for name in ran if name != "model"] == ["right", "right", "far"]
    assert live() == expected
    assert bodies.ran == ran


def test_one_id_with_arguments_that_are_not_on_record_is_a_divergence(ledger: RunLedger) -> None:
    bodies = Bodies()

    def live(at: int) -> None:
        with ledger.run("other"):
            Recorder().tool("right", {"at": at}, lambda: bodies.tool("right"), call_id="same")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live(1)
    with pytest.raises(Diverged, match="at"):
        live(2)
    assert bodies.ran == ["right"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_a_recorded_error_and_nobody_is_asked(ledger: RunLedger, number: float) -> None:
    asked, bodies = list[str](), Bodies()

    def gate(request: ToolRequest) -> Answer:
        asked.append(request.call_id)
        return Answer(permission=Permission.ALLOWED)

    def live() -> str:
        recorder = Recorder(gate=gate)
        with ledger.run("nan"):
            with pytest.raises(Vetoed, match="NaN or infinite") as refused:
                recorder.tool("pay", {"to": ["Ada", {"amount": number}]}, lambda: bodies.tool("pay"), call_id="c")
            recorder.model("model", {"messages": [refused.value.message]}, bodies.ask)
            return str(recorder.tool("pay", {"amount": 4.5}, lambda: bodies.tool("right"), call_id="d"))

    assert [live() for _ in range(2)] == ["right done"] * 2
    assert (bodies.ran, asked) == (["model", "right"], ["d"] * 2)


def test_a_gate_and_words_call_a_tool_by_its_own_name(ledger: RunLedger) -> None:
    asked = list[str]()

    def gate(request: ToolRequest) -> Answer:
        asked.append(request.tool)
        return Answer(permission=Permission.DENIED, reason="not today")

    with ledger.run("names"):
        recorder = Recorder(gate=gate, called=lambda step: step.removeprefix("mcp:"))
        with pytest.raises(Vetoed, match=r"the call of 'run\.x' was refused: not today"):
            recorder.tool("mcp:run.x", {}, lambda: "no", call_id="c")
    assert asked == ["run.x"]
