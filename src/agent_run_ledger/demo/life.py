"""One life of the demonstration: a process that runs or resumes the audit, and may be told to kill itself."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent_run_ledger import RunLedger
from agent_run_ledger.demo.endpoint import AnswerLost, EndpointBusy
from agent_run_ledger.demo.job import Job, read_job
from agent_run_ledger.demo.meter import Meter
from agent_run_ledger.demo.pipeline import Audit, write_text
from agent_run_ledger.demo.reviewers import reviewer_from
from agent_run_ledger.errors import LedgerError, Unavailable, Uncertain

MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
"""The imports and numbers of the largest tree that `collect` accepts are a few tens of MiB."""


def main(argv: Sequence[str] | None = None) -> int:
    """Live once and return an exit code; errors of the tree end as one JSON line on stdout for the driver."""
    parser = argparse.ArgumentParser(prog="python -m agent_run_ledger.demo.life", description=__doc__)
    parser.add_argument("--folder", required=True, type=Path, help="the demo's folder, with its job.json")
    parser.add_argument("--life", required=True, type=int, help="which life this is, from 1")
    parser.add_argument("--kill-in", default="", help="step in which to die by SIGKILL, after its answer was paid")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # the audited files' SyntaxWarnings are not about this program
    try:
        live(read_job(arguments.folder), life=arguments.life, kill_in=arguments.kill_in)
    except LedgerError as error:
        return _tell_error(error)
    except EndpointBusy as error:
        return _tell_error(Unavailable(str(error), code="endpoint_busy"))
    except AnswerLost as error:
        return _tell_error(Uncertain(str(error), code="answer_lost"))
    return 0


def live(job: Job, *, life: int, kill_in: str) -> None:
    """Run the audit, or go on where an earlier life stopped.

    With `kill_in` this process ends by SIGKILL inside that step: after its answer was metered, before any record.
    SIGTERM and SIGINT drain: bodies that run are finished and recorded, no other begins, then Unavailable("stopped").
    """
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        _tell(b'{"event": "stopping"}\n')

    def refuse_when_stopping(step: str) -> None:
        if stopping.is_set():
            raise Unavailable(f"stopped before step {step!r}", code="stopped")

    def die(step: str) -> None:
        if step == kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    audit = Audit(
        reviewer=reviewer_from(os.environ),
        meter=Meter(job.meter, life=life, echo=_tell),
        before_body=refuse_when_stopping,
        after_paid=die,
    )
    with RunLedger(run_id=job.run_id, db_path=job.database, max_payload_bytes=MAX_PAYLOAD_BYTES) as ledger:
        for step in audit.steps(job.reviews):
            ledger.add(step)
        text = ledger.execute(roots=list(job.roots), label=job.label, report_path=str(job.report))
    if not job.report.exists():  # a completed run returns its recorded report and runs nothing
        write_text(job.report, text)


def _tell_error(error: LedgerError) -> int:
    answer = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == LedgerError.__module__)
    told = {"error": answer, "code": error.code, "message": error.message, "hint": error.hint}
    _tell(json.dumps(told).encode("utf-8") + b"\n")
    return error.exit_code


def _tell(line: bytes) -> None:
    with suppress(OSError):  # the driver may be gone; the run goes on without an audience
        os.write(1, line)


if __name__ == "__main__":
    sys.exit(main())
