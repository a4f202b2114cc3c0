"""`arl demo`: audit a tree in a life that is killed and in one that finishes it, and tell what each of them cost."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_run_ledger.demo.audit.collect import collect_tree
from agent_run_ledger.demo.audit.neutral import one_line
from agent_run_ledger.demo.facts import Life, merged, tally
from agent_run_ledger.demo.history import attempts_so_far, read_history, verified
from agent_run_ledger.demo.job import Job, job_file, read_job, write_job
from agent_run_ledger.demo.lives import Ended, next_commands, read_lives, run_life
from agent_run_ledger.demo.meter import read_meter
from agent_run_ledger.demo.outcome import PROVENANCE, Outcome, provenance, with_provenance
from agent_run_ledger.demo.pipeline import MAX_REVIEWS, step_names, write_text
from agent_run_ledger.demo.reviewers import reviewer_from
from agent_run_ledger.errors import LedgerError, Misuse, Refused, Unavailable

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_PACKAGES = ("asyncio", "email", "json")
DEFAULT_LABEL = "json, email and asyncio"
DEFAULT_FOLDER = "arl-demo"
MAX_FOLDERS = 1_000
_OTHER_FOLDER = "choose another folder: arl demo --output DIR"


class Audience(Protocol):
    """Who watches a demonstration."""

    def opening(self, job: Job, *, files: int, reviewer: str) -> None:
        """Say what is going to happen."""
        ...

    def life(self, number: int, steps: int) -> Callable[[dict[str, Any]], None]:
        """Say that a life begins, and return what is to be called with each line of its meter."""
        ...

    def over(self) -> None:
        """Take down what shows progress: the life is over, however it ended."""
        ...

    def ended(self, life: Life, killed_in: str) -> None:
        """Say how a life ended."""
        ...

    def closing(self, outcome: Outcome) -> None:
        """Show both lives side by side."""
        ...


def run_demo(
    path: Path | None = None,
    output_dir: Path | None = None,
    *,
    json: bool = False,
    kill: bool = True,
    console: Console | None = None,
) -> Outcome:
    """Audit `path` (default: json, email and asyncio of this interpreter) and show what a crash does and does not cost.

    With `kill` the first life ends by SIGKILL inside the last model call, after its answer was paid and before it
    could be recorded; a second process goes on. Everything is kept in `output_dir` (default: a new ./arl-demo,
    ./arl-demo-2, ...); an `output_dir` with an unfinished demo is gone on with, and then nothing is killed on
    purpose. `json` writes one JSON object and nothing else. Returns the measured facts; raises LedgerErrors only.
    """
    from agent_run_ledger.demo.screen import audience_for

    audience = audience_for(console, json=json)
    try:
        outcome = _demonstrate(path, output_dir, audience, kill=kill)
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        raise Unavailable(f"the demo stopped at a file{where}: {error.strerror}", code="demo_files") from error
    audience.closing(outcome)
    return outcome


def _demonstrate(path: Path | None, output_dir: Path | None, audience: Audience, *, kill: bool) -> Outcome:
    reviewer = reviewer_from(os.environ)
    job, resumed = _job(path, output_dir)
    names = step_names(job.reviews)
    audience.opening(job, files=len(collect_tree(job.roots).files), reviewer=reviewer.label)
    if kill and not resumed:
        first = _live(job, names, audience, kill_in="synthesise")
        if not first.life.signal:
            words = f"life {first.life.number} {first.life.ended} before it could be killed"
            raise Unavailable(words, code="not_killed", hint=_go_on(job))
    last = _live(job, names, audience, kill_in="")
    if last.life.signal or last.life.exit_code:
        raise Unavailable(f"life {last.life.number} {last.life.ended}", code="life_ended", hint=_go_on(job))
    outcome = _outcome(job, names, reviewer.label)
    write_text(job.report, with_provenance(job.report.read_text("utf-8"), provenance(outcome)))
    return outcome


def _job(path: Path | None, output_dir: Path | None) -> tuple[Job, bool]:
    """Return the job and whether it is one that was begun before."""
    if output_dir is not None and job_file(output_dir).exists():
        job = read_job(output_dir.resolve())
        if path is not None and _roots(path)[0] != job.roots:
            raise Misuse(f"{str(output_dir)!r} holds the demo of another tree", hint=_OTHER_FOLDER)
        if job.report.exists() and f"\n{PROVENANCE}\n" in job.report.read_text("utf-8"):
            raise Refused(f"the demo in {str(output_dir)!r} is finished", code="demo_finished", hint=_OTHER_FOLDER)
        return job, True
    roots, label = _roots(path)
    reviews = min(MAX_REVIEWS, collect_tree(roots).reviewable)
    job = Job(folder=_new_folder(output_dir), label=label, roots=roots, reviews=reviews)
    write_job(job)
    return job, False


def _roots(path: Path | None) -> tuple[tuple[str, ...], str]:
    if path is not None:
        absolute = Path(os.path.abspath(path))
        return (str(absolute),), one_line(absolute.resolve().name or str(absolute))
    import importlib.util

    found: list[str] = []
    for name in DEFAULT_PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not places or not Path(places[0]).is_dir():
            raise Refused(f"this interpreter has no source of {name!r} on disk", code="no_source", hint="arl demo PATH")
        found.append(places[0])
    version = ".".join(map(str, sys.version_info[:3]))
    return tuple(found), f"{DEFAULT_LABEL} of Python {version}"


def _new_folder(output_dir: Path | None) -> Path:
    """Make the folder of this demo; a given one may exist if it is empty."""
    try:
        if output_dir is not None:
            output_dir.mkdir(parents=True, exist_ok=True)
            if any(output_dir.iterdir()):
                raise Refused(f"{str(output_dir)!r} is not empty", code="folder_not_empty", hint=_OTHER_FOLDER)
            return output_dir.resolve()
        for number in range(1, MAX_FOLDERS):
            folder = Path(DEFAULT_FOLDER if number == 1 else f"{DEFAULT_FOLDER}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder.resolve()
    except OSError as error:
        where = str(output_dir or Path.cwd())
        words = f"cannot make a folder in {where!r}: {error.strerror}"
        raise Unavailable(words, code="no_folder", hint=_OTHER_FOLDER) from error
    raise Refused(f"there are {MAX_FOLDERS} folders {DEFAULT_FOLDER}-N here", code="no_folder", hint=_OTHER_FOLDER)


def _live(job: Job, names: tuple[str, ...], audience: Audience, *, kill_in: str) -> Ended:
    """Run the next life. Its number is the attempt it becomes in the ledger."""
    number = attempts_so_far(job.database, job.run_id) + 1
    on_line = audience.life(number, len(names))
    try:
        ended = run_life(job, number, kill_in=kill_in, on_line=on_line)
    finally:
        audience.over()
    where = f"{names.index(kill_in) + 1}, {kill_in}" if kill_in and ended.life.signal else ""
    audience.ended(ended.life, where)
    if ended.error is not None:
        raise _with_way_on(ended.error, job)
    return ended


def _with_way_on(error: LedgerError, job: Job) -> LedgerError:
    error.hint = f"{error.hint}; {_go_on(job)}" if error.hint else _go_on(job)
    return error


def _go_on(job: Job) -> str:
    return f"nothing recorded is lost: go on with `arl demo --output {shlex.quote(str(job.folder))}`"


def _outcome(job: Job, names: tuple[str, ...], reviewer: str) -> Outcome:
    history = read_history(job.database, job.run_id)
    proof = verified(job.database)
    counted = tally(names, merged(read_lives(job.lives)), read_meter(job.meter), history)
    return Outcome(
        job=job,
        reviewer=reviewer,
        state=history.state,
        tally=counted,
        proof=proof,
        next_commands=tuple(next_commands(job)),
    )
