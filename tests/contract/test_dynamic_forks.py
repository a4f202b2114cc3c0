"""Forks of dynamic runs: what was recorded before a call is restored, that call and what follows is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Misuse, Refused, RunLedger
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.call_story import tell_calls
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.fork import fork_run
from agent_run_ledger.testing import check_ledger
from tests.contract.dynamic_kit import Dynamic, open_context, resolve, unknowns
from tests.contract.run_kit import row_of, store_of, stored_of


class Agent:
    """An agent whose steps note what ran; `fails` and `dies` name steps, `stops_after` ends a run early."""

    def __init__(self, db: Path, *, prompt: str = "v1") -> None:
        self.ledger = RunLedger(run_id="r1", db_path=db)
        self.prompt = prompt
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.dies: set[str] = set()
        step, tool = self.ledger.step, self.ledger.tool

        @step
        def look_up(what: str) -> str:
            return self.did("look_up", f"found {what}")

        @step
        def plan(topic: str) -> str:
            found = look_up(topic)
            return self.did("plan", f"plan on {found}")

        @tool
        def send_mail(to: str) -> str:
            return self.did("send_mail", f"sent to {to}")

        @step
        def write(prompt: str, about: object) -> str:
            return self.did("write", f"{prompt} about {about}")

        @step
        def outer(what: str) -> str:
            with self.ledger.run(topic=what):
                look_up("inner")
            return self.did("outer", what)

        @step
        def check(what: str) -> str:
            return self.did("check", what)

        self.outer, self.check = outer, check
        self.look_up, self.plan, self.send_mail, self.write = look_up, plan, send_mail, write

    def did(self, name: str, value: str) -> str:
        self.ran.append(name)
        if name in self.dies:
            raise KeyboardInterrupt
        if name in self.fails:
            raise ValueError(name)
        return value

    def go(self, run_id: str = "r1") -> Any:
        self.ran.clear()
        with self.ledger.bind(run_id).run(topic="rivers") as run:
            token = run.random()
            planned = self.plan("rivers")
            pages = run.map(lambda n: self.look_up(f"page {n}"), range(3))
            try:
                sent: object = self.send_mail("ann")
            except ValueError as error:
                sent = repr(error)
            try:
                self.check("it")
            except ValueError:
                sent = f"{sent}, unchecked"
            written = self.write(self.prompt, sent)
            self.look_up("at the end")
            return token, planned, pages, written


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def agent(db: Path) -> Iterator[Agent]:
    made = Agent(db)
    yield made
    made.ledger.close()
    check_ledger(db)


def first(agent: Agent, name: str, kind: RecordKind = RecordKind.RESULT) -> int:
    return next(one.record_id for one in stored_of(agent.ledger, kind) if one.record.name == name)


def last(agent: Agent, name: str) -> int:
    return [one.record_id for one in stored_of(agent.ledger, RecordKind.RESULT) if one.record.name == name][-1]


@pytest.mark.parametrize("by", ["step", "call", "text"])
def test_a_fork_restores_what_was_before_the_call_and_makes_the_rest(agent: Agent, by: str) -> None:
    token, planned, pages, written = agent.go()
    assert written == "v1 about sent to ann"
    agent.prompt = "v2"
    call: Any = first(agent, "write")
    where: dict[str, Any] = {"from_step": agent.write} if by == "step" else {"from_call": call}
    if by == "text":
        where = {"from_call": str(call)}
    agent.ledger.fork("r1", new_run_id="f", **where)
    assert row_of(agent.ledger, "f").state is RunState.SUSPENDED
    assert agent.go("f") == (token, planned, pages, "v2 about sent to ann")
    assert agent.ran == ["write", "look_up"]
    assert agent.go("f")[3] == "v2 about sent to ann"
    assert agent.ran == []
    agent.prompt = "v1"
    assert agent.go()[3] == "v1 about sent to ann"
    assert agent.ran == []


def test_a_fork_within_a_call_makes_the_call_around_it_again(agent: Agent) -> None:
    whole = agent.go()
    agent.ledger.fork("r1", from_call=first(agent, "look_up"), new_run_id="f")
    assert agent.go("f") == whole
    assert agent.ran == ["look_up", "plan", "look_up", "look_up", "look_up", "send_mail", "check", "write", "look_up"]


def test_a_fork_of_a_fork_refers_to_the_records_themselves(agent: Agent) -> None:
    agent.go()
    agent.ledger.fork("r1", from_step="write", new_run_id="f")
    agent.prompt = "v2"
    agent.go("f")
    agent.ledger.fork("f", from_call=first(agent, "send_mail"), new_run_id="g")
    agent.prompt = "v3"
    assert agent.go("g")[3] == "v3 about sent to ann"
    assert agent.ran == ["send_mail", "check", "write", "look_up"]
    view = view_run(store_of(agent.ledger), row_of(agent.ledger, "g"))
    assert view.calls is not None
    (planned,) = [one for one in view.calls.calls if one.name == "plan"]
    assert str(planned.records[0].origin) == "recorded in 'r1', referenced by 'f'"


def test_an_error_that_the_agent_went_on_from_is_raised_in_the_fork_too(agent: Agent) -> None:
    agent.fails = {"send_mail", "check"}
    agent.go()
    agent.fails = set()
    agent.ledger.fork("r1", from_call=last(agent, "look_up"), new_run_id="f")
    assert agent.go("f")[3] == "v1 about ValueError('send_mail'), unchecked"
    assert agent.ran == ["look_up"]
    agent.ledger.fork("r1", from_step="write", new_run_id="g")
    assert agent.go("g")[3] == "v1 about ValueError('send_mail'), unchecked"
    assert agent.ran == ["write", "look_up"]
    agent.ledger.fork("r1", from_call=first(agent, "check", RecordKind.ERROR), new_run_id="h")
    assert agent.go("h")[3] == "v1 about ValueError('send_mail')"
    assert agent.ran == ["check", "write", "look_up"]


def test_an_unknown_outcome_is_unknown_in_the_fork_and_never_repeated(agent: Agent, db: Path) -> None:
    agent.dies = {"send_mail"}
    with pytest.raises(KeyboardInterrupt):
        agent.go()
    agent.dies = set()
    assert "'outcome': 'unknown'" in agent.go()[3]
    agent.ledger.fork("r1", from_step="write", new_run_id="f")
    context = open_context(db)
    (call,) = unknowns(context, "r1")
    with pytest.raises(Refused) as refused:
        resolve(context, call, "not_done", run_id="f")
    assert refused.value.code == "no_call"
    context.store.close()
    view = view_run(store_of(agent.ledger), row_of(agent.ledger, "f"))
    assert view.calls is not None
    assert [one.ident for one in view.calls.unknown] == [""]
    assert "'outcome': 'unknown'" in agent.go("f")[3]
    assert agent.ran == ["write", "look_up"]


def test_a_resolution_before_the_call_counts_in_the_fork(agent: Agent, db: Path) -> None:
    agent.dies = {"send_mail"}
    with pytest.raises(KeyboardInterrupt):
        agent.go()
    agent.dies = set()
    context = open_context(db)
    resolve(context, "mark-" + str(context.store.reader().in_flight(row_of(agent.ledger).row_id)[0].lane), "result",
            "sent by hand", run_id="r1")  # fmt: skip
    context.store.close()
    assert agent.go()[3] == "v1 about sent by hand"
    agent.ledger.fork("r1", from_step="write", new_run_id="f")
    assert agent.go("f")[3] == "v1 about sent by hand"
    assert "send_mail" not in agent.ran


def test_a_run_that_was_started_before_the_call_is_not_started_anew(agent: Agent) -> None:
    with agent.ledger.run(topic="rivers"):
        agent.look_up("early")
        with agent.ledger.run(topic="rivers"):
            agent.look_up("inner")
        agent.look_up("late")
        agent.outer("x")
    early, late, outer = [one.record_id for one in stored_of(agent.ledger, RecordKind.RESULT)]
    with pytest.raises(Refused) as refused:
        agent.ledger.fork("r1", from_call=late)
    assert refused.value.code == "dynamic_fork"
    agent.ledger.fork("r1", from_call=early, new_run_id="f")
    with pytest.raises(Refused):
        agent.ledger.fork("r1", from_call=outer)


def test_a_call_that_starts_a_run_itself_can_be_forked_at(agent: Agent) -> None:
    with agent.ledger.run(topic="rivers"):
        agent.look_up("early")
        agent.outer("x")
    outer = first(agent, "outer")
    agent.ledger.fork("r1", from_call=outer, new_run_id="f")
    agent.ran.clear()
    with agent.ledger.bind("f").run(topic="rivers"):
        agent.look_up("early")
        agent.outer("x")
    assert agent.ran == ["look_up", "outer"]


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({}, "bad_fork"),
        ({"from_step": "write", "from_call": 1}, "bad_fork"),
        ({"from_step": "nobody"}, "no_step"),
        ({"from_call": 1}, "no_call"),
        ({"from_call": "x"}, "bad_call"),
    ],
)
def test_what_cannot_be_forked_is_refused(agent: Agent, where: dict[str, Any], code: str) -> None:
    agent.go()
    size = store_of(agent.ledger).reader().head().size
    with pytest.raises(LedgerError) as refused:
        agent.ledger.fork("r1", **where)
    assert refused.value.code == code
    assert store_of(agent.ledger).reader().head().size == size


def test_a_start_and_an_end_are_no_calls(agent: Agent) -> None:
    agent.go()
    for kind in (RecordKind.START, RecordKind.END):
        (one,) = stored_of(agent.ledger, kind)
        with pytest.raises(Refused) as refused:
            agent.ledger.fork("r1", from_call=one.record_id)
        assert refused.value.code == "no_call"


def test_a_pipeline_is_forked_at_a_step_only(db: Path) -> None:
    with RunLedger(run_id="p", db_path=db) as ledger:

        @ledger.step
        def one(topic: str) -> str:
            return topic

        ledger.execute(topic="rivers")
        for where in ({}, {"from_call": 1}, {"from_step": "one", "from_call": 1}):
            with pytest.raises(Misuse) as refused:
                ledger.fork("p", **where)  # type: ignore[arg-type]
            assert refused.value.code == "bad_fork"


def test_erased_results_of_the_other_run_are_refused_in_the_fork(agent: Agent, db: Path) -> None:
    agent.go()
    agent.ledger.fork("r1", from_step="write", new_run_id="f")
    context = open_context(db)
    erase_run(context, "r1", Selection(steps=("plan",), only=True), Act(event="erase", reason="x", actor="a"))
    assert verify_log(context.store.reader()).ok
    context.store.close()
    assert view_run(store_of(agent.ledger), row_of(agent.ledger, "f")).is_refused
    with pytest.raises(Refused) as refused:
        agent.go("f")
    assert refused.value.code == "erased"
    assert "plan" not in agent.ran


def test_an_error_in_a_body_that_had_not_ended_is_judged_by_what_came_after_it_there(db: Path) -> None:
    context = open_context(db)
    run = Dynamic(context)
    inside = run.inside(run.start("outer"))
    run.error(run.start("check", scope=inside), ValueError("x"))
    run.call("look_up", scope=inside)
    run.call("write")
    run.die()
    forked = fork_run(context, "agent", from_step="write", new_run_id="f", inputs=None)
    told = tell_calls(context.store, view_run(context.store, forked.row))
    assert {one.call.name: str(one.fate) for one in told} == {"check": "raises", "look_up": "restores"}
    context.store.close()
    check_ledger(db)
