"""`arl runs show`: the tree tells restored from live, and a value is shown whatever became of its class."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import HOSTILE_RUN, HOSTILE_STEP, Arl, Audit, edit, is_safe


def _line(out: str, word: str) -> str:
    (line,) = [line for line in out.splitlines() if f" {word} " in line and ("attempt" in line or "←" in line)]
    return line


def test_restored_and_live_steps_differ_in_sign_and_word(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "crashed", "--db", store).out
    assert "○ restored   fetch" in out
    assert "○ restored   review" in out
    assert "● live       judge" in out
    assert "● live       publish" in out
    assert "4 steps: 2 live, 2 restored" in out
    assert out.index("fetch") < out.index("review") < out.index("judge") < out.index("publish")


def test_an_abandoned_attempt_stays_visible_below_its_step(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "crashed", "--db", store).out
    (abandoned,) = [line for line in out.splitlines() if "abandoned, attempt 1" in line]
    assert re.search(r"attempt 1 · started [0-9TZ:.-]+ · not known how long · leaf \d+$", abandoned)
    records = arl("runs", "show", "crashed", "--db", store, "--json").json["steps"][2]["records"]
    assert [(one["kind"], one["duration_ms"] is None) for one in records] == [("abandoned", True), ("result", False)]
    assert "1  died: started" in out
    assert "2  completed" in out


def test_what_is_in_flight_without_a_living_attempt_is_uncertain(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "dead", "--db", store).out
    assert "running (no live attempt)" in out
    assert "? uncertain  judge" in out
    assert "no attempt is left that could record its end" in out
    assert "· waiting    publish" in out


def test_a_rerun_says_which_path_changed(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "changed", "--db", store).out
    assert "ran again because environment.prompt changed" in out
    assert "○ restored   fetch" in out
    assert "● live       review" in out


def test_a_completed_run_says_which_of_two_records_it_rests_on(arl: Arl, db: Path) -> None:
    Audit(db, "r", prompt="v1", ends="fail").run()
    Audit(db, "r", prompt="v2", ends="fail").run()
    assert Audit(db, "r", prompt="v1").run() == "published judged"
    review = arl("runs", "show", "r", "--db", db, "--json").json["steps"][1]
    assert [record["attempt"] for record in review["records"]] == [1, 2]
    assert (review["state"], review["record_id"]) == ("restored", review["records"][0]["record_id"])


def test_json_has_the_documented_shape(arl: Arl, store: Path) -> None:
    run = arl("runs", "show", "crashed", "--db", store, "--json").json
    assert set(run) == {
        "run_id", "run_uid", "state", "reason", "live_attempt", "attempt", "generation", "created_at", "updated_at",
        "inputs", "kept_inputs", "erased", "policy", "max_parallel", "attempts", "decisions", "code_changed", "usage",
        "steps", "forked_from", "forks", "copy", "kind", "calls", "parent", "children", "budgets", "effects",
    }  # fmt: skip
    assert run["inputs"] == ["company"]
    assert [(attempt["attempt"], attempt["end"]) for attempt in run["attempts"]] == [(1, "died"), (2, "completed")]
    assert {step["step"]: step["state"] for step in run["steps"]} == {
        "fetch": "restored", "review": "restored", "judge": "live", "publish": "live",
    }  # fmt: skip
    judge = run["steps"][2]
    assert set(judge) == {
        "step", "defined", "version", "depends_on", "code_hex", "state", "record_id", "in_flight", "records",
    }  # fmt: skip
    assert [record["kind"] for record in judge["records"]] == ["abandoned", "result"]
    assert judge["record_id"] == judge["records"][1]["record_id"]
    assert "value" not in judge["records"][1]


def test_payloads_are_shown_only_when_asked_for(arl: Arl, store: Path) -> None:
    assert "acme" not in arl("runs", "show", "done", "--db", store).out
    assert "v1 on acme" in arl("runs", "show", "done", "--db", store, "--payloads").out
    steps = arl("runs", "show", "done", "--db", store, "--payloads", "--json").json["steps"]
    assert steps[0]["records"][0]["value"] == {"company": "acme", "revenue": [1, 2, 3]}
    assert steps[2]["records"][0]["value"] == {"$arl": "tuple", "v": ["judged", "v1 on acme"]}


def test_one_step_shows_its_decoded_value_and_its_stored_form(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "done", "--step", "judge", "--db", store).out
    assert "('judged', 'v1 on acme')" in out
    step = arl("runs", "show", "done", "--step", "judge", "--db", store, "--json").json["step"]
    (record,) = step["records"]
    assert (record["decodes"], record["value"]["$arl"], record["value_note"]) == (True, "tuple", "")


def test_a_rescue_is_readable(arl: Arl, store: Path) -> None:
    out = arl("runs", "show", "rescued", "--step", "judge", "--db", store).out
    assert "! rescued" in out
    assert '"paid": "for"' in out


def test_text_from_a_model_can_neither_steer_the_terminal_nor_pose_as_markup(arl: Arl, store: Path) -> None:
    for arguments in (("failed",), ("failed", "--step", "judge"), (HOSTILE_RUN,), (HOSTILE_RUN, "--payloads")):
        out = arl("runs", "show", *arguments, "--db", store).out
        assert is_safe(out)
    assert (
        "\\x1b[2J\\x1b]0;owned\\a [red]not markup[/red] … (all of it: --step judge --payloads)"
        in arl("runs", "show", "failed", "--db", store).out
    )
    assert HOSTILE_STEP in out
    raw = arl("runs", "show", HOSTILE_RUN, "--payloads", "--db", store, "--json").out
    assert raw.isascii()
    assert is_safe(raw)


def test_a_class_that_is_gone_leaves_the_stored_form(shell: Arl, db: Path, tmp_path: Path) -> None:
    (tmp_path / "gone_soon.py").write_text(
        "from dataclasses import dataclass\n"
        "from agent_run_ledger import RunLedger\n"
        "@dataclass\nclass Report:\n    year: int\n"
        "class Sorry(Exception):\n    pass\n"
        "def run(path):\n"
        "    ledger = RunLedger('r', path)\n"
        "    @ledger.step\n    def make():\n        return Report(2026)\n"
        "    @ledger.step(depends_on=['make'])\n    def fail(report):\n        raise Sorry('out of ink')\n"
        "    try:\n        ledger.execute()\n    except Sorry:\n        pass\n"
    )
    program = "import sys; sys.path.insert(0, '.'); import gone_soon; gone_soon.run(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(db)], check=True, cwd=tmp_path, capture_output=True)
    out = shell("runs", "show", "r", "--step", "make", "--db", db).out
    assert "stored form, because: a stored value needs the class gone_soon:Report" in out
    assert '"year": 2026' in out
    assert "Sorry: out of ink" in shell("runs", "show", "r", "--db", db).out
    (record,) = shell("runs", "show", "r", "--step", "make", "--db", db, "--json").json["step"]["records"]
    assert record["decodes"] is False


def test_an_erased_value_is_called_erased(arl: Arl, store: Path) -> None:
    edit(store, "UPDATE records SET salt = NULL, payload = NULL WHERE name = 'fetch'")
    assert "erased" in _line(arl("runs", "show", "done", "--db", store).out, "fetch")
    (record,) = arl("runs", "show", "done", "--step", "fetch", "--db", store, "--json").json["step"]["records"]
    assert (record["erased"], record["value"], record["value_note"]) == (True, None, "erased")


def test_a_changed_value_is_shown_as_what_the_log_does_not_say(arl: Arl, store: Path) -> None:
    edit(store, "UPDATE records SET payload = CAST('\"forged\"' AS BLOB) WHERE name = 'publish'")
    out = arl("runs", "show", "done", "--step", "publish", "--db", store).out
    assert "does not match its leaf" in out
    (record,) = arl("runs", "show", "done", "--step", "publish", "--db", store, "--json").json["step"]["records"]
    assert record["decodes"] is False


@pytest.mark.parametrize(("arguments", "code"), [(("nobody",), "no_run"), (("done", "--step", "nothing"), "no_step")])
def test_unknown_runs_and_steps_are_refused(arl: Arl, store: Path, arguments: tuple[str, ...], code: str) -> None:
    ended = arl("runs", "show", *arguments, "--db", store, "--json")
    assert (ended.code, ended.error["code"], ended.out) == (1, code, "")


def test_a_long_value_is_shortened_unless_payloads_asks_for_all(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    with RunLedger(run_id="long", db_path=db) as ledger:
        ledger.step(name="many")(lambda: [f"entry {number}" for number in range(500)])
        ledger.execute()
    short = arl("runs", "show", "long", "--step", "many", "--db", db).out
    full = arl("runs", "show", "long", "--step", "many", "--db", db, "--payloads").out
    assert "shortened: 502 lines in all; --payloads shows everything" in short
    assert "entry 499" not in short
    assert "entry 499" in full
    assert "shortened" not in full


def test_a_step_that_left_the_pipeline_is_still_shown(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    def fail() -> None:
        raise ValueError("not yet")

    for names in (("old", "last"), ("last",)):
        with RunLedger(run_id="r", db_path=db) as ledger:
            if "old" in names:
                ledger.step(name="old")(lambda: 1)
            ledger.step(name="last", depends_on=[name for name in names if name != "last"])(fail)
            with pytest.raises(ValueError, match="not yet"):
                ledger.execute()
    out = arl("runs", "show", "r", "--db", db).out
    assert "not part of the pipeline any more" in _line(out, "old")


def test_a_step_that_failed_and_was_removed_is_not_waiting_in_a_completed_run(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    for names in (("last", "old"), ("last",)):
        with RunLedger(run_id="r", db_path=db) as ledger:
            ledger.step(name="last")(lambda: 1)
            if "old" in names:
                ledger.step(name="old")(lambda: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    ledger.execute()
            else:
                ledger.execute()
    out = arl("runs", "show", "r", "--db", db).out
    assert "1 step: 1 restored; and 1 removed from the pipeline" in out
    assert "⊖ removed    old" in out
    assert "waiting" not in out
    steps = arl("runs", "show", "r", "--db", db, "--json").json["steps"]
    assert [(step["step"], step["state"], step["defined"]) for step in steps] == [
        ("last", "restored", True),
        ("old", "removed", False),
    ]


def test_a_running_step_is_not_headed_with_an_earlier_attempts_numbers(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    entered, leave = threading.Event(), threading.Event()

    def program(fails: bool) -> RunLedger:
        ledger = RunLedger(run_id="r", db_path=db)

        @ledger.step
        def work() -> int:
            if fails:
                raise ValueError("not yet")
            entered.set()
            leave.wait(60)
            return 1

        return ledger

    with program(fails=True) as ledger, pytest.raises(ValueError, match="not yet"):
        ledger.execute()
    ledger = program(fails=False)
    worker = threading.Thread(target=ledger.execute)
    worker.start()
    try:
        assert entered.wait(60)
        out = arl("runs", "show", "r", "--db", db).out
        (step,) = arl("runs", "show", "r", "--db", db, "--json").json["steps"]
    finally:
        leave.set()
        worker.join()
        ledger.close()
    assert re.search(r"▶ running    work  attempt 2$", out, re.MULTILINE)
    assert "error, attempt 1 · " in out
    assert (step["record_id"], step["in_flight"][0]["attempt"]) == (None, 2)


class _Clock:
    """A wall clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from agent_run_ledger.clock import SystemClock

        self.now_ms = 1_800_000_000_000
        monkeypatch.setattr(SystemClock, "now_ms", lambda clock: self.now_ms)


def test_a_clock_that_was_set_back_gives_no_duration(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_run_ledger import RunLedger

    clock = _Clock(monkeypatch)
    with RunLedger(run_id="r", db_path=db) as ledger:

        @ledger.step
        def first() -> int:
            clock.now_ms -= 7_200_000
            return 1

        @ledger.step(depends_on=["first"])
        def second(first: int) -> int:
            raise ValueError("not yet")

        for _ in range(2):
            with pytest.raises(ValueError, match="not yet"):
                ledger.execute()
    out = arl("runs", "show", "r", "--db", db).out
    assert re.search(r"first +attempt 1 · clock changed", out)
    assert re.search(r"2  failed: started 2027-01-15T06:00:00.000Z · clock changed · ", out)
    assert "2 h" not in out
    told = arl("runs", "explain", "r", "--db", db).out
    assert "Attempt 2 started 2027-01-15T06:00:00.000Z failed (clock changed)." in told
    (record,) = arl("runs", "show", "r", "--db", db, "--json").json["steps"][0]["records"]
    assert record["duration_ms"] is None


def test_a_clock_that_runs_gives_durations(arl: Arl, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_run_ledger import RunLedger

    clock = _Clock(monkeypatch)
    with RunLedger(run_id="r", db_path=db) as ledger:

        @ledger.step
        def first() -> int:
            clock.now_ms += 7_200_000
            return 1

        ledger.execute()
    out = arl("runs", "show", "r", "--db", db).out
    assert "1  completed: started 2027-01-15T08:00:00.000Z · 2 h 00 min · " in out
    assert re.search(r"first  attempt 1 · 2 h 00 min · ", out)


def test_what_has_no_stored_form_is_told_in_words(arl: Arl, db: Path) -> None:
    from agent_run_ledger import RunLedger

    class Odd(Exception):
        def __init__(self, left: object, right: object) -> None:
            super().__init__(left)
            self.right = right

    def surrogate() -> None:
        raise ValueError("bad \ud800 text")

    def odd() -> None:
        raise Odd(object(), 1)

    for run_id, body, kind in (("sur", surrogate, ValueError), ("odd", odd, Odd)):
        with RunLedger(run_id=run_id, db_path=db) as ledger:
            ledger.step(name="b")(body)
            with pytest.raises(kind):
                ledger.execute()
    assert "ValueError: bad \\ud800 text" in arl("runs", "show", "sur", "--db", db).out
    assert "Odd: Odd(<object object at " in arl("runs", "explain", "odd", "--db", db).out
    Audit(db, "rescued", ends="rescue").run()
    for arguments in (("sur",), ("odd",), ("odd", "--step", "b", "--payloads"), ("rescued", "--payloads")):
        out = arl("runs", "show", *arguments, "--db", db).out
        assert "$arl" not in out
    assert '"paid": "for"' in out


def test_a_leaf_is_not_torn_from_its_number(arl: Arl, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in range(50, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        out = arl("runs", "show", "crashed", "--db", store).out
        assert re.search(r"leaf \d+$", out, re.MULTILINE)
        assert not re.search(r"leaf$", out, re.MULTILINE)


def test_an_ascii_terminal_gets_signs_it_can_show(shell: Arl, store: Path) -> None:
    out = shell("runs", "show", "crashed", "--db", store, PYTHONIOENCODING="ascii").out
    assert out.isascii()
    assert "o restored   fetch" in out
    assert "* live       judge" in out


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_lines_fit_the_terminal(arl: Arl, store: Path, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in (("list",), ("show", "changed"), ("show", "failed", "--step", "judge"), ("explain", "changed")):
        out = arl("runs", *command, "--db", store).out
        assert max(map(len, out.splitlines())) <= int(columns)


def test_into_a_pipe_nothing_is_cut_or_filled_up(shell: Arl, store: Path) -> None:
    out = shell("runs", "show", "failed", "--db", store).out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert any("[red]not markup[/red]" in line and "--payloads" in line for line in out.splitlines())
