"""What every command says of dynamic runs: calls in scopes, values, unknown outcomes, runs within runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.kernel.scopes import ROOT, WRAPPED, branch_scope
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import HOSTILE_ERROR, HOSTILE_VALUE, Arl, is_safe
from tests.contract.dynamic_kit import Dynamic, open_context, unknowns

LONG = "a step with a name that goes on and on " * 4 + "[red]not markup[/red]"


def _write(db: Path) -> None:
    context = open_context(db)
    first = Dynamic(context)
    first.value("run.now", "early")
    first.value("run.note", HOSTILE_VALUE)
    plan = first.start("plan")
    first.call("search", {"hits": 3}, scope=first.inside(plan), tokens=100)
    first.result(plan, "planned", tokens=5)
    for number in range(3):
        first.call("fetch", f"page {number}", scope=branch_scope(ROOT, 0, number), tokens=1000)
    first.error(first.start("fetch", scope=branch_scope(ROOT, 0, 3)), ValueError(HOSTILE_ERROR))
    first.call(LONG, HOSTILE_VALUE, scope=first.keyed(ROOT, LONG, "key"))
    child = Dynamic(context, "agent/child", parent=first)
    child.call("inner", tokens=7)
    child.end()
    first.start("look_up", argument="left")
    first.start("send_mail", argument="to ann", safe=False, tries=1)
    second = first.again()
    second.call("after", "more")
    second.end(RunState.SUSPENDED, "Pending")
    dead = Dynamic(context, "dead")
    dead.start("send_mail", safe=False)
    dead.die()
    long = Dynamic(context, "long")
    for number in range(40):
        long.call("turn", number, occurrence=number)
    long.start("pay", safe=False)
    long.again().die()
    long = Dynamic(context, "long")
    for number in range(40, 80):
        long.call("turn", number, occurrence=number)
    long.end()
    context.store.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("dynamic") / "runs.db"
    _write(db)
    return db


@pytest.fixture
def store(written: Path, db: Path) -> Path:
    shutil.copy(written, db)
    return db


def unknown(db: Path, run_id: str = "agent") -> int:
    context = open_context(db)
    (call,) = unknowns(context, run_id)
    context.store.close()
    return call


# -- show ------------------------------------------------------------------------------------------------------------


def test_show_draws_calls_in_scopes(arl: Arl, store: Path) -> None:
    shown = arl("runs", "show", "agent", "--db", store).out
    lines = [line.strip("│├└─ ") for line in shown.splitlines()]
    assert any(line.startswith("· run.now  early") for line in lines)
    at = next(n for n, line in enumerate(lines) if "plan" in line)
    assert "search" in lines[at + 1]
    assert "107 tokens" in lines[at + 1]
    assert [line for line in lines if line.startswith("branch")] == [f"branch 0 [{number}]" for number in range(4)]
    assert any(line.startswith("» run agent/child  completed  1 result") for line in lines)
    assert any("10 calls: 7 recorded, 1 failed, 1 uncertain, 1 outcome unknown" in line for line in lines)
    assert any("2 values of the run's own; 1 run within" in line for line in lines)
    assert any("keyed" in line and "not markup" in line for line in lines)


def test_show_calls_a_wrap_a_wrap(arl: Arl, db: Path) -> None:
    context = open_context(db)
    run = Dynamic(context, "threads")
    run.call("fetch", 1, scope=branch_scope(ROOT, WRAPPED, 2))
    run.end()
    context.store.close()
    assert "wrap [2]" in arl("runs", "show", "threads", "--db", db).out
    assert "in wrap [2]" in arl("runs", "show", "threads", "--step", "fetch", "--db", db).out


def test_show_says_what_to_do_about_an_unknown_outcome(arl: Arl, store: Path) -> None:
    shown = arl("runs", "show", "agent", "--db", store).out
    assert f"arl runs resolve agent {unknown(store)} --reason ... --db {store}" in shown
    assert "with --result JSON or --error TEXT where it happened, with --not-done where it did not" in shown
    assert "it may have happened or not" in shown
    assert "arl runs resolve dead mark-0 --reason ..." in arl("runs", "show", "dead", "--db", store).out
    assert "runs resolve" not in arl("runs", "show", "long", "--db", store).out
    assert "what it returned rests on that" in arl("runs", "show", "long", "--db", store).out


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize(
    "command",
    [
        ("runs", "show", "agent", "--payloads"),
        ("runs", "show", "agent", "--step", LONG),
        ("runs", "show", "agent", "--step", "fetch", "--payloads"),
        ("runs", "explain", "agent"),
        ("runs", "list"),
        ("runs", "watch", "agent"),
        ("usage", "agent"),
    ],
)
def test_nothing_that_programs_wrote_reaches_the_terminal_as_it_is(
    arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ended = arl(*command, "--db", store)
    assert is_safe(ended.out)
    assert ended.out
    if command[1] == "show":
        assert all(len(line) <= int(columns) for line in ended.out.splitlines())


def test_a_long_run_is_cut_and_what_needs_a_person_is_kept(arl: Arl, store: Path) -> None:
    cut = arl("runs", "show", "long", "--db", store).out
    whole = arl("runs", "show", "long", "--all", "--db", store).out
    assert cut.count("  turn  ") == 40
    assert whole.count("  turn  ") == 80
    assert "outcome unknown" in cut
    assert "… 30 lines more (--all)" in cut
    assert "… 10 lines more (--all)" in cut
    assert "(--all)" not in whole


def test_json_has_every_call_with_its_place(arl: Arl, store: Path) -> None:
    told = arl("runs", "show", "agent", "--payloads", "--json", "--db", store).json
    assert (told["kind"], told["steps"], told["parent"]) == ("dynamic", [], None)
    calls = {(call["step"], str(call["scope_path"])): call for call in told["calls"]}
    assert len(calls) == 12
    plan = calls["plan", "[]"]
    search = calls["search", "[{'kind': 'call'}]"]
    assert search["scope"] == plan["inner"]
    assert search["records"][0]["value"] == {"hits": 3}
    assert search["records"][0]["after"] > 0
    fetch = calls["fetch", "[{'kind': 'branch', 'group': 0, 'number': 3}]"]
    assert (fetch["state"], fetch["occurrence"]) == ("failed", 0)
    sent = calls["send_mail", "[]"]
    assert (sent["state"], sent["unknown"], sent["resolved"]) == ("outcome unknown", unknown(store), [])
    assert sent["records"][0]["unknown"] is True
    (child,) = told["children"]
    assert (child["run_id"], child["state"], child["scope"]) == ("agent/child", "completed", "")
    marked = arl("runs", "show", "dead", "--json", "--db", store).json["calls"][0]
    assert (marked["in_flight"]["lane"], marked["in_flight"]["repeatable"]) == (0, False)


def test_a_step_is_shown_with_all_its_calls(arl: Arl, store: Path) -> None:
    shown = arl("runs", "show", "agent", "--step", "fetch", "--db", store).out
    assert [f"page {number}" in shown for number in range(3)] == [True] * 3
    assert [f"in branch 0 [{number}]" in shown for number in range(4)] == [True] * 4
    assert "in a call" in arl("runs", "show", "agent", "--step", "search", "--db", store).out
    assert len(arl("runs", "show", "agent", "--step", "fetch", "--json", "--db", store).json["calls"]) == 4
    ended = arl("runs", "show", "agent", "--step", "nobody", "--json", "--db", store)
    assert ended.error["code"] == "no_step"
    assert "send_mail" in ended.error["hint"]


# -- list, explain, watch --------------------------------------------------------------------------------------------


def test_list_shows_kind_and_children(arl: Arl, store: Path) -> None:
    runs = {run["run_id"]: run for run in arl("runs", "list", "--json", "--db", store).json["runs"]}
    assert (runs["agent"]["kind"], runs["agent"]["children"], runs["agent"]["parent"]) == ("dynamic", 1, None)
    assert (runs["agent/child"]["parent"], runs["agent/child"]["children"]) == ("agent", 0)
    assert (runs["agent"]["steps_recorded"], runs["agent"]["steps_total"]) == (9, None)
    shown = arl("runs", "list", "--db", store).out
    assert "dynamic, 1 run within" in shown
    assert "None" not in shown


def test_explain_says_what_the_next_attempt_does(arl: Arl, store: Path) -> None:
    told = arl("runs", "explain", "agent", "--json", "--db", store).json
    fates = {call["step"]: call["fate"] for call in told["calls"] if call["step"] != "fetch"}
    assert fates == {
        "run.now": "restores", "run.note": "restores", "plan": "restores", "search": "not_asked", LONG: "restores",
        "look_up": "runs", "send_mail": "unknown", "after": "restores",
    }  # fmt: skip
    assert (told["attempts"][0]["recorded"], told["attempts"][0]["left_unknown"]) == (6, 1)
    shown = arl("runs", "explain", "agent", "--db", store).out
    assert "it restores 8 calls, 2 values of the run's own among them" in shown
    assert "gets the recorded error again, since the agent went on from it (1)" in shown
    assert "makes again, since nothing says how it ended (1)" in shown
    assert f"unless a person says before what became of it: arl runs resolve agent {unknown(store)} --reason" in shown


def test_explain_of_a_completed_run_offers_nothing(arl: Arl, store: Path) -> None:
    shown = arl("runs", "explain", "long", "--db", store).out
    assert "is answered from its records; nothing new runs in it" in shown
    assert "resolve" not in shown


def test_watch_tells_every_call(arl: Arl, store: Path) -> None:
    ended = arl("runs", "watch", "agent", "--json", "--db", store)
    assert ended.code == 1
    assert [one["change"] for one in ended.lines].count("call") == 12
    assert {one["step"] for one in ended.lines if one["change"] == "call"} >= {"plan", "send_mail", "run.now"}
    plain = arl("runs", "watch", "long", "--db", store)
    assert plain.code == 0
    assert plain.out.count("  turn  ") == 80


# -- resolve ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "outcome", "kind"),
    [
        (["--result", '{"sent": true}'], "result", "result"),
        (["--error", "it bounced"], "error", "error"),
        (["--not-done"], "not_done", None),
    ],
)
@pytest.mark.parametrize("run", ["agent", "dead"])
def test_resolve_records_what_a_person_says(
    arl: Arl, store: Path, said: list[str], outcome: str, kind: str | None, run: str
) -> None:
    call = str(unknown(store)) if run == "agent" else "mark-0"
    ended = arl("runs", "resolve", run, call, *said, "--reason", "looked", "--actor", "ann", "--json", "--db", store)
    assert ended.code == 0
    told = ended.json
    call_id = told["call"]
    assert told == {
        "run_id": run, "event": "resolve", "call": call_id, "step": "send_mail", "outcome": outcome,
        "record_id": told["record_id"], "decision_id": told["decision_id"], "usage": [], "reason": "looked",
        "actor": "ann",
    }  # fmt: skip
    assert run == "dead" or str(call_id) == call
    shown = arl("runs", "show", run, "--json", "--payloads", "--db", store).json
    (sent,) = [one for one in shown["calls"] if one["step"] == "send_mail"]
    (resolved,) = sent["resolved"]
    assert (resolved["call"], resolved["outcome"], resolved["actor"]) == (call_id, outcome, "ann")
    assert sent["unknown"] is None
    last = sent["records"][-1]
    assert last["kind"] == (kind or "abandoned")
    if kind == "result":
        assert (last["value"], last["resolves"]) == ({"sent": True}, call_id)
    if kind == "error":
        assert last["error"] == "RuntimeError: it bounced"
    words = arl("runs", "show", run, "--db", store).out
    assert f"resolved as {outcome.replace('_', ' ')} by ann: looked" in words
    assert "resolve by ann: looked" in words
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([], 2),
        (["--not-done", "--error", "x"], 2),
        (["--result", "1", "--error", "x"], 2),
        (["--result", "sent"], 2),
        (["--result", "NaN"], 2),
        (["--not-done", "--input-tokens", "1"], 2),
        (["--result", "1", "--cost-usd", "much"], 2),
        (["--result", "1", "--output-tokens", "-1"], 2),
    ],
)
def test_resolve_wants_one_answer_that_can_be_meant(arl: Arl, store: Path, said: list[str], code: int) -> None:
    size = store.stat().st_size
    ended = arl("runs", "resolve", "agent", unknown(store), *said, "--reason", "x", "--db", store)
    assert ended.code == code
    assert ended.out == ""
    assert store.stat().st_size == size


def test_resolve_needs_a_reason_and_the_right_call(arl: Arl, store: Path) -> None:
    call = unknown(store)
    assert arl("runs", "resolve", "agent", call, "--not-done", "--db", store).code == 2
    for run, number, code in (("agent", call + 1, "no_call"), ("long", unknown(store, "long"), "run_completed")):
        ended = arl("runs", "resolve", run, number, "--not-done", "--reason", "x", "--json", "--db", store)
        assert (ended.code, ended.error["code"]) == (1, code)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["--error", "it bounced"], "it gets the error that a person recorded (1):"),
        (["--not-done"], "it makes again, since a person said that it was not done (1):"),
    ],
)
def test_explain_says_that_a_person_decided(arl: Arl, store: Path, said: list[str], words: str) -> None:
    assert arl("runs", "resolve", "dead", "mark-0", *said, "--reason", "x", "--db", store).code == 0
    shown = arl("runs", "explain", "dead", "--db", store).out
    assert words in shown
    assert "since the agent went on from it" not in shown
    assert "since nothing says how it ended" not in shown


def test_a_call_that_was_in_flight_is_resolved_once_too(arl: Arl, store: Path) -> None:
    command = ("runs", "resolve", "dead", "mark-0", "--not-done", "--reason", "x", "--json", "--db", store)
    assert arl(*command).code == 0
    again = arl(*command)
    assert (again.code, again.error["code"]) == (1, "no_call")
    assert "has no call 'mark-0' in flight: it is resolved already, or on record since" in again.error["message"]


def test_resolve_says_what_comes_next(arl: Arl, store: Path) -> None:
    call = unknown(store)
    said = arl("runs", "resolve", "agent", call, "--not-done", "--reason", "x", "--db", store).out
    assert f"call {call} of run agent (send_mail) is resolved: it was not done" in said
    assert "the next attempt of run agent makes it again" in said
    again = arl("runs", "resolve", "agent", call, "--not-done", "--reason", "x", "--db", store)
    assert again.code == 1
    assert "resolved already" in again.err


def test_a_run_id_that_looks_like_an_option_can_be_resolved(arl: Arl, db: Path) -> None:
    context = open_context(db)
    run = Dynamic(context, "-x")
    run.start("send_mail", safe=False)
    run.die()
    context.store.close()
    command = f"arl runs resolve --reason ... --db {db} -- -x mark-0"
    assert command in arl("runs", "show", "--db", db, "--", "-x").out
    as_printed = arl(*command.split()[1:])
    assert as_printed.code == 2, "what became of the call is for a person to say"
    assert "give one of --result JSON, --error TEXT and --not-done" in as_printed.err
    assert arl(*command.replace("resolve", "resolve --not-done").split()[1:]).code == 0


# -- usage -----------------------------------------------------------------------------------------------------------


def test_usage_counts_unknown_outcomes_and_says_how_to_settle_them(arl: Arl, store: Path) -> None:
    told = arl("usage", "agent", "--json", "--db", store).json
    assert (told["uncertain"]["calls"], told["uncertain"]["unknown"]) == (2, 1)
    assert told["spent"]["input_tokens"] == 3105
    shown = arl("usage", "agent", "--db", store).out
    assert "1 call of them has an unknown outcome" in shown
    assert f"`arl runs resolve RUN CALL --db {store}` settles it" in " ".join(shown.split())
    call = unknown(store)
    used = ["--input-tokens", "50", "--output-tokens", "6", "--cost-usd", "0.5"]
    arl("runs", "resolve", "agent", call, "--result", "1", *used, "--reason", "x", "--db", store)
    after = arl("usage", "agent", "--json", "--db", store).json
    assert (after["uncertain"]["calls"], after["uncertain"]["unknown"]) == (1, 0)
    assert after["spent"]["input_tokens"] == 3155
    assert after["spent"]["cost_usd"] == "0.5"
    assert (after["uncertain"]["repeated"], after["uncertain"]["estimate"]["calls"]) == (0, 0)


def test_what_a_dead_attempt_left_is_counted_before_the_next_one_too(arl: Arl, store: Path) -> None:
    told = arl("usage", "dead", "--json", "--db", store).json
    assert (told["uncertain"]["calls"], told["uncertain"]["unknown"]) == (1, 1)


def test_a_childs_usage_is_its_own_and_can_be_added(arl: Arl, store: Path) -> None:
    assert arl("usage", "agent/child", "--json", "--db", store).json["spent"]["input_tokens"] == 7
    whole = arl("usage", "agent", "--children", "--json", "--db", store).json
    assert whole["spent"]["input_tokens"] == 3112
    assert (whole["runs"], whole["by"]) == (2, "run")
    assert {row["key"]: row["spent"]["input_tokens"] for row in whole["rows"]} == {"agent": 3105, "agent/child": 7}
    assert "1 run within it, whose usage is their own: --children adds them" in arl("usage", "agent", "--db", store).out
    assert "--children adds" not in arl("usage", "agent", "--children", "--db", store).out
    assert arl("usage", "--children", "--db", store).code == 2


# -- erase, prune, export, verify, doctor, metrics -------------------------------------------------------------------


def test_erasing_a_run_names_the_runs_within_it_and_leaves_them(arl: Arl, store: Path) -> None:
    ended = arl("erase", "agent", "--reason", "asked", "--yes", "--db", store)
    assert ended.code == 0
    assert "runs started within it, to be erased on their own: agent/child" in ended.out
    child = arl("runs", "show", "agent/child", "--payloads", "--json", "--db", store).json
    assert child["erased"] == 0
    assert child["calls"][0]["records"][0]["value"] == "done"
    assert arl("runs", "show", "agent", "--json", "--db", store).json["erased"] > 10
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)


def test_erasing_a_step_of_a_dynamic_run_needs_only(arl: Arl, store: Path) -> None:
    refused = arl("erase", "agent", "--step", "fetch", "--reason", "x", "--yes", "--json", "--db", store)
    assert (refused.code, refused.error["code"]) == (1, "no_graph")
    ended = arl("erase", "agent", "--step", "send_mail", "--only", "--reason", "x", "--yes", "--json", "--db", store)
    assert (ended.json["records"], ended.json["children"], ended.json["waiting"]) == (1, ["agent/child"], [])
    told = arl("runs", "show", "agent", "--json", "--db", store).json
    (sent,) = [one for one in told["calls"] if one["step"] == "send_mail"]
    assert sent["records"][0]["erased"] is True
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)


def test_a_run_within_one_that_is_not_over_is_not_pruned(arl: Arl, store: Path) -> None:
    said = arl("erase", "agent/child", "--reason", "x", "--json", "--db", store)
    assert said.code != 0
    pruned = arl("prune", "--completed-before", "0h", "--reason", "x", "--yes", "--json", "--db", store)
    assert pruned.code == 0
    assert pruned.json["run_ids"] == ["long"]
    (skipped,) = pruned.json["skipped"]
    assert skipped["run_id"] == "agent/child"
    assert skipped["why"] == "run agent, within which it was started, is suspended"
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)


def test_export_tells_unknown_outcomes_and_resolutions(arl: Arl, store: Path) -> None:
    call = unknown(store)
    arl("runs", "resolve", "agent", call, "--result", "1", "--reason", "x", "--db", store)
    events = arl("export", "--run", "agent", "--db", store).lines
    records: dict[int, dict[str, Any]] = {
        change["record"]["record_id"]: change["record"]
        for event in events[:-1]
        for change in event["data"]["changes"]
        if "record" in change
    }
    assert records[call]["unknown"] is True
    resolved = [one for one in records.values() if one.get("resolves") == call]
    assert [one["kind"] for one in resolved] == ["result"]
    assert events[-2]["type"].endswith(".step.resolved")


def test_a_forged_parent_is_noticed(arl: Arl, store: Path) -> None:
    from tests.cli.conftest import edit

    edit(store, "UPDATE runs SET parent_row_id = 3 WHERE run_id = 'agent/child'")
    ended = arl("verify", "--db", store)
    assert ended.code == 6
    assert "the run it was started within" in ended.out + ended.err


def test_doctor_and_metrics_work_with_dynamic_runs(arl: Arl, store: Path) -> None:
    assert arl("doctor", "--json", "--db", store).json
    assert "agent_run_ledger" in arl("metrics", "--db", store).out


def test_a_dynamic_run_is_forked_at_a_call(arl: Arl, store: Path) -> None:
    ended = arl("runs", "fork", "agent", "--from-step", "fetch", "--as", "f", "--db", store)
    assert ended.code == 0
    assert "run f is forked from run agent at a call of fetch" in ended.out
    assert "4 results referenced; what comes after them is made anew" in ended.out
    told = arl("runs", "show", "f", "--json", "--db", store).json
    assert [call["step"] for call in told["calls"]] == ["run.now", "run.note", "search", "plan"]
    assert told["calls"][0]["records"][0]["origin"] == {"recorded_in": "agent", "referenced_by": []}
    assert len(told["forked_from"]["calls"]) == 4
    shown = arl("runs", "show", "f", "--db", store).out
    assert "forked from run agent at step fetch: 4 results referenced" in shown
    assert "recorded in 'agent'" in shown
    fates = {one["step"]: one["fate"] for one in arl("runs", "explain", "f", "--json", "--db", store).json["calls"]}
    assert fates == {"run.now": "restores", "run.note": "restores", "search": "not_asked", "plan": "restores"}
    assert arl("runs", "explain", "f", "--db", store).code == 0
    assert "f at fetch" in arl("runs", "show", "agent", "--db", store).out
    call = arl("runs", "show", "agent", "--json", "--db", store).json["calls"][-1]["record_id"]
    late = arl("runs", "fork", "agent", "--from-call", call, "--json", "--db", store)
    assert (late.code, late.error["code"]) == (1, "dynamic_fork")
    assert arl("verify", "--db", store).code == 0
    check_ledger(store)
