"""`arl worker`: begins the runs of a queue and goes on with those that were left behind, until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from agent_run_ledger.cli.failures import INTERRUPTED, conclude
from agent_run_ledger.cli.options import Json
from agent_run_ledger.cli.programs import Program, Queue, load_ledger
from agent_run_ledger.errors import LedgerError

if TYPE_CHECKING:
    from agent_run_ledger.worker import Tally, Told, Worker

Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, max=1024, metavar="N", help="How many runs at once.")
]
Poll = Annotated[
    float, typer.Option("--poll", min=0.01, max=86_400, metavar="SECONDS", help="How often to look for runs.")
]
Pending = Annotated[
    float,
    typer.Option(
        "--pending",
        min=0,
        max=86_400,
        metavar="SECONDS",
        help="How long what waits for nobody knows what is left alone.",
    ),
]
Drain = Annotated[
    float,
    typer.Option("--drain", min=0, max=86_400, metavar="SECONDS", help="How long runs may go on after SIGTERM."),
]
MaxDeaths = Annotated[
    int,
    typer.Option(
        "--max-deaths",
        min=0,
        max=1000,
        metavar="N",
        help="After so many processes in a row that ended in one call, the run goes into QUARANTINE; 0: never.",
    ),
]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when nothing is left to be begun or gone on with.")]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def worker(
    program: Program,
    concurrency: Concurrency = 4,
    queue: Queue = None,
    poll_s: Poll = 0.5,
    pending_s: Pending = 60.0,
    drain_s: Drain = 25.0,
    most_deaths: MaxDeaths = 10,
    until_idle: UntilIdle = False,
    as_json: Json = False,
) -> None:
    """Work on the runs of a queue: begin those submitted, go on with those that a dead worker left, wake those that
    waited for people.

    SIGTERM or Ctrl-C: nothing new is taken, and what is in hand may end; what does not in time stands where it is, and
    the next worker goes on with it. A second one ends it at once. What happens is told on stderr.
    """
    from agent_run_ledger.cli.copies import log_on_stderr
    from agent_run_ledger.worker import Worker, WorkerSettings

    settings = WorkerSettings(
        concurrency=concurrency, poll_s=poll_s, pending_s=pending_s, drain_s=drain_s, most_deaths=most_deaths
    )
    ledger = load_ledger(program)
    at_work = Worker(ledger, queue=queue, settings=settings, tell=_teller(as_json=as_json))
    with log_on_stderr(), _stopped_by_signals(at_work):
        try:
            tally = at_work.run(until_idle=until_idle)
        except LedgerError as error:
            if not _goes_on(at_work):
                raise
            _end(conclude(error, as_json=as_json, debug=False))
    _show(tally, as_json=as_json)
    if _goes_on(at_work):
        _end(0)
    ledger.close()


def _goes_on(at_work: Worker) -> bool:
    """Return whether threads of it are at work after its end."""
    return bool(at_work.tally.left or at_work.asks)


def _end(code: int) -> NoReturn:
    """End the process: its threads cannot be ended, and all that they did is on record."""
    with suppress(OSError, ValueError):  # who read it went away
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def _stopped_by_signals(at_work: Worker) -> Generator[None]:
    """Drain at the first signal inside the block, and end the process at the second one."""
    asked = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        if asked.is_set():
            os._exit(INTERRUPTED)
        asked.set()
        at_work.stop()

    before = {one: signal.signal(one, stop) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _teller(*, as_json: bool) -> Callable[[Told], None]:
    """Return what tells of each thing that happens, on one line of stderr."""
    from agent_run_ledger.cli.output import note, to_json
    from agent_run_ledger.cli.words import clean

    def tell(told: Told) -> None:
        if as_json:
            note(to_json(told._asdict()))
        else:
            note(clean(" ".join(part for part in (told.event, told.run_id, told.words) if part)))

    return tell


def _show(tally: Tally, *, as_json: bool) -> None:
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.words import counted

    outcomes = {str(outcome): count for outcome, count in sorted(tally.outcomes.items())}
    if as_json:
        print_json({**outcomes, "trouble": tally.trouble, "left": tally.left})
        return
    said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "nothing was to do"
    say(said)
    if tally.left:
        say(f"{counted(tally.left, 'run')} stand where they were; the next worker goes on with them")
