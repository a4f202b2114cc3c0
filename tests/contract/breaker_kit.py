"""An agent for the tests of the breaker: tools that count their bodies, and what the log says of its calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import (
    LoopDetected,
    Run,
    RunLedger,
    Tool,
)
from agent_run_ledger.runs.judged import JudgedCall, judged_calls
from agent_run_ledger.store import open_sqlite

TOO_LARGE = "error: the file is too large to be read at once"
NUDGE = "[agent-run-ledger]"


class Agent:
    """A ledger with tools that count their bodies."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.ledger = RunLedger("r1", path, **settings)
        self.bodies: list[str] = []
        self.answers: dict[str, Any] = {}

        def tool(name: str, **rules: Any) -> Any:
            def body(**arguments: Any) -> Any:
                self.bodies.append(name)
                answer = self.answers.get(name, TOO_LARGE)
                answer = answer(len(self.bodies), arguments) if callable(answer) else answer
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return (
                self.ledger.add(Tool(body, name=name, **rules))
                if rules.pop("add", None)
                else self.ledger.tool(name=name, **rules)(body)
            )

        self.read = tool("read", safe=True)
        self.write = tool("write")
        self.find = tool("find", safe=True)
        self.watch = tool("job_state", safe=True, poll=True)
        self.quote = tool("quote", safe=True, volatile=("eta",))

    def call_until_stopped(self, most: int = 20, run_id: str = "r1", **arguments: Any) -> int:
        """Call `read` until the breaker stops the run, and return which call was the last, 0 for none."""
        with self.ledger.run(run_id):
            for number in range(1, most + 1):
                try:
                    self.read(**{"path": "/big", **arguments})
                except LoopDetected:
                    return number
        return 0


class Died(Exception):
    """The process ended before its run did."""


def stopped(agent: Agent, act: Callable[[Run], object]) -> LoopDetected:
    """Do this in the agent's run, which the breaker stops, and return how it says so."""
    with pytest.raises(LoopDetected) as caught:
        within(agent, act)
    return caught.value


def die_after(agent: Agent, act: Callable[[Run], object]) -> None:
    """Do this in the agent's run, which then fails: the next attempt goes on with it."""

    def work(run: Run) -> None:
        act(run)
        raise Died

    with pytest.raises(Died):
        within(agent, work)


def within(agent: Agent, act: Callable[[Run], object]) -> None:
    with agent.ledger.run() as run:
        act(run)


def times(count: int, call: Callable[[], object]) -> Callable[[Run], object]:
    """Make the same call so many times."""
    return lambda _: [call() for _ in range(count)]


def judged(path: Path, run_id: str = "r1") -> list[JudgedCall]:
    store = open_sqlite(path, create=False)
    try:
        row = store.reader().find_run(run_id)
        assert row is not None
        return list(judged_calls(store.reader(), row))
    finally:
        store.close()


def levels(path: Path, run_id: str = "r1") -> list[str]:
    return [call.verdict.level.name for call in judged(path, run_id)]
