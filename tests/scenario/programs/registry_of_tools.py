"""One model call whose environment lists tools, as a worker with a warm or a cold cache of definitions sees them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agent_run_ledger import RunLedger
from agent_run_ledger.testing import BodyCounter

DEFINITIONS = {"search": {"q": "string"}, "fetch": {"url": "string"}, "sum": {"numbers": "array"}}


def _tools() -> dict[str, object]:
    """A cold worker lists the definitions in another order than the cache of a warm one has them."""
    names = list(DEFINITIONS)
    if os.environ["CACHE"] == "cold":
        names.reverse()
    return {"tools": {name: dict(DEFINITIONS[name]) for name in names}, "allowed": set(names)}


def one_call(workdir: Path) -> object:
    """Ask the model once; the worker with the warm cache dies right after that."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("r1") as ledger:

        @ledger.step(environment=_tools)
        def ask(question: str) -> str:
            bodies.ran("ask", question)
            return question.title()

        @ledger.step(depends_on=["ask"])
        def act(ask: str) -> str:
            bodies.ran("act", ask)
            if os.environ["CACHE"] == "warm":
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{ask}!"

        return ledger.execute(question="which tools are there")
