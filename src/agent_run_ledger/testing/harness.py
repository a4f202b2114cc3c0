"""Runs one life of a scenario in a real child process, which may be killed at a named point."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent_run_ledger.store.ledger_place import DB_VARIABLE, LEDGER_FILE
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from agent_run_ledger.testing.orders import Left, Order
from agent_run_ledger.testing.points import KillPoint
from agent_run_ledger.testing.scenarios import absolute

DEFAULT_TIMEOUT_S = 60.0


class Exit(StrEnum):
    """How a life ended."""

    KILLED = "killed"
    OK = "ok"
    ERROR = "error"


class LifeTimeout(AssertionError):
    """A life did not end in time; it and everything it started were killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One child process from its start to its end.

    `signal` is the number of the signal that ended it, 0 for none. `points_reached` says how often each named point
    was reached, up to and with the kill. `result` is what the scenario returned, `error` the type and text of what it
    raised. `exit` is KILLED for any deadly signal, OK only when the scenario returned and the process ended with 0.
    """

    exit: Exit
    signal: int
    points_reached: Mapping[str, int]
    result: Any
    error: str
    stdout: str
    stderr: str

    def describe(self) -> str:
        """Return a few lines for a message: how it ended and the end of what it said."""
        how = f"killed by signal {self.signal}" if self.signal else str(self.exit)
        said = "".join(f"\n  | {line}" for line in (self.stdout + self.stderr).splitlines()[-25:])
        return f"{how} {self.error}".rstrip() + said


class RunningLife:
    """A life that was started. Wait for it exactly once; as a context manager it is killed if it is still there."""

    def __init__(self, child: subprocess.Popen[bytes], folder: Path) -> None:
        self._child = child
        self._folder = folder

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def send(self, number: int) -> None:
        """Send the child a signal."""
        self._child.send_signal(number)

    def wait(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Life:
        """Return how the life went, and kill what it left behind. Raises LifeTimeout after `timeout_s` seconds."""
        try:
            code = self._child.wait(timeout_s)
            return _life(code, self._folder)
        except subprocess.TimeoutExpired:
            said = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")
            raise LifeTimeout(f"a life did not end within {timeout_s} s\n{said}") from None
        finally:
            self.end()

    def end(self) -> None:
        """Kill the child and everything it started; remove its orders. A second call does nothing."""
        _end_group(self._child.pid)
        self._child.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> RunningLife:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the life."""
        self.end()


def start_scenario(
    scenario: str,
    workdir: str | os.PathLike[str],
    *,
    kill_at: KillPoint | None = None,
    life: int = 1,
    env: Mapping[str, str] | None = None,
) -> RunningLife:
    """Start one life of `scenario` in a child process and return at once. See `run_scenario`."""
    folder = Path(tempfile.mkdtemp(prefix="arl-life-"))
    where = Path(workdir).resolve()
    order = Order(scenario=absolute(scenario), workdir=str(where), kill_at=kill_at).write(folder)
    surroundings = {**os.environ, DB_VARIABLE: str(where / LEDGER_FILE), LIFE_VARIABLE: str(life), **(env or {})}
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", "agent_run_ledger.testing.child", str(order)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=surroundings,
            start_new_session=True,
        )
    return RunningLife(child, folder)


def run_scenario(
    scenario: str,
    workdir: str | os.PathLike[str],
    *,
    kill_at: KillPoint | None = None,
    life: int = 1,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Life:
    """Run `scenario` ("module:function" or "file.py:function") once in a child process and return how that went.

    The child gets `workdir` as the function's argument and as its AGENT_RUN_LEDGER_DB the file `ledger.db` in it, then
    what `env` adds. With `kill_at` it kills itself with SIGKILL there: no handler, no `finally`, no `atexit` runs. What
    it started and left behind is killed too. Raises LifeTimeout after `timeout_s` seconds.
    """
    return start_scenario(scenario, workdir, kill_at=kill_at, life=life, env=env).wait(timeout_s)


def _end_group(pid: int) -> None:
    """Kill what the child started: a new session's processes share the child's group, also after its death."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _life(code: int, folder: Path) -> Life:
    left = Left.read(folder)
    if code < 0:
        how = Exit.KILLED
    elif code == 0 and left.finished:
        how = Exit.OK
    else:
        how = Exit.ERROR
    return Life(
        exit=how,
        signal=-code if code < 0 else 0,
        points_reached=left.points_reached,
        result=left.result if how is Exit.OK else None,
        error=left.error,
        stdout=(folder / "stdout").read_text(encoding="utf-8", errors="replace"),
        stderr=(folder / "stderr").read_text(encoding="utf-8", errors="replace"),
    )
