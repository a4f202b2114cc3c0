"""unhinged as a contender: one task with a step per step, worked on in this process."""

from __future__ import annotations

import sys
import time
from typing import Any

from protocol import Life, Result
from unhinged import Unhinged

TASK = "chain"


def main(life: Life) -> None:
    """Spawn the task and work on it; a resume waits until the claim of the dead worker has expired.

    `--option` is the claim timeout in seconds (unhinged's own default is 120).
    """
    claim_s = int(life.option or 120)
    app = Unhinged(life.path("unhinged.db"), queue_name="bench")
    last: list[Result] = []

    @app.register_task(TASK)
    def chain(params: dict[str, int], context: Any) -> None:
        for i in range(params["steps"]):
            last[:] = [context.step(f"step_{i}", lambda i=i: life.body(i))]

    app.create_queue("bench")
    ask = app.engine.connection.execute
    life.uses(
        journal_mode=ask("PRAGMA journal_mode").fetchone()[0],
        synchronous=ask("PRAGMA synchronous").fetchone()[0],
        sqlite=ask("SELECT sqlite_version()").fetchone()[0],
    )
    life.start()
    if not life.resume:
        app.spawn(TASK, {"steps": life.steps})
    while not app.work_batch("worker", claim_s, 1):
        time.sleep(0.005)
    life.end(last[0])


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
