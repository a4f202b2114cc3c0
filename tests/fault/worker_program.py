"""A program for workers: runs of a few steps each, which note in a file that they ran."""

from __future__ import annotations

import os
import time

from agent_run_ledger import RunLedger

STEPS = 4
NOTES, PAUSE, QUEUE, FIRST = "TEST_NOTES", "TEST_PAUSE_S", "TEST_QUEUE", "TEST_FIRST"
"""`FIRST`: the number of the first step, by which two versions of this program differ."""
DEADLY = "TEST_DEADLY"
"""The number of the run whose steps end their process, as a library does that is broken."""

ledger = RunLedger(queue=os.environ.get(QUEUE, "default"))


@ledger.step
def work(number: int, at: int) -> str:
    if os.environ.get(DEADLY) == str(number):
        os._exit(137)
    time.sleep(float(os.environ.get(PAUSE, "0.02")))
    with open(os.environ[NOTES], "a", encoding="ascii") as file:  # one short write: whole, whoever writes beside it
        file.write(f"{number}:{at}\n")
    return f"{number}:{at}"


@ledger.entry
def job(number: int) -> list[str]:
    first = int(os.environ.get(FIRST, "0"))
    return [work(number, at) for at in range(first, first + STEPS)]
