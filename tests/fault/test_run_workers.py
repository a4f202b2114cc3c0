"""Workers as processes: killed, stopped and side by side, and every run ends once with nothing recorded run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agent_run_ledger import RunLedger, Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.worker.suspects import DEATHS
from tests.contract.engine_kit import each_engine, new_place, only_a_file
from tests.contract.run_kit import records_of
from tests.fault import worker_program

pytestmark = [pytest.mark.fault, each_engine]

PROGRAM = "tests.fault.worker_program:ledger"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120


class Process:
    """One `arl worker`, whose lines are read as they come."""

    def __init__(self, folder: Path, place: Any, *options: str, pause_s: float, **more: str) -> None:
        environment = {
            **os.environ,
            **more,
            "AGENT_RUN_LEDGER_DB": str(place),
            worker_program.NOTES: str(folder / "notes"),
            worker_program.PAUSE: str(pause_s),
        }
        self.child = subprocess.Popen(
            [sys.executable, "-m", "agent_run_ledger", "worker", PROGRAM, "--poll", "0.05", *options],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        self.lines.extend(iter(self.child.stderr.readline, ""))

    def told(self, event: str) -> int:
        """How often it has told of such an event."""
        return sum(line.startswith(event) for line in list(self.lines))

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something while it lives."""
        deadline = time.monotonic() + TIMEOUT_S
        while not true():
            assert self.child.poll() is None, self.lines
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.01)

    def end(self, number: int | None = None, *, within_s: float = TIMEOUT_S) -> tuple[int, str]:
        """Wait for its end, with a signal or without one, and return its exit code and what it printed."""
        if number is not None:
            self.child.send_signal(number)
        code = self.child.wait(timeout=within_s)
        self._reader.join(within_s)  # it alone reads the lines: the last ones are there then
        assert self.child.stdout is not None
        return code, self.child.stdout.read()


class Case:
    """A store with runs that were submitted, and the workers of them. `db`: where it is, by default in the folder."""

    def __init__(self, folder: Path, runs: int, db: str = "") -> None:
        self.folder = folder
        self.place = db or new_place(folder, "runs.db")
        self.names = [f"r{number}" for number in range(runs)]
        with self.ledger() as ledger:
            ledger.entry(worker_program.job.plain)
            for number, name in enumerate(self.names):
                ledger.submit(name, number=number)
        self.started: list[Process] = []

    def ledger(self) -> RunLedger:
        return RunLedger(db_path=self.place, create=True)

    def start(self, *options: str, pause_s: float = 0.02, db: str = "", **more: str) -> Process:
        """Start a worker; `db`: by another way to the store, `more`: what else is in its environment."""
        process = Process(self.folder, db or self.place, *options, pause_s=pause_s, **more)
        self.started.append(process)
        return process

    def notes(self) -> Counter[str]:
        path = self.folder / "notes"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def states(self) -> Counter[RunState | None]:
        with self.ledger() as ledger:
            return Counter(ledger.bind(name).state for name in self.names)

    def ends_well(self, *, repeated: int) -> None:
        """Every run is completed; each step has one result, and at most so many bodies ran again."""
        assert self.states() == {RunState.COMPLETED: len(self.names)}
        wanted = {f"{run}:{at}" for run in range(len(self.names)) for at in range(worker_program.STEPS)}
        notes = self.notes()
        assert set(notes) == wanted
        assert notes.total() - len(wanted) <= repeated, notes.most_common(5)
        with self.ledger() as ledger:
            for name in self.names:
                results = records_of(ledger, RecordKind.RESULT, run_id=name)
                assert [one.name for one in results] == ["work"] * worker_program.STEPS + ["run.result"]
        check_ledger(self.place)


@contextmanager
def case(runs: int, db: str = "") -> Iterator[Case]:
    with TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        made = Case(Path(folder), runs, db)
        try:
            yield made
        finally:
            for process in made.started:
                if process.child.poll() is None:
                    process.child.kill()
                    process.child.wait()


def test_workers_side_by_side_begin_every_run_once() -> None:
    with case(24) as made:
        workers = [made.start("--until-idle", "--concurrency", "3") for _ in range(3)]
        ended = [worker.end() for worker in workers]
        assert [code for code, _ in ended] == [0, 0, 0], [worker.lines for worker in workers]
        made.ends_well(repeated=0)


def test_what_a_killed_worker_leaves_is_gone_on_with() -> None:
    """Killed five times in the middle: of each run in hand at most the step under way runs again."""
    with case(12) as made:
        kills = 5
        for _ in range(kills):
            before = made.notes().total()
            worker = made.start("--concurrency", "4", pause_s=0.1)
            worker.until(lambda seen=before: made.notes().total() >= seen + 3)
            assert worker.end(signal.SIGKILL)[0] == -signal.SIGKILL
        assert RunState.RUNNING in made.states()
        assert made.start("--until-idle").end()[0] == 0
        made.ends_well(repeated=4 * kills)


def test_sigterm_lets_what_is_in_hand_end_and_takes_nothing_new() -> None:
    with case(8) as made:
        worker = made.start("--concurrency", "2", pause_s=0.2)
        worker.until(lambda: worker.told("taken") == 2)
        assert worker.end(signal.SIGTERM) == (0, "2 completed\n")
        assert made.states() == {RunState.COMPLETED: 2, RunState.SUSPENDED: 6}
        assert made.start("--until-idle").end()[0] == 0
        made.ends_well(repeated=0)


def test_what_does_not_end_in_time_is_left_where_it_is() -> None:
    with case(2) as made:
        worker = made.start("--concurrency", "2", "--drain", "0.1", pause_s=600.0)  # who waits for it never ends
        worker.until(lambda: worker.told("taken") == 2)
        code, printed = worker.end(signal.SIGTERM)
        assert (code, printed.splitlines()[-1]) == (
            0,
            "2 runs stand where they were; the next worker goes on with them",
        )
        assert made.states() == {RunState.RUNNING: 2}
        assert made.start("--until-idle").end()[0] == 0
        made.ends_well(repeated=2)


def test_a_second_signal_ends_it_at_once() -> None:
    with case(1) as made:
        worker = made.start(pause_s=60.0)
        worker.until(lambda: worker.told("taken") == 1)
        worker.child.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert worker.end(signal.SIGINT)[0] == 130
        assert made.start("--until-idle").end()[0] == 0
        made.ends_well(repeated=1)


def test_a_worker_goes_on_while_another_one_is_killed_beside_it() -> None:
    with case(20) as made:
        killed = made.start("--concurrency", "4", pause_s=2.0)
        killed.until(lambda: killed.told("taken") >= 2)
        other = made.start("--concurrency", "2")
        other.until(lambda: other.told("taken") >= 1)
        killed.end(signal.SIGKILL)
        other.until(lambda: made.states() == {RunState.COMPLETED: 20})
        assert other.end(signal.SIGTERM)[0] == 0
        made.ends_well(repeated=4)


def test_a_run_that_kills_its_process_holds_up_no_other_and_is_stopped() -> None:
    """Each life of the worker knows from the record what the ones before died of."""
    with case(6) as made:
        deadly = {worker_program.DEADLY: "0"}
        lives: list[Process] = []
        for life in range(4):
            if life == 3:
                assert made.states() == {RunState.COMPLETED: 5, RunState.RUNNING: 1}
            lives.append(made.start("--until-idle", "--concurrency", "1", "--max-deaths", "3", **deadly))
            lives[-1].end()
        assert [one.child.returncode for one in lives] == [137, 137, 137, 0]
        assert made.states() == {RunState.COMPLETED: 5, RunState.QUARANTINED: 1}
        with made.ledger() as ledger:
            row = ledger._opened.context().store.reader().find_run("r0")
        assert row is not None
        assert row.reason.startswith(f"{DEATHS}3 processes in a row ended while a call of work was under way")
        check_ledger(made.place)


@only_a_file
def test_a_store_that_was_replaced_ends_its_worker_with_an_error() -> None:
    """Each run of it would be refused for ever. What is in hand beside it does not keep the process."""
    with case(2) as made:
        worker = made.start("--concurrency", "2", "--drain", "0.1", pause_s=1.0)
        worker.until(lambda: worker.told("taken") == 2)
        for end in ("", "-wal", "-shm"):
            path = Path(f"{made.place}{end}")
            if path.exists():
                path.rename(f"{path}.old")
        Path(made.place).write_bytes(b"")
        code, _ = worker.end()
        assert code == Tampered.exit_code, worker.lines
        assert any(line.startswith("error: ") for line in worker.lines)


# -- two versions of a program --------------------------------------------------------------------------------------

SECOND = {worker_program.FIRST: "100"}
"""What makes the program another version: its steps are asked for other things."""


def test_two_versions_side_by_side_have_a_queue_each() -> None:
    with case(4) as made:
        with RunLedger(db_path=made.place, queue="second") as ledger:
            ledger.entry(worker_program.job.plain)
            for number in range(4):
                ledger.submit(f"second-{number}", number=number)
        made.names += [f"second-{number}" for number in range(4)]
        workers = [made.start(), made.start(**SECOND, **{worker_program.QUEUE: "second"})]
        workers[0].until(lambda: made.states() == {RunState.COMPLETED: 8})
        assert [worker.end(signal.SIGTERM) for worker in workers] == [(0, "4 completed\n")] * 2
        steps = [*range(worker_program.STEPS), *range(100, 100 + worker_program.STEPS)]
        assert made.notes() == {f"{run}:{at}": 1 for run in range(4) for at in steps}
        check_ledger(made.place)


def test_what_one_version_began_the_other_one_leaves_as_it_stood() -> None:
    """In one queue: it says so, comes back later, and the right one goes on with it."""
    with case(1) as made:
        first = made.start(pause_s=0.1)
        first.until(lambda: made.notes().total() >= 2)
        first.end(signal.SIGKILL)
        second = made.start(**SECOND)
        second.until(lambda: second.told("refused") == 2)
        assert made.states() == {RunState.RUNNING: 1}
        assert "Diverged" in next(line for line in second.lines if line.startswith("refused"))
        assert made.start("--until-idle").end()[0] == 0
        assert second.end(signal.SIGTERM)[0] == 0
        made.ends_well(repeated=1)
