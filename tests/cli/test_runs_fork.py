"""`arl runs fork`, and how list, show and explain tell of forks, of forks of forks, and of what was cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Arl, Audit


@pytest.fixture
def forked(arl: Arl, db: Path) -> Path:
    """A store with `audit`, which failed at judge, its fork `second`, and `third`, a fork of that, both completed."""
    Audit(db, "audit", ends="fail").run()
    assert arl("runs", "fork", "audit", "--from-step", "judge", "--as", "second", "--db", db).code == 0
    Audit(db, "second").run()
    assert arl("runs", "fork", "second", "--from-step", "publish", "--as", "third", "--db", db).code == 0
    Audit(db, "third").run()
    return db


def test_a_fork_is_made_and_says_what_it_refers_to_and_what_it_will_run(arl: Arl, store: Path) -> None:
    ended = arl("runs", "fork", "failed", "--from-step", "judge", "--as", "again", "--db", store)
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "run again is forked from run failed at step judge",
        "2 results referenced: fetch, review; to run (2): judge, publish",
        "the next execute() of run again, with the inputs of run failed, goes on there",
    ]
    assert arl("verify", "--db", store).code == 0
    program = Audit(store, "again")
    assert program.run() == "published judged"
    assert program.ran == ["judge", "publish"]


def test_the_json_of_a_fork_names_each_record(arl: Arl, store: Path) -> None:
    made = arl("runs", "fork", "done", "--from-step", "review", "--db", store, "--json").json
    shown = arl("runs", "show", "done", "--db", store, "--json").json
    fetch = next(step["record_id"] for step in shown["steps"] if step["step"] == "fetch")
    assert made["forked_from"] == {
        "run_id": "done",
        "run_uid": shown["run_uid"],
        "from_step": "review",
        "records": [{"step": "fetch", "record_id": fetch}],
        "calls": [],
        "others": [],
    }
    assert (made["state"], made["runs"]) == ("suspended", ["review", "judge", "publish"])
    assert len(bytes.fromhex(made["run_id"])) == 16


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("nobody", "--from-step", "judge"), 1, "no_run"),
        (("done", "--from-step", "jury"), 1, "no_step"),
        (("done", "--from-step", "judge", "--as", "failed"), 1, "run_exists"),
        (("done", "--from-step", "judge", "--as", ""), 2, "bad_run_id"),
        (("done",), 2, "usage"),
    ],
)
def test_what_cannot_be_forked_changes_nothing(
    arl: Arl, store: Path, arguments: tuple[str, ...], code: int, word: str
) -> None:
    before = arl("verify", "--db", store, "--json").json["leaves"]
    ended = arl("runs", "fork", *arguments, "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (code, word, "")
    assert arl("verify", "--db", store, "--json").json["leaves"] == before


def test_the_list_says_where_a_run_was_forked_from_and_counts_its_prefix(arl: Arl, forked: Path) -> None:
    runs = {run["run_id"]: run for run in arl("runs", "list", "--db", forked, "--json").json["runs"]}
    assert {name: run["forked_from"] for name, run in runs.items()} == {
        "audit": None, "second": "audit", "third": "second",
    }  # fmt: skip
    assert (runs["third"]["steps_recorded"], runs["third"]["steps_total"]) == (4, 4)
    lines = arl("runs", "list", "--db", forked).out.splitlines()
    assert lines[0].split()[-2:] == ["FORKED", "FROM"]
    assert next(line for line in lines if line.startswith("third")).endswith("second")


def test_without_a_fork_the_list_has_no_column_for_them(arl: Arl, store: Path) -> None:
    assert "FORKED" not in arl("runs", "list", "--db", store).out


def test_show_says_which_run_recorded_each_restored_step_and_through_which_fork(arl: Arl, forked: Path) -> None:
    shown = arl("runs", "show", "third", "--db", forked, "--json").json
    steps = {step["step"]: step for step in shown["steps"]}
    assert {name: step["state"] for name, step in steps.items()} == {
        "fetch": "restored", "review": "restored", "judge": "restored", "publish": "live",
    }  # fmt: skip
    assert steps["fetch"]["records"][0]["origin"] == {"recorded_in": "audit", "referenced_by": ["second"]}
    assert steps["judge"]["records"][0]["origin"] == {"recorded_in": "second", "referenced_by": []}
    assert steps["publish"]["records"][0]["origin"] is None
    assert [(one["attempt"], one["is_fork"]) for one in shown["attempts"]] == [(1, True), (2, False)]
    out = arl("runs", "show", "third", "--db", forked).out
    assert "forked from run second at step publish: 3 results referenced" in out
    assert "fetch    recorded in 'audit', referenced by 'second'" in out
    assert "1  the fork: made" in out
    assert "published judged" in arl("runs", "show", "third", "--step", "publish", "--db", forked).out
    value = arl("runs", "show", "third", "--step", "judge", "--db", forked).out
    assert "result, recorded in 'second'" in value
    assert "judged" in value


def test_the_other_run_lists_its_forks(arl: Arl, forked: Path) -> None:
    assert arl("runs", "show", "audit", "--db", forked, "--json").json["forks"] == [
        {"run_id": "second", "state": "completed", "from_step": "judge"}
    ]
    assert "forks: second at judge (completed)" in arl("runs", "show", "audit", "--db", forked).out


def test_explain_tells_the_chain_of_each_restored_step(arl: Arl, forked: Path) -> None:
    story = arl("runs", "explain", "third", "--db", forked, "--json").json
    assert story["forked_from"]["run_id"] == "second"
    made, ran = story["attempts"]
    assert (made["is_fork"], made["restored"], made["kept"]) == (True, [], ["fetch", "review", "judge"])
    assert ran["restored"] == ["fetch", "review", "judge"]
    assert ran["origins"] == [
        {"step": "fetch", "recorded_in": "audit", "referenced_by": ["second"]},
        {"step": "review", "recorded_in": "audit", "referenced_by": ["second"]},
        {"step": "judge", "recorded_in": "second", "referenced_by": []},
    ]
    out = arl("runs", "explain", "third", "--db", forked).out
    assert "It was forked from run second at step publish." in out
    assert "Attempt 1 is the making of the fork" in out
    assert "restored (2), recorded in 'audit', referenced by 'second': fetch, review" in out
    assert "restored (1), recorded in 'second': judge" in out


def test_before_it_runs_a_fork_restores_nothing_and_keeps_its_prefix(arl: Arl, store: Path) -> None:
    arl("runs", "fork", "done", "--from-step", "judge", "--as", "fresh", "--db", store)
    states = {s["step"]: s["state"] for s in arl("runs", "show", "fresh", "--db", store, "--json").json["steps"]}
    assert states == {"fetch": "kept", "review": "kept", "judge": "waiting", "publish": "waiting"}
    story = arl("runs", "explain", "fresh", "--db", store, "--json").json
    assert (story["next_execute"], story["attempts"][0]["not_started"]) == ("goes_on", ["judge", "publish"])
    assert "referenced (2), recorded in 'done': fetch, review" in arl("runs", "explain", "fresh", "--db", store).out


def test_a_changed_prompt_is_told_against_the_referenced_record(arl: Arl, store: Path) -> None:
    arl("runs", "fork", "done", "--from-step", "publish", "--as", "changed fork", "--db", store)
    Audit(store, "changed fork", prompt="v2").run()
    second = arl("runs", "explain", "changed fork", "--db", store, "--json").json["attempts"][1]
    assert second["restored"] == ["fetch"]
    causes = {one["step"]: (one["cause"], one["because"]) for one in second["live"]}
    assert causes["review"] == ("changed", ["environment.prompt"])
    assert causes["publish"] == ("first", [])


def test_a_cancelled_run_can_be_forked_and_says_so(arl: Arl, store: Path) -> None:
    ended = arl("runs", "cancel", "dead", "--reason", "enough", "--yes", "--db", store)
    assert ended.out == "run dead is cancelled for ever; what is recorded stays readable, and can be forked\n"
    assert "use a new run id, or a fork" in arl("runs", "explain", "dead", "--db", store).out
    assert arl("runs", "fork", "dead", "--from-step", "judge", "--as", "alive", "--db", store).code == 0
    assert Audit(store, "alive").run() == "published judged"


def test_cancel_names_the_bodies_that_are_left_to_finish(arl: Arl, db: Path) -> None:
    import threading

    from agent_run_ledger import RunCancelled, RunLedger

    entered, leave = threading.Event(), threading.Event()
    ledger = RunLedger(run_id="busy", db_path=db)
    ended: list[RunCancelled] = []

    @ledger.step
    def hang() -> int:
        entered.set()
        leave.wait(60)
        return 1

    def work() -> None:
        try:
            ledger.execute()
        except RunCancelled as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert entered.wait(60)
        said = arl("runs", "cancel", "busy", "--reason", "enough", "--yes", "--db", db, "--json").json
        assert (said["state"], said["still_running"]) == ("cancelled", ["hang"])
        assert "cancelled (a body still runs)" in arl("runs", "show", "busy", "--db", db).out
    finally:
        leave.set()
        worker.join()
        ledger.close()
    assert len(ended) == 1
    shown = arl("runs", "show", "busy", "--db", db, "--json").json
    assert (shown["state"], shown["steps"][0]["state"]) == ("cancelled", "live"), "the late result is evidence"


def test_cancel_names_only_bodies_of_an_attempt_that_lives(arl: Arl, store: Path) -> None:
    assert arl("runs", "show", "dead", "--step", "judge", "--db", store, "--json").json["step"]["in_flight"]
    said = arl("runs", "cancel", "dead", "--reason", "enough", "--yes", "--db", store, "--json").json
    assert said["still_running"] == []
