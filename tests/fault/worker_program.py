"""A program for workers: runs of a few steps each, which note in a file that they ran."""

from __future__ import annotations

import os
import time

from agent_run_ledger import RunLedger

STEPS = 4
NOTES, PAUSE = "TEST_NOTES", "TEST_PAUSE_S"

ledger = RunLedger()


@ledger.step
def work(number: int, at: int) -> str:
    time.sleep(float(os.environ.get(PAUSE, "0.02")))
    with open(os.environ[NOTES], "a", encoding="ascii") as file:  # one short write: whole, whoever writes beside it
        file.write(f"{number}:{at}\n")
    return f"{number}:{at}"


@ledger.entry
def job(number: int) -> list[str]:
    return [work(number, at) for at in range(STEPS)]
