"""The testing kit finds what is wrong: every check of it is seen to fail, and every part of it to work."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from agent_run_ledger import Misuse, RunLedger, Tampered, Unavailable
from agent_run_ledger.testing import (
    BodyCounter,
    CrashCheckFailed,
    Exit,
    KillPoint,
    LedgerBroken,
    LifeTimeout,
    Lives,
    Point,
    check_ledger,
    crash_everywhere,
    left_by_death,
    no_body_without_a_start,
    run_scenario,
    watched_disk,
    what_was_in_flight_is_abandoned,
)
from agent_run_ledger.testing.points import spread
from agent_run_ledger.testing.scenarios import load_scenario
from tests.scenario.programs import held

pytestmark = pytest.mark.fault

PROGRAM = Path(__file__).resolve().parent.parent / "scenario" / "programs" / "faulty.py"


def _named(name: str) -> str:
    return f"{PROGRAM}:{name}"


@pytest.fixture
def directories(tmp_path: Path) -> Callable[[], Path]:
    """A maker of empty directories."""
    numbers = count()

    def make() -> Path:
        folder = tmp_path / "cases" / str(next(numbers))
        folder.mkdir(parents=True)
        return folder

    return make


# -- points ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reached", "most", "chosen"),
    [
        (3, None, [1, 2, 3]),
        (3, 5, [1, 2, 3]),
        (0, 5, []),
        (9, 0, []),
        (9, 1, [1]),
        (9, 2, [1, 9]),
        (9, 3, [1, 5, 9]),
        (100, 5, [1, 26, 51, 75, 100]),
    ],
)
def test_counts_are_spread_from_the_first_to_the_last(reached: int, most: int | None, chosen: list[int]) -> None:
    assert spread(reached, most) == chosen


def test_a_kill_point_counts_from_one() -> None:
    assert str(KillPoint(point=Point.BODY_AFTER, nth=2)) == "body.after#2"
    with pytest.raises(Misuse):
        KillPoint(point=Point.BODY_AFTER, nth=0)


def test_a_point_of_ones_own_counts_in_its_process_only(tmp_path: Path) -> None:
    life = run_scenario(_named("own_points"), tmp_path)
    assert (life.exit, life.points_reached, life.result) == (Exit.OK, {"mine.before": 3}, "here")
    killed = run_scenario(_named("own_points"), tmp_path, kill_at=KillPoint(point="mine.before", nth=3))
    assert (killed.exit, killed.signal, killed.points_reached) == (Exit.KILLED, signal.SIGKILL, {"mine.before": 3})
    unharmed = run_scenario(_named("own_points"), tmp_path, kill_at=KillPoint(point="mine.before", nth=5))
    assert unharmed.exit is Exit.OK, "the forked child's points were counted"


def test_every_point_is_reached_in_the_order_of_a_step(tmp_path: Path) -> None:
    life = run_scenario(_named("one_step"), tmp_path)
    assert set(life.points_reached) == {str(point) for point in Point}, life.describe()
    reached = {point: life.points_reached[point] for point in Point if point.startswith(("body", "record", "commit.b"))}
    # A start, the mark of the step, and its result with the end: three commits, two of them with records or marks.
    assert reached == {
        "body.before": 1,
        "body.after": 1,
        "record.before": 2,
        "commit.begin": 3,
        "commit.before": 3,
        "record.after": 2,
    }


@pytest.mark.parametrize(
    ("point", "nth", "recorded", "in_flight"),
    [
        (Point.BODY_BEFORE, 1, [], ["one"]),
        (Point.BODY_AFTER, 1, [], ["one"]),
        (Point.BODY_BEFORE, 2, ["one"], ["two"]),
        (Point.RECORD_BEFORE, 1, [], []),
        (Point.RECORD_BEFORE, 2, [], ["one"]),
        (Point.COMMIT_BEFORE, 3, [], ["one"]),
        (Point.COMMIT_AFTER, 1, [], []),
        (Point.COMMIT_AFTER, 3, ["one"], ["two"]),
        (Point.RECORD_AFTER, 3, ["one", "two"], []),
        (Point.FILE_WRITE, 1, [], []),
    ],
)
def test_what_a_kill_leaves_is_what_the_point_says(
    point: Point, nth: int, recorded: list[str], in_flight: list[str], tmp_path: Path
) -> None:
    life = run_scenario(_named("two_steps"), tmp_path, kill_at=KillPoint(point=point, nth=nth))
    assert life.exit is Exit.KILLED, life.describe()
    found, running = left_by_death(tmp_path / "ledger.db")
    assert (sorted(call.name for call in found), list(running)) == (recorded, in_flight)


# -- lives ----------------------------------------------------------------------------------------------------------


def test_a_life_says_how_it_went(tmp_path: Path) -> None:
    said = run_scenario(_named("says"), tmp_path)
    assert (said.exit, said.stdout, said.stderr, said.result) == (Exit.OK, "to stdout\n", "to stderr\n", None)
    failed = run_scenario(_named("fails"), tmp_path)
    assert (failed.exit, failed.error, failed.signal) == (Exit.ERROR, "ValueError: no luck today", 0)
    assert "no luck today" in failed.describe()
    assert run_scenario(_named("not_json"), tmp_path).exit is Exit.ERROR
    assert run_scenario(_named("exits_early"), tmp_path).exit is Exit.ERROR
    assert "Misuse" in run_scenario(_named("missing"), tmp_path).error


def test_a_life_that_never_ends_is_ended(tmp_path: Path) -> None:
    with pytest.raises(LifeTimeout):
        run_scenario(_named("hangs"), tmp_path, timeout_s=0.5)


def test_a_life_ends_with_everything_that_it_started(tmp_path: Path) -> None:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this platform has no pidfd_open")
    pid = run_scenario(_named("leaves_a_process"), tmp_path).result
    assert isinstance(pid, int)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], held.PATIENCE_S)
    os.close(descriptor)
    assert ended, "what the life started still runs"


@pytest.mark.parametrize("reference", ["nothing", "no.such.module:f", "no_file.py:f", "os.path:no_function", "os:sep"])
def test_a_scenario_that_is_not_there_is_misuse(reference: str) -> None:
    with pytest.raises(Misuse):
        load_scenario(reference)


def test_a_scenario_is_found_by_module_or_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scenario_of_a_test.py"
    program.write_text("def works(workdir):\n    return workdir.name\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_scenario("scenario_of_a_test:works")(tmp_path) == tmp_path.name
    assert load_scenario(f"{program}:works")(tmp_path) == tmp_path.name


# -- campaigns ------------------------------------------------------------------------------------------------------

ENGINE = (Point.BODY_BEFORE, Point.BODY_AFTER, Point.RECORD_AFTER)


def test_a_campaign_kills_everywhere_it_was_asked_to(directories: Callable[[], Path]) -> None:
    seen: list[Lives] = []
    told: list[tuple[int, int]] = []
    summary = crash_everywhere(
        _named("two_steps"),
        directories,
        points=(*ENGINE, Point.WAL_WRITE),
        most_per_point={Point.WAL_WRITE: 2},
        check=seen.append,
        progress=lambda done, cases: told.append((done, cases)),
    )
    assert summary.kills == {"body.before": 2, "body.after": 2, "record.after": 3, "commit.wal.write": 2}
    assert (summary.total, summary.not_reached) == (9, 0)
    assert told == [(done, 9) for done in range(1, 10)]
    assert {lives.kill_at.point for lives in seen} == set(summary.kills)
    assert all(lives.reference.result == lives.second.result == 4 for lives in seen)
    assert not any(lives.workdir.exists() for lives in seen), "a case that holds keeps no directory"


@pytest.mark.parametrize(
    ("scenario", "complaint"),
    [
        ("forgetful", "run again: one"),
        ("amnesic", "already recorded"),
        ("inconstant", "without a kill '1'"),
    ],
)
def test_a_campaign_finds_what_is_wrong(scenario: str, complaint: str, directories: Callable[[], Path]) -> None:
    with pytest.raises(CrashCheckFailed) as raised:
        crash_everywhere(_named(scenario), directories, points=[Point.RECORD_AFTER])
    assert complaint in str(raised.value)
    assert "record.after#" in str(raised.value)


def test_a_body_without_a_start_is_found(directories: Callable[[], Path]) -> None:
    """verify_log objects too: a call is concluded that was never started. The check must not need it."""
    killed = run_scenario(_named("unmarked"), workdir := directories(), kill_at=KillPoint(point=Point.BODY_AFTER))
    assert killed.exit is Exit.KILLED, killed.describe()
    recorded, in_flight = left_by_death(workdir / "ledger.db")
    lives = Lives(
        kill_at=KillPoint(point=Point.BODY_AFTER),
        workdir=workdir,
        first=killed,
        recorded=recorded,
        in_flight=in_flight,
        second=killed,
        reference=killed,
    )
    with pytest.raises(AssertionError, match="without a start in the ledger: one"):
        no_body_without_a_start(lives)
    no_body_without_a_start(replace(lives, in_flight=("one",)))


def test_a_forgotten_call_in_flight_is_found(directories: Callable[[], Path]) -> None:
    def forgets(lives: Lives) -> None:
        what_was_in_flight_is_abandoned(replace(lives, in_flight=(*lives.in_flight, "two")))

    with pytest.raises(CrashCheckFailed, match="recorded as abandoned: \\['one'\\]"):
        crash_everywhere(_named("two_steps"), directories, points=[Point.BODY_AFTER], most_per_point=1, check=forgets)


def test_a_case_that_fails_keeps_its_directory(directories: Callable[[], Path]) -> None:
    kept: list[Path] = []

    def refuse(lives: Lives) -> None:
        kept.append(lives.workdir)
        raise AssertionError("never content")

    with pytest.raises(CrashCheckFailed, match="never content"):
        crash_everywhere(_named("two_steps"), directories, points=[Point.BODY_AFTER], most_per_point=1, check=refuse)
    assert [workdir.exists() for workdir in kept] == [True]


def test_a_scenario_that_fails_by_itself_is_no_crash_test(directories: Callable[[], Path]) -> None:
    with pytest.raises(Misuse, match="no luck today"):
        crash_everywhere(_named("fails"), directories)


def test_a_point_that_a_life_does_not_come_to_is_counted_and_checked(directories: Callable[[], Path]) -> None:
    summary = crash_everywhere(_named("sometimes"), directories, points=["mine.sometimes"])
    assert (summary.kills, summary.not_reached) == ({"mine.sometimes": 1}, 1)


# -- counted bodies -------------------------------------------------------------------------------------------------


def test_a_body_counter_keeps_every_line_of_every_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARL_LIFE", "2")
    bodies = BodyCounter(tmp_path / "w")
    assert bodies.lines() == []
    threads = [threading.Thread(target=lambda: [bodies.ran("body", n) for n in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies.count() == {"body": 200}
    assert bodies.count(life=1) == {}
    assert len({line.arguments for line in bodies.lines()}) == 50


def test_a_body_counter_tells_arguments_apart_and_takes_every_name(tmp_path: Path) -> None:
    bodies = BodyCounter(tmp_path / "w")
    bodies.ran("tab\tand\nline ✓", 1)
    bodies.ran("tab\tand\nline ✓", "1")
    bodies.ran("n", float("nan"))
    first, second, third = bodies.lines()
    assert first.name == second.name == "tab\tand\nline ✓"
    assert first.arguments != second.arguments
    assert third.arguments == "-" * 16


def test_a_line_that_no_body_counter_wrote_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("1\tonly two fields\n", encoding="utf-8")
    with pytest.raises(Tampered):
        BodyCounter(tmp_path / "w").lines()


# -- the disk -------------------------------------------------------------------------------------------------------


def test_a_watched_disk_tells_its_hook_before_each_write_and_fills_up_on_time(tmp_path: Path) -> None:
    told: list[str] = []
    with watched_disk(told.append) as disk, held.pipeline(tmp_path) as ledger:
        ledger.bind("one").execute(n=1)
        assert {"commit.wal.write", "commit.wal.sync"} <= set(told)
        assert disk.writes == told.count("commit.wal.write") + told.count("file.write")
        before = disk.writes
        disk.full_after_writes = 3
        with pytest.raises(Unavailable):
            ledger.bind("two").execute(n=1)
        assert (disk.full, disk.writes) == (True, before + 3)
        disk.full = False
        assert ledger.bind("two").execute(n=1) == "result 4"
    check_ledger(tmp_path / "ledger.db")


# -- check_ledger and the command -----------------------------------------------------------------------------------


def _ledger(folder: Path) -> Path:
    with held.pipeline(folder) as ledger:
        ledger.execute(n=1)
    return folder / "ledger.db"


def test_check_ledger_counts_what_is_there(tmp_path: Path) -> None:
    report = check_ledger(_ledger(tmp_path))
    counts = (report.runs, report.results, report.errors, report.abandoned, report.rescued, report.in_flight)
    assert counts == (1, 3, 0, 0, 0, 0)
    # The store's own leaf, a start, the first mark, and one fused leaf per result.
    assert report.leaves == 6
    assert len(bytes.fromhex(report.root_hex)) == 32


def test_check_ledger_works_while_this_process_has_the_ledger_open(tmp_path: Path) -> None:
    with RunLedger("r", tmp_path / "ledger.db") as ledger:
        found: list[int] = []
        ledger.step(lambda: found.append(check_ledger(tmp_path / "ledger.db").in_flight), name="look")
        ledger.execute()
        ledger.bind("again").execute()
    assert found == [1, 1]


def test_check_ledger_refuses_what_is_no_ledger(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.db", tmp_path / "text.db"
    empty.touch()
    text.write_text("a diary\n" * 1000, encoding="utf-8")
    for path in (empty, text, tmp_path / "missing.db"):
        with pytest.raises(LedgerBroken) as raised:
            check_ledger(path)
        assert raised.value.path == str(path)
    assert empty.stat().st_size == 0, "the check created a ledger"
    assert not (tmp_path / "missing.db").exists()


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent_run_ledger.testing", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_checks_a_ledger(tmp_path: Path) -> None:
    path = _ledger(tmp_path)
    fine = _command("check", str(path), "--json")
    assert (fine.returncode, json.loads(fine.stdout)["results"]) == (0, 3)
    assert "everything fits" in _command("check", str(path)).stdout
    with path.open("r+b") as file:
        os.truncate(file.fileno(), 8192)
    broken = _command("check", str(path))
    assert (broken.returncode, broken.stdout) == (6, "")
    assert "problem" in broken.stderr


def test_the_command_crashes_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a case that fails keeps its directory
    fine = _command("crash", _named("one_step"), "--point", "body.after", "--point", "commit.after", "--json")
    assert fine.returncode == 0, fine.stderr
    assert json.loads(fine.stdout)["kills"] == {"body.after": 1, "commit.after": 3}
    told = _command("crash", _named("one_step"), "--point", "body.after", "--most-per-point", "1")
    assert "killed 1 times, everything holds" in told.stdout
    wrong = _command("crash", _named("forgetful"), "--point", "record.after")
    assert (wrong.returncode, wrong.stdout) == (6, "")
    assert "run again: one" in wrong.stderr
    assert _command("crash", _named("missing")).returncode == 2
