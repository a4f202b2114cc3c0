"""Starts the benchmark's child processes and reads the one line of JSON that each of them prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from agent_run_ledger.errors import Unavailable

READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """How a child ended: what it printed, and when it was started (ns, CLOCK_MONOTONIC)."""

    answer: Any
    spawned_ns: int
    exit_code: int


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package in a new interpreter."""
    return [sys.executable, "-m", f"agent_run_ledger.benchmark.{module}", *arguments]


def json_of_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of this package in a child and return what it printed; Unavailable when it failed."""
    answer: dict[str, Any] = live(command(module, *arguments)).answer
    return answer


def live(arguments: Sequence[str], *, dies: bool = False) -> Lived:
    """Run a child to its end. `dies`: a child that is killed, or that prints nothing, is no failure."""
    spawned_ns = time.monotonic_ns()
    ended = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=False)
    lines = ended.stdout.splitlines()
    if not dies and (ended.returncode != 0 or not lines):
        raise failed(arguments, ended.returncode)
    return Lived(answer=json.loads(lines[-1]) if lines else {}, spawned_ns=spawned_ns, exit_code=ended.returncode)


def race(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Run children side by side, all let go in the same moment, and return what each printed, in order.

    Each child must print READY when it is set up, then wait for the end of its standard input. One that fails
    answers {"error": ...}.
    """
    starting_line, gun = os.pipe()
    children: list[subprocess.Popen[str]] = []
    try:
        children.extend(
            subprocess.Popen(one, stdin=starting_line, stdout=subprocess.PIPE, text=True) for one in commands
        )
        for child in children:
            if child.stdout is not None:
                child.stdout.readline()
    finally:
        os.close(gun)
        os.close(starting_line)
    answers: list[dict[str, Any]] = []
    for child in children:
        with child:
            lines = _read(child.stdout).splitlines()
        ended_well = child.returncode == 0 and bool(lines)
        answers.append(json.loads(lines[-1]) if ended_well else {"error": f"exit code {child.returncode}"})
    return answers


def failed(arguments: Sequence[str], exit_code: int) -> Unavailable:
    """Return the error for a child that ended badly; it has said why on standard error."""
    return Unavailable(f"a child of the benchmark failed with exit code {exit_code}: {' '.join(arguments[1:])}")


def _read(stream: IO[str] | None) -> str:
    return "" if stream is None else stream.read()
