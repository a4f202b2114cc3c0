"""Starts single lives of a contender and reads what they tell and what their witness saw."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from bench.peers.environments import clean_environ
from bench.peers.roster import Contender

LIMIT_S = 180
_SYNC_CALLS = "fsync,fdatasync,sync_file_range,msync"


class LifeFailed(Exception):
    """A life ended otherwise than it had to; the message holds the last words of its standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one life told, and when it was started (ns, CLOCK_MONOTONIC, which parent and child share)."""

    answer: dict[str, Any]
    spawned_ns: int

    @property
    def process_s(self) -> float:
        """Seconds from the start of the process to the first body."""
        return (int(self.answer["first_body_ns"]) - self.spawned_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One contender with its interpreter and a folder that every life of it gets emptied, or as a kill has left it."""

    contender: Contender
    python: str
    folder: Path

    def command(self, steps: int, *more: str, after_fault: bool = False) -> list[str]:
        """Return the command line of a life of `steps` steps."""
        option = self.contender.fault_option if after_fault else None
        option = option or self.contender.option
        chosen = ["--option", option] if option else []
        return [
            *(self.python, str(self.contender.path), "--steps", str(steps)),
            *("--db", str(self.folder), "--json", *chosen, *more),
        ]

    def live(self, steps: int, *more: str, after_fault: bool = False) -> Told:
        """Run a life to its end and return what it told; LifeFailed when it told nothing."""
        command = self.command(steps, *more, after_fault=after_fault)
        spawned_ns, done = self._run(command)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or not lines:
            raise LifeFailed(f"{self.contender.script} ended with exit code {done.returncode}: {_last_words(done)}")
        return Told(answer=json.loads(lines[-1]), spawned_ns=spawned_ns)

    def die(self, steps: int, kill_at: int, *more: str) -> None:
        """Run a life that is killed inside step `kill_at`; LifeFailed when it ended in any other way."""
        command = self.command(steps, "--kill-at", str(kill_at), *more, after_fault=True)
        _, done = self._run(command)
        if done.returncode != -signal.SIGKILL:
            raise LifeFailed(f"{self.contender.script} was not killed, it ended: {_last_words(done)}")
        time.sleep(self.contender.rest_s)

    def count_syncs(self, steps: int, log: Path) -> int | None:
        """Return the sync calls of a whole life, counted by strace; None where strace is not there or may not trace."""
        strace = shutil.which("strace")
        if strace is None:
            return None
        traced = [strace, "-f", "-qq", "--seccomp-bpf", "-e", f"trace={_SYNC_CALLS}", "-o", str(log)]
        _, done = self._run([*traced, *self.command(steps)])
        if done.returncode != 0:
            return None
        return sync_calls(log.read_text(encoding="utf-8", errors="replace"))

    def emptied(self) -> Arena:
        """Empty the folder and return self."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def settled_bytes(self) -> int:
        """Fold every WAL into its database and return the size of all files."""
        for path in sorted(self.folder.iterdir()):
            if path.with_name(path.name + "-wal").exists():
                connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
                connection.pragma("schema_version")  # a connection that has read nothing does not know of the WAL yet
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                connection.close()
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _run(self, command: list[str]) -> tuple[int, subprocess.CompletedProcess[str]]:
        spawned_ns = time.monotonic_ns()
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=clean_environ(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LifeFailed(f"{self.contender.script} did not end within {LIMIT_S} s") from None
        return spawned_ns, done


def sync_calls(trace: str) -> int:
    """Count the calls in a trace of strace; a call that was interrupted by another thread's line is one call."""
    names = tuple(f"{name}(" for name in _SYNC_CALLS.split(","))
    return sum(line.split(None, 1)[-1].startswith(names) for line in trace.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the witness saw of two lives around a kill inside step `kill_at` of `steps` steps.

    `run_again`: finished steps (the next one had begun) whose body ran again in the second life. `killed_body_ran`:
    how often the body of the killed step ran. `never_ran`: steps whose body never ran.
    """

    run_again: int
    killed_body_ran: int
    never_ran: int


def seen(witness: str, *, steps: int, kill_at: int) -> Seen:
    """Return what a witness file says."""
    bodies = Counter(int(line) for line in witness.splitlines())
    return Seen(
        run_again=sum(bodies[i] > 1 for i in range(kill_at)),
        killed_body_ran=bodies[kill_at],
        never_ran=sum(bodies[i] == 0 for i in range(steps)),
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip()[:200].replace(os.getcwd(), ".") if lines else "it said nothing"
