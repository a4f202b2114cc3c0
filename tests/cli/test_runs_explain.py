"""`arl runs explain`: why each body ran, what is uncertain, and what the next execute() would be answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Pending, RunLedger
from agent_run_ledger.kernel.states import RunEvent
from tests.cli.conftest import Arl, Audit, is_safe


def _live(story: Any, attempt: int) -> dict[str, tuple[str, list[str]]]:
    return {one["step"]: (one["cause"], one["because"]) for one in story["attempts"][attempt - 1]["live"]}


def test_a_crash_is_told_with_its_uncertain_step_and_what_was_restored(arl: Arl, store: Path) -> None:
    story = arl("runs", "explain", "crashed", "--db", store, "--json").json
    first, second = story["attempts"]
    assert (first["end"], first["not_started"]) == ("died", ["publish"])
    assert first["live"][2] == {
        "step": "judge", "state": "uncertain", "cause": "first", "because": [], "tries": 1, "error": "",
    }  # fmt: skip
    assert second["restored"] == ["fetch", "review"]
    assert _live(story, 2) == {"judge": ("abandoned", []), "publish": ("first", [])}
    words = arl("runs", "explain", "crashed", "--db", store).out
    assert (
        "started, and nothing says how it ended, so its cost is uncertain (run because there was no record): judge"
        in words
    )
    assert "restored (2): fetch, review" in words


def test_a_changed_prompt_is_the_reason_of_a_rerun(arl: Arl, store: Path) -> None:
    story = arl("runs", "explain", "changed", "--db", store, "--json").json
    assert story["attempts"][1]["restored"] == ["fetch"]
    assert _live(story, 2)["review"] == ("changed", ["environment.prompt"])
    assert _live(story, 2)["judge"] == ("failed", [])
    out = arl("runs", "explain", "changed", "--db", store).out
    assert "ran because environment.prompt changed: review" in out
    assert "it stopped at step 'judge': ValueError" in out
    assert is_safe(out)


def test_a_changed_value_is_named_by_its_path(arl: Arl, db: Path) -> None:
    def program(year: int, fails: bool) -> RunLedger:
        ledger = RunLedger(run_id="r", db_path=db)
        ledger.step(name="make", environment={"year": year})(lambda: {"year": year, "firm": "acme"})

        @ledger.step(depends_on=["make"])
        def use(report: dict[str, Any]) -> int:
            return int(report["year"])

        @ledger.step(depends_on=["use"])
        def end(year: int) -> int:
            if fails:
                raise ValueError("later")
            return year

        return ledger

    with program(2025, fails=True) as ledger, pytest.raises(ValueError, match="later"):
        ledger.execute()
    with program(2026, fails=False) as ledger:
        assert ledger.execute() == 2026
    story = arl("runs", "explain", "r", "--db", db, "--json").json
    assert _live(story, 2)["use"] == ("changed", ["arguments.report.year"])


def test_changed_code_and_changed_steps_are_told(arl: Arl, db: Path) -> None:
    def fail() -> None:
        raise ValueError("later")

    with RunLedger(run_id="r", db_path=db) as ledger:
        ledger.step(name="a")(lambda: 1)
        ledger.step(name="old")(lambda: 1)
        ledger.step(name="end", depends_on=["a"])(fail)
        with pytest.raises(ValueError, match="later"):
            ledger.execute()
    with RunLedger(run_id="r", db_path=db) as ledger:
        ledger.step(name="a")(lambda: 1 + 1)
        ledger.step(name="new")(lambda: 1)
        ledger.step(name="end", depends_on=["a"])(fail)
        with pytest.raises(ValueError, match="later"):
            ledger.execute()
    second = arl("runs", "explain", "r", "--db", db, "--json").json["attempts"][1]
    assert second["code_changed"] == ["a"]
    assert (second["steps_added"], second["steps_removed"]) == (["new"], ["old"])
    assert "a" in second["restored"]


def test_retries_are_counted_and_the_last_error_is_told(arl: Arl, db: Path) -> None:
    calls: list[int] = []
    with RunLedger(run_id="r", db_path=db) as ledger:

        @ledger.step(retries=2, retry_base_s=0.0)
        def flaky() -> int:
            calls.append(1)
            if len(calls) < 3:
                raise OSError("again")
            return len(calls)

        ledger.execute()
    (live,) = arl("runs", "explain", "r", "--db", db, "--json").json["attempts"][0]["live"]
    assert (live["tries"], live["state"]) == (3, "live")
    assert "ran in 3 tries because there was no record: flaky" in arl("runs", "explain", "r", "--db", db).out


def test_many_steps_are_twenty_names_and_how_many_more(arl: Arl, db: Path) -> None:
    with RunLedger(run_id="r", db_path=db) as ledger:
        for number in range(25):
            ledger.step(name=f"s{number:02}")(lambda: 1)
        ledger.execute()
    out = arl("runs", "explain", "r", "--db", db).out
    assert "(25): s00, s01" in out
    assert "s19, and 5 more (all with --json)" in out
    assert "s20" not in out
    assert len(arl("runs", "explain", "r", "--db", db, "--json").json["attempts"][0]["live"]) == 25


def test_an_error_is_one_line_of_its_own_and_says_where_all_of_it_is(arl: Arl, db: Path) -> None:
    def fail() -> None:
        raise ValueError(f"it is{'x' * 500}\nsecond line")

    with RunLedger(run_id="the run", db_path=db) as ledger:
        ledger.step(name="bad one")(fail)
        with pytest.raises(ValueError, match="second"):
            ledger.execute()
    out = arl("runs", "explain", "the run", "--db", db).out
    assert f"failed (run because there was no record): bad one, ValueError: it is{'x' * 283} …\n" in out
    assert "second line" not in out
    assert f"all of one: arl runs show 'the run' --step NAME --payloads --db {db}" in out
    shown = arl("runs", "show", "the run", "--db", db).out
    assert "second line" not in shown
    assert "(all of it: --step 'bad one' --payloads)" in shown
    whole = arl("runs", "show", "the run", "--step", "bad one", "--payloads", "--db", db).out
    assert f"it is{'x' * 500}" in whole
    assert "second line" in whole
    error = arl("runs", "show", "the run", "--db", db, "--json").json["steps"][0]["records"][0]["error"]
    assert error == f"ValueError: it is{'x' * 500}\nsecond line"


def _suspended(db: Path) -> None:
    with RunLedger(run_id="r", db_path=db) as ledger:

        @ledger.step
        def ask() -> None:
            raise Pending("waiting for a person")

        with pytest.raises(Pending):
            ledger.execute()


def _decided(db: Path, event: RunEvent) -> None:
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.runs.operate import decide

    Audit(db, "r", ends="fail").run()
    with deciding(str(db)) as context:
        decide(context, "r", event, reason="because", actor="op")


ANSWERS = {
    "completed": ("returns_record", "returns the recorded result"),
    "failed": ("goes_on", "goes on as attempt 2"),
    "suspended": ("goes_on", "goes on as attempt 2"),
    "dead": ("goes_on", "goes on as attempt 2"),
    "quarantined": ("refused_until_release", "refused until `arl runs release r --reason ... --db "),
    "cancelled": ("refused_for_ever", "refused for ever"),
}


@pytest.mark.parametrize("state", ANSWERS)
def test_the_next_answer_is_that_of_the_state_table(arl: Arl, db: Path, state: str) -> None:
    if state == "suspended":
        _suspended(db)
    elif state == "quarantined":
        _decided(db, RunEvent.QUARANTINE)
    elif state == "cancelled":
        _decided(db, RunEvent.CANCEL)
    else:
        Audit(db, "r", ends={"completed": "ok", "failed": "fail", "dead": "die"}[state]).run()
    story = arl("runs", "explain", "r", "--db", db, "--json").json
    answer, words = ANSWERS[state]
    assert story["next_execute"] == answer
    assert words in story["next_execute_words"]


def test_a_run_that_was_answered_busy_or_refused_is_answered_so_by_the_engine_too(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunCancelled, RunQuarantined

    _decided(db, RunEvent.QUARANTINE)
    assert isinstance(Audit(db, "r").run(), RunQuarantined)
    assert arl("runs", "release", "r", "--reason", "looked", "--db", db).code == 0
    assert Audit(db, "r").run() == "published judged"
    _ = Audit(db, "other", ends="fail").run()
    assert arl("runs", "cancel", "other", "--reason", "enough", "--yes", "--db", db).code == 0
    assert isinstance(Audit(db, "other").run(), RunCancelled)
