"""Pipelines on a full disk, beside other processes and threads, forked, and under signals: nothing recorded is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_run_ledger import RunBusy, Superseded, Unavailable
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs import execute as execute_module
from agent_run_ledger.testing import (
    BodyCounter,
    Exit,
    WatchedDisk,
    check_ledger,
    recorded_calls,
    run_scenario,
    start_scenario,
    watched_disk,
)
from tests.scenario.programs import held

pytestmark = pytest.mark.fault

PROGRAM = str(Path(held.__file__).resolve())
RESULT = "result 4"


@pytest.fixture
def workdir(tmp_path: Path) -> Iterator[Path]:
    """A directory whose ledger must hold after the test."""
    yield tmp_path
    check_ledger(tmp_path / "ledger.db")


def _bodies(workdir: Path) -> dict[str, int]:
    return dict(BodyCounter(workdir / "bodies.log").count())


def _kinds(workdir: Path) -> list[tuple[str, int, str]]:
    return [(call.name, call.attempt, call.kind.name) for call in recorded_calls(workdir / "ledger.db")]


# -- a disk without room --------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_in_a_body_stops_the_run_and_it_goes_on_when_there_is_room(workdir: Path) -> None:
    with watched_disk() as disk:

        def fill() -> None:
            disk.full = True

        with held.pipeline(workdir, fill) as ledger:
            with pytest.raises(Unavailable) as raised:
                ledger.execute(n=1)
            assert raised.value.code == "disk_full"
            assert _bodies(workdir) == {"first": 1, "second": 1}
            with pytest.raises(Unavailable):
                ledger.execute(n=1)
            assert _bodies(workdir) == {"first": 1, "second": 1}, "a body ran whose start could not be recorded"
            disk.full = False
            with held.pipeline(workdir) as other:
                assert other.execute(n=1) == RESULT
        assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}
    assert ("second", 1, "ABANDONED") in _kinds(workdir)


@pytest.mark.parametrize("room", range(0, 60, 3))
def test_wherever_the_room_ends_nothing_recorded_is_lost(room: int, workdir: Path) -> None:
    """The disk is full after some number of writes: in a start, inside a commit, at the end."""
    codes: list[str] = []
    with watched_disk() as disk, held.pipeline(workdir) as ledger:
        ledger.bind("other").execute(n=7)
        disk.full_after_writes = room
        try:
            assert ledger.execute(n=1) == RESULT
        except Unavailable as error:
            codes.append(error.code)
        disk.full, disk.full_after_writes = False, None
        before = _bodies(workdir)
        recorded = _recorded_in_the_run(workdir)
        assert ledger.execute(n=1) == RESULT
    after = _bodies(workdir)
    again = {name: after[name] - before[name] for name in after}
    assert again == {name: int(name not in recorded) for name in again}
    assert codes == ["disk_full"] if len(recorded) < 3 else codes in ([], ["disk_full"])


def _recorded_in_the_run(workdir: Path) -> set[str]:
    calls = recorded_calls(workdir / "ledger.db", kinds=(RecordKind.RESULT,))
    return {call.name for call in calls if call.run_id == held.RUN_ID}


def test_a_small_file_system_that_is_full_and_then_grows(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or _mount(place, "size=480k").returncode != 0:
        pytest.skip("no permission to mount")
    try:
        full = run_scenario(f"{PROGRAM}:bulky", place)
        assert full.exit is Exit.ERROR, full.describe()
        assert "Unavailable" in full.error
        assert "disk_full" in full.error or "no room" in full.error
        recorded = {call.name for call in recorded_calls(place / "ledger.db") if call.kind.name == "RESULT"}
        assert _mount(place, "remount,size=8m").returncode == 0
        grown = run_scenario(f"{PROGRAM}:bulky", place, life=2)
        assert grown.result == 8, grown.describe()
        again = BodyCounter(tmp_path / "bodies.log").count(life=2)
        assert recorded
        assert not recorded & set(again)
        check_ledger(place / "ledger.db")
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _mount(place: Path, options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )


# -- other processes ------------------------------------------------------------------------------------------------


class _Held:
    """A child process that stands still inside its second step."""

    def __init__(self, workdir: Path) -> None:
        self.entered, self.go_on = held.Gate(workdir / held.ENTERED), held.Gate(workdir / held.GO_ON)
        self.life = start_scenario(f"{PROGRAM}:waiting", workdir)
        self.entered.wait()


@pytest.fixture
def child(workdir: Path) -> Iterator[_Held]:
    """A second process in the middle of the run."""
    child = _Held(workdir)
    yield child
    child.life.end()


def test_a_second_process_is_told_who_works_on_the_run(workdir: Path, child: _Held) -> None:
    with held.pipeline(workdir) as ledger:
        with pytest.raises(RunBusy) as raised:
            ledger.execute(n=1)
        assert held.RUN_ID in str(raised.value)
        assert str(child.life.pid) in str(raised.value)
        assert _bodies(workdir) == {"first": 1, "second": 1}
        child.go_on.open()
        assert child.life.wait().result == RESULT
        assert ledger.execute(n=1) == RESULT
    assert _bodies(workdir) == {"first": 1, "second": 1, "third": 1}


def test_who_waits_gets_the_result_of_the_other_process(
    workdir: Path, child: _Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        child.go_on.open()
        assert child.life.wait().result == RESULT

    monkeypatch.setattr(execute_module, "time", SimpleNamespace(sleep=nap, monotonic=time.monotonic))
    with held.pipeline(workdir) as ledger:
        assert ledger.bind(held.RUN_ID, wait_s=60).execute(n=1) == RESULT
    assert len(naps) == 1
    assert _bodies(workdir) == {"first": 1, "second": 1, "third": 1}


def test_who_waits_takes_over_from_a_process_that_dies(
    workdir: Path, child: _Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nap(_: float) -> None:
        child.life.send(signal.SIGKILL)
        assert child.life.wait().exit is Exit.KILLED

    monkeypatch.setattr(execute_module, "time", SimpleNamespace(sleep=nap, monotonic=time.monotonic))
    with held.pipeline(workdir) as ledger:
        assert ledger.bind(held.RUN_ID, wait_s=60).execute(n=1) == RESULT
    assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}


def test_after_a_takeover_the_old_process_can_write_nothing(workdir: Path, child: _Held) -> None:
    with held.pipeline(workdir) as ledger:
        assert ledger.bind(held.RUN_ID, takeover=True).execute(n=1) == RESULT
        before = check_ledger(workdir / "ledger.db")
        child.go_on.open()
        life = child.life.wait()
        assert (life.exit, life.error.partition(":")[0]) == (Exit.ERROR, Superseded.__name__), life.describe()
        assert check_ledger(workdir / "ledger.db") == before, "the superseded attempt wrote something"
    assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}
    assert _kinds(workdir) == [
        ("first", 1, "RESULT"),
        ("second", 1, "ABANDONED"),
        ("second", 2, "RESULT"),
        ("third", 2, "RESULT"),
    ]


def test_a_takeover_in_the_middle_of_the_new_attempt_fences_the_old_one_at_once(workdir: Path, child: _Held) -> None:
    """The old attempt wakes up while the new one is inside a body; the new one finishes all the same."""
    lives: list[str] = []

    def wake_the_old_one() -> None:
        child.go_on.open()
        lives.append(child.life.wait().error.partition(":")[0])

    with held.pipeline(workdir, wake_the_old_one) as ledger:
        assert ledger.bind(held.RUN_ID, takeover=True).execute(n=1) == RESULT
    assert lives == [Superseded.__name__]
    assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}


# -- fork, signals, another SQLite ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["forking", "forked_other_run"])
def test_a_forked_child_is_refused_and_the_parent_finishes(scenario: str, workdir: Path) -> None:
    life = run_scenario(f"{PROGRAM}:{scenario}", workdir)
    assert life.result == RESULT, life.describe()
    assert json.loads((workdir / "child.json").read_text())["code"] == "forked"
    assert {name for name, _, _ in _kinds(workdir)} == {"first", "second", "third"}
    assert check_ledger(workdir / "ledger.db").runs == 1


def test_a_sigterm_with_the_default_disposition_loses_nothing(workdir: Path) -> None:
    ended = run_scenario(f"{PROGRAM}:terminated", workdir)
    assert (ended.exit, ended.signal) == (Exit.KILLED, signal.SIGTERM), ended.describe()
    resumed = run_scenario(f"{PROGRAM}:terminated", workdir, life=2)
    assert resumed.result == RESULT, resumed.describe()
    assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}
    assert ("second", 1, "ABANDONED") in _kinds(workdir)


def test_a_stray_second_sqlite_is_caught_before_anything_is_lost(workdir: Path) -> None:
    """A limit: POSIX locks belong to a process, so another SQLite library in it can pull the log away under us."""
    ended = run_scenario(f"{PROGRAM}:with_a_stray_sqlite", workdir)
    assert (ended.exit, ended.error.partition(":")[0]) == (Exit.ERROR, "Tampered"), ended.describe()
    assert _kinds(workdir) == [("first", 1, "RESULT")]
    resumed = run_scenario(f"{PROGRAM}:with_a_stray_sqlite", workdir, life=2)
    assert resumed.result == RESULT, resumed.describe()
    assert _bodies(workdir) == {"first": 1, "second": 2, "third": 1}


# -- threads --------------------------------------------------------------------------------------------------------


def _together(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `work` in `count` threads that begin at the same moment; an exception counts as what it returned."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> object:
        barrier.wait()
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_many_threads_run_many_runs_on_one_ledger(workdir: Path) -> None:
    with held.pipeline(workdir) as ledger:

        def work(number: int) -> list[object]:
            return [ledger.bind(f"run {number}-{turn}").execute(n=number + turn) for turn in range(4)]

        found = _together(12, work)
    assert found == [[f"result {2 * (number + turn + 1)}" for turn in range(4)] for number in range(12)]
    assert _bodies(workdir) == {"first": 48, "second": 48, "third": 48}
    assert check_ledger(workdir / "ledger.db").runs == 48


def test_many_threads_on_one_run_run_it_once(workdir: Path) -> None:
    with held.pipeline(workdir) as ledger:
        found = _together(12, lambda _: ledger.execute(n=1))
    assert RESULT in found
    assert all(one == RESULT or isinstance(one, RunBusy) for one in found), found
    assert _bodies(workdir) == {"first": 1, "second": 1, "third": 1}


def test_many_threads_that_wait_all_get_the_result_of_one_run(workdir: Path) -> None:
    with held.pipeline(workdir) as ledger:
        found = _together(8, lambda _: ledger.bind(held.RUN_ID, wait_s=60).execute(n=1))
    assert found == [RESULT] * 8
    assert _bodies(workdir) == {"first": 1, "second": 1, "third": 1}


def test_a_watched_disk_is_only_below_what_was_opened_inside(tmp_path: Path) -> None:
    with held.pipeline(tmp_path) as ledger:
        ledger.bind("before").execute(n=1)
        with watched_disk() as disk:
            ledger.bind("inside").execute(n=1)
            assert disk.writes == 0
    assert isinstance(disk, WatchedDisk)
