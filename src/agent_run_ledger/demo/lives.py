"""Start a life as a child process, watch it, and keep how it ended."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_run_ledger import errors
from agent_run_ledger.demo.facts import Life
from agent_run_ledger.demo.job import Job
from agent_run_ledger.errors import LedgerError, Tampered, Unavailable

DRAIN_S = 150.0
"""How long a life that was asked to stop may take to finish its bodies; a model's answer takes 120 s at most."""


class _Stopped(BaseException):
    """SIGTERM arrived in the driver; BaseException so that nobody takes it for a fault of the life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A life that ended, and the error it told before, if any."""

    life: Life
    error: LedgerError | None


def run_life(job: Job, number: int, *, kill_in: str, on_line: Callable[[dict[str, Any]], None]) -> Ended:
    """Run one life to its end and append how it ended to `job.lives`. `on_line` sees the meter's lines as they come.

    Ctrl-C and SIGTERM are passed on: the life drains, and Unavailable("stopped") is raised when it has ended.
    """
    command = [sys.executable, "-P", "-m", "agent_run_ledger.demo.life", "--folder", str(job.folder)]
    command += ["--life", str(number), *(["--kill-in", kill_in] if kill_in else [])]
    began = time.monotonic()
    # -P: the audited tree may be the current directory, and nothing of it may be imported.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child, _sigterm_raises():
        try:
            error = _listen(child, on_line)
            code = child.wait()
        except (KeyboardInterrupt, _Stopped):
            code = _drain(child)
            error = Unavailable("the demo was stopped; what was recorded stays", code="stopped")
        finally:
            if child.poll() is None:
                child.kill()
    life = Life(
        number=number,
        pid=child.pid,
        exit_code=max(code, 0),
        signal=max(-code, 0),
        wall_ms=round(1000 * (time.monotonic() - began)),
    )
    _keep(job, life)
    return Ended(life=life, error=error)


def read_lives(path: Path) -> list[Life]:
    """Return all lives in the order they ended; a line that is none is Tampered."""
    if not path.exists():
        return []
    try:
        return [Life(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise Tampered(f"{path} does not list lives: {error}", code="lives") from error


def _listen(child: subprocess.Popen[bytes], on_line: Callable[[dict[str, Any]], None]) -> LedgerError | None:
    """Read until the child closes its end, which it does by ending; return the error it told last."""
    told: LedgerError | None = None
    for line in child.stdout or ():
        with suppress(ValueError):
            said: dict[str, Any] = json.loads(line)
            if "error" in said:
                told = _error_of(said)
            else:
                on_line(said)
    return told


def _error_of(said: dict[str, Any]) -> LedgerError:
    kind = getattr(errors, str(said["error"]), LedgerError)
    if not (isinstance(kind, type) and issubclass(kind, LedgerError)) or issubclass(kind, errors.Unstorable):
        kind = LedgerError
    return kind(str(said.get("message")), code=str(said.get("code")), hint=str(said.get("hint") or ""))


def _drain(child: subprocess.Popen[bytes]) -> int:
    with suppress(ProcessLookupError):
        child.terminate()
    try:
        # What it still says is read and dropped, so that a full pipe cannot hold it up.
        child.communicate(timeout=DRAIN_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
    return child.wait()


@contextmanager
def _sigterm_raises() -> Generator[None]:
    """While a life runs, let SIGTERM reach us as an exception; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep(job: Job, life: Life) -> None:
    line = {
        "number": life.number,
        "pid": life.pid,
        "exit_code": life.exit_code,
        "signal": life.signal,
        "wall_ms": life.wall_ms,
    }
    with job.lives.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def next_commands(job: Job) -> Sequence[str]:
    """Return what to type to look at the run, ready to be pasted into a shell."""
    arl, database = shlex.quote(arl_command()), shlex.quote(from_here(job.database))
    return (
        f"{arl} runs show {job.run_id} --db {database}",
        f"{arl} usage {job.run_id} --db {database}",
        f"{arl} verify --db {database}",
    )


def arl_command() -> str:
    """Return how this program's own command is called from here: by name where the shell finds it, else by path."""
    beside = Path(sys.executable).parent / "arl"
    return "arl" if shutil.which("arl") or not beside.exists() else from_here(beside)


def from_here(path: Path) -> str:
    """Return a path as it is shortest to type in the current folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
