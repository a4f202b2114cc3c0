"""The work that everything here measures: chained steps that each return about 1 KiB of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_run_ledger import Misuse, RunLedger, Step

PAYLOAD = "x" * 985

Result = dict[str, object]
Entered = Callable[[int], None]


def result(i: int) -> Result:
    """Return the result of step `i`: 1,015 bytes of compact JSON for a 4-digit `i`."""
    return {"i": i, "ok": True, "data": PAYLOAD}


def chain(count: int, entered: Entered | None = None) -> list[Step[..., Any]]:
    """Return `count` steps of which each takes the result of the one before; `entered(i)` is called in body `i`."""
    names = [f"step_{i}" for i in range(count)]
    steps: list[Step[..., Any]] = []
    for i, name in enumerate(names):
        before = names[i - 1 : i] if i else []
        steps.append(Step(_body(i, entered), name=name, depends_on=before))
    return steps


def create_store(path: str, *, durability: str = "full") -> None:
    """Make a store at `path`, by a run of one step: looking at a store makes none."""
    with RunLedger("first", path, steps=chain(1), durability=durability) as ledger:
        ledger.execute()


def opened(run_id: str, path: str, steps: list[Step[..., Any]]) -> RunLedger:
    """Return a ledger whose store exists and is open, as the floor's is when its time begins."""
    ledger = RunLedger(run_id, path, steps=steps)
    if ledger.bind(run_id).state is not None:
        raise Misuse(f"run {run_id!r} of the benchmark is not new", code="run_exists")
    return ledger


def _body(i: int, entered: Entered | None) -> Callable[..., Result]:
    def enter() -> Result:
        if entered is not None:
            entered(i)
        return result(i)

    def first() -> Result:
        return enter()

    def later(previous: dict[str, object]) -> Result:
        return enter()

    return later if i else first
