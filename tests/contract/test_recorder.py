"""What adapters share: tools side by side fail each for itself, waiting calls hold models back, and streams."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Diverged, Pending, RunLedger, RunState, Vetoed
from agent_run_ledger.adapters.gate import Answer, CallWaits, Permission, ToolRequest
from agent_run_ledger.adapters.recorder import Recorder
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
