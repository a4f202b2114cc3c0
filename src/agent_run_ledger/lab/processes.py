"""Starts the lab's processes, waits for them, and keeps a line about each in the log of its exercise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final

from agent_run_ledger.lab.order import Incomplete, Order, Report

LIMIT_S: Final = 120.0
"""A process that takes longer is killed, and the lab is incomplete. It says nothing about how long they should take."""

_MAX_WORDS = 500
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Process:
    """One process of the lab. Use as a context manager: it does not outlive its block."""

    def __init__(self, order: Order, env: Mapping[str, str]) -> None:
        # -P: whatever lies in the current directory is not imported.
        command = [sys.executable, "-P", "-m", "agent_run_ledger.lab.worker", order.line()]
        pipe = subprocess.PIPE
        self._order = order
        self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8", env={**os.environ, **env}
        )
        self._watchdog = threading.Timer(LIMIT_S, self._give_up)
        self._opened = ""
        self._too_late = False

    def __enter__(self) -> Process:
        """Begin to watch its time."""
        self._watchdog.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Kill it where it still runs."""
        self._watchdog.cancel()
        self._child.kill()
        self._child.communicate()

    def until_open(self) -> None:
        """Wait until it has the database open, or has ended."""
        self._opened = self._child.stdout.readline() if self._child.stdout else ""

    def go(self) -> None:
        """Let it go on."""
        with suppress(BrokenPipeError):  # it ended, and `end` finds how
            if self._child.stdin:
                self._child.stdin.write("go\n")
                self._child.stdin.flush()

    def end(self, log: Path) -> Report:
        """Wait for its end, log it, and return what it reported. Incomplete where it did not end as it was to."""
        said, words = self._child.communicate()
        code = self._child.returncode
        facts: dict[str, Any] = {}
        for line in (self._opened + said).splitlines():
            facts |= json.loads(line)
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        told = {"pid": self._child.pid, "order": asdict(self._order), "ended": ended, "report": facts, "stderr": words}
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")
        if self._too_late or code != (-signal.SIGKILL if self._order.die_at else 0):
            late = f" after {LIMIT_S:g} s" if self._too_late else ""
            who = f"process {self._child.pid} ({self._order.role}, {self._order.worker})"
            raise Incomplete(f"{who} ended with {ended}{late}: {words.strip()[-_MAX_WORDS:] or 'it said nothing'}")
        facts["not_protected"] = tuple(facts.get("not_protected", ()))
        return Report(**facts)

    def _give_up(self) -> None:
        self._too_late = True
        self._child.kill()


def run(order: Order, log: Path, env: Mapping[str, str] = _NONE) -> Report:
    """Run one process to its end, which may be a death by its own order, and return its report."""
    with Process(order, env) as process:
        return process.end(log)


def race(orders: Sequence[Order], log: Path, env: Mapping[str, str] = _NONE) -> list[Report]:
    """Start a process for each order, let all go at once when all are ready, and return their reports in order."""
    with ExitStack() as stack:
        processes = [stack.enter_context(Process(order, env)) for order in orders]
        for process in processes:
            process.until_open()
        for process in processes:
            process.go()
        return [process.end(log) for process in processes]
