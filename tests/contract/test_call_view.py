"""The read model of a dynamic run: which call stands where, what became of it, and what the next attempt would do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.kernel.scopes import ROOT, branch_scope
from agent_run_ledger.kernel.states import RunEvent, RunState
from agent_run_ledger.ledger.call_story import CallFate, attempt_counts, tell_calls
from agent_run_ledger.ledger.call_view import CallStanding, CallsView, Place, placed
from agent_run_ledger.ledger.run_view import RunView, view_run
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.runs.tools import Tool
from tests.contract.dynamic_kit import Dynamic, left_unknown, open_context, resolve

Shape = list[Any]


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    opened = open_context(tmp_path / "runs.db")
    yield opened
    opened.store.close()


def seen(context: Context, run_id: str = "agent") -> RunView:
    row = context.store.reader().find_run(run_id)
    assert row is not None
    return view_run(context.store, row)


def shape(places: list[Place]) -> Shape:
    """The tree in names: [name, inside] for what has something inside it."""
    found: Shape = []
    for place in places:
        if place.call is not None:
            name = place.call.name
        elif place.child is not None:
            name = f"run {place.child.run_id}"
        elif place.branch is not None:
            name = f"branch {place.branch.group} [{place.branch.number}]"
        else:
            name = "?"
        found.append([name, shape(place.inside)] if place.inside else name)
    return found


def tree(context: Context, run_id: str = "agent") -> Shape:
    view = seen(context, run_id)
    assert view.calls is not None
    return shape(placed(view.calls, view.children))


def standings(context: Context) -> dict[str, str]:
    view = seen(context)
    assert view.calls is not None
    return {call.name: str(call.standing) for call in view.calls.calls}


def fates(context: Context) -> dict[str, str]:
    return {one.call.name: str(one.fate) for one in tell_calls(context.store, seen(context))}


def test_calls_stand_in_the_call_that_made_them_and_branches_in_their_order(context: Context) -> None:
    run = Dynamic(context)
    run.value("run.now", "early")
    plan = run.start("plan")
    inside = run.inside(plan)
    run.call("search", scope=branch_scope(inside, 0, 1))
    run.call("search", scope=branch_scope(inside, 0, 0))
    run.call("rank", scope=inside)
    run.result(plan, "planned")
    run.call("profile", scope=run.keyed(ROOT, "profile", "user-1"))
    last = run.start("write")
    run.call("draft", scope=run.inside(last))
    assert tree(context) == [
        "run.now",
        ["plan", [["branch 0 [0]", ["search"]], ["branch 0 [1]", ["search"]], "rank"]],
        "profile",
        ["write", ["draft"]],
    ]
    run.die()


def test_groups_of_branches_come_where_they_were_made(context: Context) -> None:
    run = Dynamic(context)
    for group, number in ((0, 1), (0, 0)):
        run.call("early", scope=branch_scope(ROOT, group, number))
    run.call("between")
    for number in (2, 1, 0):
        run.call("late", scope=branch_scope(branch_scope(ROOT, 1, number), 0, 0))
    run.die()
    assert tree(context) == [
        ["branch 0 [0]", ["early"]],
        ["branch 0 [1]", ["early"]],
        "between",
        *[[f"branch 1 [{number}]", [["branch 0 [0]", ["late"]]]] for number in (0, 1, 2)],
    ]


def test_runs_stand_where_they_were_started(context: Context) -> None:
    run = Dynamic(context)
    run.call("first")
    plan = run.start("plan")
    child = Dynamic(context, "agent/1", parent=run, parent_scope=run.inside(plan))
    child.call("inner")
    child.end()
    run.result(plan, 1)
    Dynamic(context, "agent/2", parent=run).die()
    run.call("last")
    run.end()
    assert tree(context) == ["first", ["plan", ["run agent/1"]], "run agent/2", "last"]
    view = seen(context)
    assert [(one.run_id, one.state, one.live, one.results) for one in view.children] == [
        ("agent/1", RunState.COMPLETED, False, 1),
        ("agent/2", RunState.RUNNING, False, 0),
    ]
    assert (view.parent, seen(context, "agent/1").parent) == (None, "agent")


def test_what_became_of_calls(context: Context) -> None:
    first = Dynamic(context)
    first.call("returned")
    first.error(first.start("failed"), ValueError("x"))
    first.abandon(first.start("left"))
    first.start("safe")
    first.start("unsafe", safe=False)
    live = standings(context)
    assert live == {
        "returned": "recorded", "failed": "failed", "left": "uncertain", "safe": "running", "unsafe": "running",
    }  # fmt: skip
    first.die()
    assert standings(context) == live | {"safe": "uncertain", "unsafe": "outcome unknown"}
    assert seen(context).calls.unknown[0].ident == "mark-4"  # type: ignore[union-attr]
    second = first.again()
    assert standings(context) == live | {"safe": "uncertain", "unsafe": "outcome unknown"}
    second.call("safe")
    second.die()
    assert standings(context)["safe"] == "recorded"


def test_a_call_is_known_to_be_unknown_until_a_person_settles_it(context: Context) -> None:
    second, call = left_unknown(context)
    second.die()
    (unknown,) = seen(context).calls.unknown  # type: ignore[union-attr]
    assert (unknown.ident, unknown.unknown_id, unknown.name) == (str(call), call, "send_mail")
    resolve(context, call, "not_done", reason="empty outbox", actor="ann")
    view = seen(context)
    assert view.calls is not None
    assert view.calls.unknown == ()
    (settled,) = [one for one in view.calls.calls if one.name == "send_mail"]
    assert (settled.standing, settled.unknown_id, settled.ident) == (CallStanding.UNCERTAIN, None, "")
    assert [(one.outcome, one.reason, one.actor, one.call) for one in settled.resolutions] == [
        ("not_done", "empty outbox", "ann", call)
    ]


def test_values_of_the_runs_own_are_told_in_words(context: Context) -> None:
    import datetime

    run = Dynamic(context)
    run.value("run.now", datetime.datetime(2026, 11, 30, 8, 5, tzinfo=datetime.UTC))
    run.value("run.name", ["a", "b"])
    run.call("running", {"not": "told"})
    view = seen(context)
    assert view.calls is not None
    assert [(one.name, one.value, one.is_own) for one in view.calls.calls] == [
        ("run.now", "2026-11-30T08:05:00.000000Z", True),
        ("run.name", '["a", "b"]', True),
        ("running", "", False),
    ]
    run.die()


def test_a_run_that_was_erased_is_still_drawn(context: Context) -> None:
    run = Dynamic(context)
    plan = run.start("plan")
    run.call("search", scope=branch_scope(run.inside(plan), 0, 1))
    run.result(plan, 1)
    run.end()
    erase_run(context, "agent", Selection(), Act(event="erase", reason="x", actor="a"))
    assert tree(context) == [["?", [["branch 0 [1]", ["search"]]]], "plan"]
    view = seen(context)
    assert view.is_refused
    assert view.calls is not None
    assert not view.calls.has_key


def test_an_erased_step_makes_a_later_attempt_refused(context: Context) -> None:
    run = Dynamic(context)
    run.call("look_up")
    run.die()
    assert not seen(context).is_refused
    erase_run(context, "agent", Selection(steps=("look_up",), only=True), Act(event="erase", reason="x", actor="a"))
    assert seen(context).is_refused


@pytest.mark.parametrize("scope", [b"x", b"\x09" * 12, b"\x02" * 13, b"\x02" * 12 + b"\x01" * 12])
def test_a_scope_that_is_none_breaks_no_view(context: Context, scope: bytes) -> None:
    run = Dynamic(context)
    run.call("odd", scope=scope)
    run.call("even")
    run.die()
    found = tree(context)
    assert found[-1] == "even"
    assert "odd" in str(found)


def test_a_scope_of_any_depth_is_drawn(context: Context) -> None:
    run = Dynamic(context)
    scope = ROOT
    for number in range(3000):
        scope = branch_scope(scope, 0, number)
    run.call("deep", scope=scope)
    run.die()
    view = seen(context)
    assert view.calls is not None
    places = placed(view.calls)
    depth = 0
    while places:
        depth, places = depth + 1, places[0].inside
    assert depth == 3001


# -- what the next attempt would do ----------------------------------------------------------------------------------


def test_what_the_next_attempt_does_with_each_call(context: Context) -> None:
    first = Dynamic(context)
    first.call("returned")
    first.error(first.start("went_on"), ValueError("x"))
    plan = first.start("plan")
    first.call("inner", scope=first.inside(plan))
    first.result(plan, 1)
    first.start("safe")
    first.start("unsafe", safe=False)
    first.error(first.start("last", scope=branch_scope(ROOT, 0, 0)), ValueError("x"))
    assert fates(context)["safe"] == "running"
    first.die()
    assert fates(context) == {
        "returned": "restores", "went_on": "raises", "plan": "restores", "inner": "not_asked", "safe": "runs",
        "unsafe": "unknown", "last": "tries",
    }  # fmt: skip
    first.again().die()
    assert fates(context)["safe"] == "runs"
    assert fates(context)["unsafe"] == "unknown"


@pytest.mark.parametrize(
    ("outcome", "fate"), [("result", CallFate.RESTORES), ("error", CallFate.RAISES), ("not_done", CallFate.RUNS)]
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_resolution_counts_unless_the_agent_went_on(
    context: Context, outcome: str, fate: CallFate, goes_on: bool
) -> None:
    second, call = left_unknown(context)
    if goes_on:
        second.last_id = call
        second.call("next")
    second.die()
    resolve(context, call, outcome, RuntimeError("x") if outcome == "error" else 1)
    (told,) = [one for one in tell_calls(context.store, seen(context)) if one.call.name == "send_mail"]
    assert (told.fate, told.went_on) == ((CallFate.UNKNOWN, True) if goes_on else (fate, False))


def test_calls_within_a_call_that_did_not_end_are_asked_for(context: Context) -> None:
    run = Dynamic(context)
    plan = run.start("plan")
    deeper = run.start("deeper", scope=branch_scope(run.inside(plan), 0, 0))
    run.call("inner", scope=run.inside(deeper))
    run.result(deeper, 1)
    run.die()
    assert fates(context) == {"plan": "runs", "deeper": "restores", "inner": "not_asked"}


def test_each_attempt_is_counted(context: Context) -> None:
    first = Dynamic(context)
    first.value("run.now", 1)
    first.call("returned")
    first.error(first.start("failed"), ValueError("x"))
    first.start("safe")
    first.start("unsafe", safe=False)
    second = first.again()
    second.call("more")
    second.die()
    decide(context, "agent", RunEvent.QUARANTINE, reason="x", actor="a")
    counts = attempt_counts(seen(context))
    assert (counts[1].recorded, counts[1].failed, counts[1].left, counts[1].unknown) == (1, 1, 1, 1)
    assert (counts[2].recorded, counts[2].failed, counts[2].left, counts[2].unknown) == (1, 0, 0, 0)


def _fail_beside(ledger: RunLedger, *, told: bool) -> None:
    """Two tools of an adapter side by side, of which the first fails; then a model, where it was told."""

    def fail() -> str:
        raise OSError("left")

    recorder = Recorder(tools={"*": {"safe": True}})
    with contextlib.suppress(OSError), ledger.run("agent"):
        try:
            recorder.tool("left", {}, fail, call_id="c-1")
        except OSError:
            recorder.tool("right", {}, lambda: "done", call_id="c-2")
            if not told:
                raise
        recorder.model("model", {"messages": ["go"]}, lambda: "well")
        raise OSError("stop")


@pytest.mark.parametrize(("told", "fate"), [(False, "tries"), (True, "raises")])
def test_a_tool_that_failed_beside_others_is_told_to_be_tried_unless_the_agent_went_on(
    tmp_path: Path, told: bool, fate: str
) -> None:
    with RunLedger(db_path=tmp_path / "runs.db") as ledger:
        _fail_beside(ledger, told=told)
    opened = open_context(tmp_path / "runs.db")
    assert fates(opened)["left"] == fate
    assert fates(opened)["right"] == "restores"
    opened.store.close()
    ran = list[str]()
    with RunLedger(db_path=tmp_path / "runs.db") as ledger:
        recorder = Recorder(tools={"*": {"safe": True}})
        with contextlib.suppress(OSError), ledger.run("agent"):
            recorder.tool("left", {}, lambda: ran.append("left"), call_id="c-1")
    assert ran == (["left"] if fate == "tries" else [])


@pytest.mark.parametrize("beside", [True, False])
def test_what_was_found_out_of_a_call_counts_where_the_others_stand_beside_it(tmp_path: Path, beside: bool) -> None:
    """An unknown outcome says nothing of how its step is called: the other calls with keys do."""
    with RunLedger(db_path=tmp_path / "runs.db") as ledger:
        with contextlib.suppress(KeyboardInterrupt), ledger.run("agent"):
            _keyed("left", beside)(_interrupt)
        with contextlib.suppress(OSError), ledger.run("agent"):
            _keyed("right", beside)(lambda: "done")
            raise OSError("stop")
    opened = open_context(tmp_path / "runs.db")
    (unknown,) = [one.unknown_id for one in (seen(opened).calls or CallsView(calls=(), has_key=False)).unknown]
    assert unknown is not None
    resolve(opened, unknown, "result", 1)
    assert fates(opened)["left"] == ("restores" if beside else "unknown")
    opened.store.close()
    with contextlib.suppress(OSError), RunLedger(db_path=tmp_path / "runs.db") as ledger, ledger.run("agent"):
        found = _keyed("left", beside)(lambda: "again")
        assert (found == 1) is beside
        raise OSError("stop")


def _interrupt() -> str:
    raise KeyboardInterrupt


def _keyed(name: str, beside: bool) -> Any:
    tool: Any = Tool(lambda make: make(), name=name, key=name, ignore=["make"])
    tool.beside = beside
    return tool
