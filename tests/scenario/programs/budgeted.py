"""Runs with budgets, which die between what they reserve and what they settle."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from agent_run_ledger import Budget, BudgetExceeded, Reserve, RunLedger, Step, report_usage
from agent_run_ledger.testing import BodyCounter
from tests.contract.budget_kit import Hand

RUN_ID = "budgeted"
MAX_CALLS, PARALLEL = 10, 4
USED, RESERVED, MAX_TOKENS = 100, 150, 400
WORKER = "ARL_TEST_WORKER"


def sixteen(workdir: Path) -> str:
    """Sixteen steps, four at once, against ten calls; in the first life all four bodies have begun when it dies."""
    bodies = BodyCounter(workdir / "bodies.log")
    together = threading.Barrier(PARALLEL)

    def body(at: int) -> int:
        bodies.ran("call", at)
        if os.environ["ARL_LIFE"] == "1":
            together.wait(30)
            os.kill(os.getpid(), signal.SIGKILL)
        return at

    with RunLedger(RUN_ID, workdir / "ledger.db", budget=Budget(max_calls=MAX_CALLS), max_parallel=PARALLEL) as ledger:
        for at in range(16):
            ledger.add(Step(lambda at=at: body(at), name=f"call {at}"))  # type: ignore[misc]
        return _outcome(ledger)


def branches(workdir: Path) -> str:
    """The same in a dynamic run: sixteen branches, four at once, and the first four are killed in their bodies."""
    bodies = BodyCounter(workdir / "bodies.log")
    together = threading.Barrier(PARALLEL)
    with RunLedger(RUN_ID, workdir / "ledger.db", budget=Budget(max_calls=MAX_CALLS), max_parallel=PARALLEL) as ledger:

        @ledger.tool(safe=True)
        def search(at: int) -> int:
            bodies.ran("call", at)
            if os.environ["ARL_LIFE"] == "1":
                together.wait(30)
                os.kill(os.getpid(), signal.SIGKILL)
            return at

        try:
            with ledger.run() as run:
                return f"result {run.map(search, range(16))}"
        except BudgetExceeded as error:
            return error.message


def chain(workdir: Path) -> str:
    """Five calls one after the other that use 100 tokens each, declare 150, and may use 400; one step has a budget."""
    bodies = BodyCounter(workdir / "bodies.log")

    def body(at: int) -> int:
        bodies.ran("call", at)
        report_usage(model="m", input_tokens=USED, output_tokens=0)
        return at

    with RunLedger(RUN_ID, workdir / "ledger.db", budget=Budget(max_tokens=MAX_TOKENS)) as ledger:
        for at in range(5):
            ledger.add(
                Step(
                    lambda at=at: body(at),  # type: ignore[misc]
                    name=f"call {at}",
                    depends_on=[f"call {at - 1}"] if at else [],
                    reserves=Reserve(tokens=RESERVED),
                    budget=Budget(max_calls=2) if at == 1 else None,
                )
            )
        return _outcome(ledger)


def worker(workdir: Path) -> int:
    """Call what it can within the run "parent", in a run of its own; return how many bodies it ran."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("unused", workdir / "ledger.db") as ledger:
        parent = ledger._opened.context().store.reader().find_run("parent")
        hand = Hand(ledger, f"child {os.environ[WORKER]}", within=parent)
        count = 0
        try:
            for count in range(16):
                started = hand.begin()
                bodies.ran("call", count)
                if os.environ[WORKER] == "0":
                    os.kill(os.getpid(), signal.SIGKILL)
                hand.end(started)
        except BudgetExceeded:
            return count
        raise AssertionError("a budget of ten let sixteen calls start")


def _outcome(ledger: RunLedger) -> str:
    try:
        return f"result {ledger.execute()}"
    except BudgetExceeded as error:
        return error.message
