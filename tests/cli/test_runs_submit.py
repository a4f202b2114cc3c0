"""`arl runs submit` and `arl worker`: programs and inputs as people give them, and what they are told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger
from tests.cli.conftest import Arl

PROGRAM = """
from agent_run_ledger import RunLedger

ledger = RunLedger(db_path="runs.db")
other = 3


@ledger.step
def double(n):
    return n * 2


@ledger.entry
def job(n: int, note: str = ""):
    return double(n)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("prog.py").write_text(PROGRAM)
    return "prog.py:ledger"


def inputs_of(run_id: str) -> object:
    with RunLedger(db_path="runs.db") as ledger:
        queue = ledger.runs_of_queue()
        (row,) = [one for one in queue.queued(limit=99) if one.run_id == run_id]
        return queue.submission(row).inputs


def test_inputs_as_text_as_json_and_from_a_file(arl: Arl, program: str) -> None:
    Path("inputs.json").write_text('{"n": 1, "note": "from the file"}')
    assert arl("runs", "submit", program, "--as", "r1", "-i", "n:=3", "--input", "note=3").out == "r1\n"
    assert inputs_of("r1") == {"n": 3, "note": "3"}
    arl("runs", "submit", program, "--as", "r2", "--inputs", "inputs.json", "-i", "n:=2")
    assert inputs_of("r2") == {"n": 2, "note": "from the file"}


def test_inputs_from_standard_input(arl: Arl, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"n": 7}'))
    assert arl("runs", "submit", program, "--as", "r1", "--inputs", "-", "--json").json == {
        "run_id": "r1",
        "queue": "default",
    }
    assert inputs_of("r1") == {"n": 7}


def test_a_run_id_is_made_where_none_is_given(arl: Arl, program: str) -> None:
    names = {arl("runs", "submit", program, "-i", "n:=1").out.strip() for _ in range(2)}
    assert len(names) == 2
    assert all(len(name) == 32 for name in names)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-i", "n"], "bad_inputs"),
        (["-i", "n:=x"], "bad_inputs"),
        (["-i", "1n=x"], "bad_inputs"),
        (["-i", "n:=1", "-i", "n:=2"], "bad_inputs"),
        (["-i", "m:=1"], "bad_inputs"),
        (["--inputs", "list.json"], "bad_inputs"),
        (["--inputs", "broken.json"], "bad_inputs"),
        (["--entry", "none", "-i", "n:=1"], "no_entry"),
        (["--queue", "a\nb", "-i", "n:=1"], "bad_queue"),
        (["--as", "taken", "-i", "n:=2"], "inputs_changed"),
        (["--as", "taken", "-i", "n:=1", "--queue", "q"], "run_exists"),
    ],
)
def test_what_cannot_be_submitted(arl: Arl, program: str, options: list[str], code: str) -> None:
    Path("list.json").write_text("[1]")
    Path("broken.json").write_text("{")
    arl("runs", "submit", program, "--as", "taken", "-i", "n:=1")
    assert arl("runs", "submit", program, "--json", *options).error["code"] == code


@pytest.mark.parametrize(
    "named", ["prog.py", "none.py:ledger", "no_such_module:ledger", "prog.py:other", "prog.py:nothing", "broken.py:x"]
)
def test_what_is_no_program(arl: Arl, named: str) -> None:
    Path("broken.py").write_text("raise ValueError('broken on purpose')")
    for command in (["runs", "submit"], ["worker"]):
        ended = arl(*command, named, "--json")
        assert (ended.code, ended.error["code"]) == (2, "bad_program")


def test_a_program_of_the_current_folder(arl: Arl) -> None:
    assert arl("runs", "submit", "prog:ledger", "--as", "r1", "-i", "n:=1").code == 0


def test_a_worker_tells_what_it_does(arl: Arl, program: str) -> None:
    arl("runs", "submit", program, "--as", "r1", "-i", "n:=1")
    ended = arl("worker", program, "--until-idle", "--json")
    told = [json.loads(line) for line in ended.err.splitlines()]
    assert [(one["event"], one["run_id"]) for one in told] == [("taken", "r1"), ("completed", "r1")]
    assert ended.json == {"completed": 1, "trouble": 0, "left": 0}
    assert arl("worker", program, "--until-idle").out == "nothing was to do\n"
    shown = arl("runs", "show", "r1", "--db", "runs.db").out
    assert "1  submitted" in shown
    assert "nothing ran in it" in arl("runs", "explain", "r1", "--db", "runs.db").out


def test_what_a_run_says_is_cleaned(arl: Arl) -> None:
    hostile = PROGRAM.replace("return double(n)", 'raise ValueError("\\x1b[2J \\u202e reversed")')
    Path("prog.py").write_text(hostile)
    arl("runs", "submit", "prog.py:ledger", "--as", "r1", "-i", "n:=1")
    said = arl("worker", "prog.py:ledger", "--until-idle").err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "failed r1 ValueError" in said
