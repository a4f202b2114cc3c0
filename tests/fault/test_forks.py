"""Forks among crashes, other processes and changed bytes: whole or not there, one of two, and never another's word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from agent_run_ledger import RunBusy, Tampered
from agent_run_ledger.testing import (
    BodyCounter,
    Exit,
    LedgerBroken,
    Lives,
    Point,
    check_ledger,
    crash_everywhere,
    recorded_calls,
    start_scenario,
)
from tests.scenario.programs import forking, held

pytestmark = pytest.mark.fault

PROGRAMS = Path(forking.__file__)
CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
# Every kill between the engine's own acts is made; of the many writes of SQLite a campaign looks at more and more.
DISK_KILLS = {
    Point.WAL_WRITE: 8 * CAMPAIGN,
    Point.WAL_SYNC: 5 * CAMPAIGN,
    Point.FILE_WRITE: 2 * CAMPAIGN,
    Point.FILE_SYNC: 2,
}
MEASURED = 8 * 3


def _directories(root: Path) -> Callable[[], Path]:
    numbers = count()

    def make() -> Path:
        folder = root / str(next(numbers))
        folder.mkdir()
        return folder

    return make


def _check(lives: Lives) -> None:
    """No body of the prefix ran in a fork, and none ran again whose result was recorded."""
    bodies = lives.bodies.count()
    assert {"second:collect", "third:collect", "third:measure"}.isdisjoint(bodies)
    recorded = {f"{call.run_id}:{call.name}" for call in lives.recorded if call.kind.name == "RESULT"}
    assert recorded.isdisjoint(lives.bodies.count(life=2))
    expected = {"first": {"collect", "measure", "report"}, "second": {"measure", "report"}, "third": {"report"}}
    results = [(c.run_id, c.name) for c in recorded_calls(lives.ledger) if c.kind.name == "RESULT"]
    assert sorted(results) == sorted((run, name) for run, names in expected.items() for name in names)


def test_killed_at_every_point_a_fork_is_whole_or_not_there_and_its_prefix_never_runs(tmp_path: Path) -> None:
    summary = crash_everywhere(
        f"{PROGRAMS}:chain_of_forks", _directories(tmp_path), most_per_point=DISK_KILLS, check=_check, at_once=2
    )
    missing = {str(point) for point in Point} - {point for point, kills in summary.kills.items() if kills}
    assert not missing, f"never killed at {missing}"


def test_two_processes_that_fork_to_one_run_id_make_one_fork(tmp_path: Path) -> None:
    with _first_run(tmp_path).ledger:
        pass
    with (
        start_scenario(f"{PROGRAMS}:only_fork", tmp_path) as one,
        start_scenario(f"{PROGRAMS}:only_fork", tmp_path) as other,
    ):
        said = sorted(str(life.wait().result) for life in (one, other))
    assert said == ["forked", "run_exists"]
    assert check_ledger(tmp_path / "ledger.db").runs == 2


def test_a_run_is_forked_while_another_process_works_on_it_and_completes(tmp_path: Path) -> None:
    entered, go_on = held.Gate(tmp_path / held.ENTERED), held.Gate(tmp_path / held.GO_ON)
    with start_scenario(f"{PROGRAMS}:waiting_in_the_parent", tmp_path) as life:
        entered.wait()
        pipeline = forking.Pipeline(tmp_path)
        with pipeline.ledger:
            assert pipeline.fork("first", "second", "report") == "forked"
            assert pipeline.execute("second") == f"second measured {MEASURED}"
        go_on.open()
        assert life.wait().result == f"first measured {MEASURED}"
    assert BodyCounter(tmp_path / "bodies.log").count() == Counter(
        ["first:collect", "first:measure", "first:report", "second:measure", "second:report"]
    )
    check_ledger(tmp_path / "ledger.db")


def test_a_fork_that_another_process_executes_is_busy(tmp_path: Path) -> None:
    pipeline = _first_run(tmp_path)
    entered, go_on = held.Gate(tmp_path / held.ENTERED), held.Gate(tmp_path / held.GO_ON)
    with pipeline.ledger:
        pipeline.fork("first", "second", "measure")
        with start_scenario(f"{PROGRAMS}:waiting_in_the_fork", tmp_path) as life:
            entered.wait()
            with pytest.raises(RunBusy):
                pipeline.execute("second")
            go_on.open()
            assert life.wait().result == f"second measured {MEASURED}"
        assert pipeline.execute("second") == f"second measured {MEASURED}"
    assert BodyCounter(tmp_path / "bodies.log").count()["second:collect"] == 0
    check_ledger(tmp_path / "ledger.db")


def test_a_cancel_from_another_process_reaches_a_fork_at_work_and_not_the_run_it_came_from(tmp_path: Path) -> None:
    pipeline = _first_run(tmp_path)
    entered, go_on = held.Gate(tmp_path / held.ENTERED), held.Gate(tmp_path / held.GO_ON)
    with pipeline.ledger:
        pipeline.fork("first", "second", "measure")
        with start_scenario(f"{PROGRAMS}:waiting_in_the_fork", tmp_path) as life:
            entered.wait()
            pipeline.ledger.bind("second").cancel("not that way", actor="ann")
            go_on.open()
            ended = life.wait()
        assert ended.exit is Exit.ERROR
        assert ended.error.startswith("RunCancelled: run 'second' was cancelled while it ran (operator: not that way)")
        assert pipeline.execute("first") == f"first measured {MEASURED}"
    results = [(c.run_id, c.name) for c in recorded_calls(tmp_path / "ledger.db") if c.kind.name == "RESULT"]
    assert ("second", "measure") in results, "the late result is kept as evidence"
    assert ("second", "report") not in results
    check_ledger(tmp_path / "ledger.db")


# -- changed bytes -----------------------------------------------------------------------------------------------------

OF_THE_PREFIX = "WHERE kind = 2 AND name = 'collect'"
OF_THE_FORK = "(SELECT row_id FROM runs WHERE run_id = 'second')"
EDITS = {
    "payload": f"UPDATE records SET payload = CAST('[\"x\"]' AS BLOB) {OF_THE_PREFIX}",
    "fingerprint": f"UPDATE records SET fingerprint = randomblob(32) {OF_THE_PREFIX}",
    "digest": f"UPDATE records SET value_sha256 = randomblob(32) {OF_THE_PREFIX}",
    "name": f"UPDATE records SET name = 'gather' {OF_THE_PREFIX}",
    "deleted": f"DELETE FROM records {OF_THE_PREFIX}",
    "another kind": f"UPDATE records SET kind = 3 {OF_THE_PREFIX}",
    "the fork's list": "UPDATE records SET payload = CAST(replace(CAST(payload AS TEXT), 'records', 'others') AS BLOB)"
    f" WHERE kind = 1 AND run_row_id = {OF_THE_FORK}",
    "the fork's start": "UPDATE runs SET start_record_id = (SELECT start_record_id FROM runs WHERE run_id = 'first')"
    " WHERE run_id = 'second'",
}


@pytest.mark.parametrize("edit", list(EDITS))
def test_a_changed_prefix_is_never_used_and_never_a_reason_to_run_it_again(edit: str, tmp_path: Path) -> None:
    pipeline = _first_run(tmp_path)
    pipeline.fork("first", "second", "measure")
    pipeline.ledger.close()
    check_ledger(tmp_path / "ledger.db")
    _edit(tmp_path / "ledger.db", EDITS[edit])
    pipeline = forking.Pipeline(tmp_path)
    with pytest.raises(Tampered), pipeline.ledger:
        pipeline.execute("second")
    assert BodyCounter(tmp_path / "bodies.log").count() == Counter(["first:collect", "first:measure", "first:report"])
    with pytest.raises(LedgerBroken):
        check_ledger(tmp_path / "ledger.db")


def test_a_row_that_forgets_or_invents_its_origin_is_found_and_changes_no_restoring(tmp_path: Path) -> None:
    pipeline = _first_run(tmp_path)
    pipeline.fork("first", "second", "measure")
    pipeline.ledger.close()
    for said in ("NULL", "row_id"):
        _edit(tmp_path / "ledger.db", f"UPDATE runs SET forked_from_row_id = {said} WHERE run_id = 'second'")
        with pytest.raises(LedgerBroken, match="the run it was forked from"):
            check_ledger(tmp_path / "ledger.db")
    pipeline = forking.Pipeline(tmp_path)
    with pipeline.ledger:
        assert pipeline.execute("second") == f"second measured {MEASURED}"
    assert BodyCounter(tmp_path / "bodies.log").count()["second:collect"] == 0


def _first_run(workdir: Path) -> forking.Pipeline:
    pipeline = forking.Pipeline(workdir)
    assert pipeline.execute("first") == f"first measured {MEASURED}"
    return pipeline


def _edit(db: Path, statement: str) -> None:
    editor = PROGRAMS.parent / "edit_rows.py"
    done = subprocess.run([sys.executable, str(editor), str(db), statement], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
