"""One process of a life: `python -m tests.campaign.child FOLDER SEED LIFE WORKER` executes the runs of one worker."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from threading import Thread

from agent_run_ledger import RunLedger, probes
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.testing import WatchedDisk
from agent_run_ledger.testing.tally import Tally
from tests.campaign.meter import Meter, append
from tests.campaign.programs import Broken, digest_of, steps_of
from tests.campaign.stories import Life, Worker, story_of

ENDS_FILE = "ends.log"
WAIT_S = 60.0


def main(folder: Path, seed: int, life: int, worker: int) -> None:
    """Execute the worker's runs and write down how each one ended."""
    story = story_of(seed)
    mine, now = story.lives[life - 1].workers[worker], story.lives[life - 1]
    if mine.kill is not None and mine.kill.point is not None:
        tally = Tally(mine.kill.point, lambda _: None)
        probes.install(tally)
        WatchedDisk(tally).install()

    def live(run: str) -> None:
        end = _execute(folder, now, mine, run, Meter(folder, life), story.inputs[run])
        append(folder / ENDS_FILE, life, os.getpid(), run, end)

    if mine.threads:
        threads = [Thread(target=live, args=(run,)) for run in mine.runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for run in mine.runs:
            live(run)


def _execute(folder: Path, life: Life, worker: Worker, run: str, meter: Meter, x: int) -> str:
    """Return how `execute` ended: "result" and its digest, "raised" and the step, or the name of the error."""
    program = life.programs[run]
    with RunLedger(
        run,
        folder / LEDGER_FILE,
        steps=steps_of(program, run, meter),
        max_parallel=program.max_parallel,
        on_change=program.on_change,
        durability=life.durability,
    ) as ledger:
        bound = ledger.bind(run, wait_s=WAIT_S if worker.manner == "wait" else 0, takeover=worker.manner == "takeover")
        try:
            result = asyncio.run(bound.aexecute(x=x)) if worker.on_loop else bound.execute(x=x)
        except Broken as error:
            return f"raised {error}"
        except LedgerError as error:
            return f"{type(error).__name__} {error.code}"
    return f"result {digest_of(result)}"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
