"""The processes of one life: started together, killed as the story says, and waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from tests.campaign.child import ENDS_FILE
from tests.campaign.meter import read_lines, read_meter
from tests.campaign.reader import LOOKS_FILE
from tests.campaign.rules import Ended
from tests.campaign.stories import Story

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120.0
PAUSE_S = 0.0005


def surroundings() -> dict[str, str]:
    """The environment of every child: the package is the one that this process uses, no setting is the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_RUN_LEDGER_")}
    return {**kept, LIFE_VARIABLE: "1"}


class Group:
    """All processes of one life. Start, watch until the last worker is gone, end."""

    def __init__(self, folder: Path, story: Story, number: int) -> None:
        self._folder = folder
        self._story = story
        self._number = number
        self._life = story.lives[number - 1]
        self._workers: list[_Process] = []
        self._reader: _Process | None = None
        self._late = False

    def start(self, known_runs: Sequence[str]) -> None:
        """Start the reader, which must have looked once, and then the workers. A reader needs a run to look at."""
        if self._life.reader is not None and known_runs:
            words = ("tests.campaign.reader", str(self._folder), self._life.reader, known_runs[0])
            self._reader = _Process(self._folder, words)
            self._until(lambda: bool(self._looks()) or not self._reader_lives())
        for at in range(len(self._life.workers)):
            words = ("tests.campaign.child", str(self._folder), str(self._story.seed), str(self._number), str(at))
            self._workers.append(_Process(self._folder, words))

    def watch(self) -> None:
        """Kill whoever is due, until no worker lives. A reader that is to die dies beside living workers."""
        due: dict[int, float] = {}
        looked = len(self._looks())

        def over() -> bool:
            alive = [at for at, process in enumerate(self._workers) if process.alive]
            lines = Counter(line.pid for line in read_meter(self._folder, life=self._number))
            now = time.monotonic()
            for at in alive:
                kill, process = self._life.workers[at].kill, self._workers[at]
                if kill is not None and kill.point is None and lines[process.pid] >= kill.lines:
                    due.setdefault(at, now + kill.delay_s)
                if now >= due.get(at, now + 1):
                    process.kill()
            if self._life.reader_dies and self._reader is not None and lines and len(self._looks()) > looked:
                self._reader.killed_early |= bool(alive)
                self._reader.kill()
            return not alive

        self._late = not self._until(over)

    def end(self) -> None:
        """Kill whatever is left and wait for it."""
        for process in (*self._workers, *([] if self._reader is None else [self._reader])):
            process.kill()
            process.wait()

    def complaints(self) -> list[str]:
        """What is wrong with the processes themselves."""
        said = [f"the life did not end within {PATIENCE_S:.0f} s"] if self._late else []
        for process, worker in zip(self._workers, self._life.workers, strict=True):
            if process.code not in (0, -signal.SIGKILL) or (process.code and worker.kill is None and not self._late):
                said.append(f"process {process.pid} ended with code {process.code}: {process.said}")
        said += [f"arl {self._life.reader} ended with {code}: {told}" for code, told in self._looks() if code != 0]
        if self._reader is not None and self._reader.code != -signal.SIGKILL:
            said.append(f"the reader ended by itself: {self._reader.said}")
        return said

    def ended(self, run: str) -> list[Ended]:
        """How the run ended in each process that was to execute it."""
        told = read_lines(self._folder / ENDS_FILE)
        ends = {(int(life), int(pid), run_id): end for life, pid, run_id, end in told}
        return [
            Ended(worker=worker, pid=process.pid, end=ends.get((self._number, process.pid, run)))
            for worker, process in zip(self._life.workers, self._workers, strict=True)
            if run in worker.runs
        ]

    def count(self, counts: Counter[str], kills: Counter[str], looks: Counter[str]) -> None:
        """Add what happened to the processes."""
        counts["processes"] += len(self._workers)
        for process, worker in zip(self._workers, self._life.workers, strict=True):
            if worker.kill is not None:
                kills[worker.kill.where] += process.code == -signal.SIGKILL
                counts["not_reached"] += process.code == 0
        if self._reader is not None:
            looks[str(self._life.reader)] += len(self._looks())
            counts["beside_a_reader"] += sum(process.code == -signal.SIGKILL for process in self._workers)
            counts["readers_killed_beside_a_worker"] += self._reader.killed_early

    def _reader_lives(self) -> bool:
        return self._reader is not None and self._reader.alive

    def _looks(self) -> list[tuple[int, str]]:
        """The exit code of each look of this life's reader, and what was said where it was not 0."""
        if self._reader is None:
            return []
        told = read_lines(self._folder / LOOKS_FILE)
        return [(int(code), words) for pid, code, words in told if int(pid) == self._reader.pid]

    def _until(self, over: Callable[[], bool]) -> bool:
        """Ask again and again; False when it took too long."""
        pause, deadline = threading.Event(), time.monotonic() + PATIENCE_S
        while not over():
            if time.monotonic() > deadline:
                return False
            pause.wait(PAUSE_S)
        return True


class _Process:
    """A child in a session of its own, with what it said in a file."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        self._output = folder / f"{words[0]}-{words[-1]}.txt".replace(" ", "-")
        self.killed_early = False
        with self._output.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env=surroundings(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def code(self) -> int:
        return self._child.returncode

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Send SIGKILL, unless it is gone."""
        if self.alive:
            self._child.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        self._child.wait()
