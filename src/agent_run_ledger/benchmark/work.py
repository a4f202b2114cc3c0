"""The work that everything here measures: chained steps that each return about 1 KiB of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_run_ledger import Step

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
