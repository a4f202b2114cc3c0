"""Lives of an agent in one ledger: in this process, or in a forked one that kills itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Agent, Runner

from agent_run_ledger import RunLedger
from agent_run_ledger.testing import check_ledger

RUN = "ticket-1"


class Log:
    """Counts what really ran, in a file, so that it outlives a kill."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ran.log"

    def note(self, what: str) -> None:
        with self.path.open("a") as log:
            log.write(f"{what}\n")

    def take(self) -> list[str]:
        """What ran since it was taken last."""
        ran = self.path.read_text().split() if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        return ran


def ledger(folder: Path) -> RunLedger:
    return RunLedger(db_path=folder / "ledger.db")


def live(folder: Path, agent: Agent[Any], question: Any = "Go.", **settings: Any) -> Any:
    """Run the agent within the run, and return its result. The ledger is sound after it."""

    async def run() -> Any:
        with ledger(folder) as opened:
            async with opened.bind(RUN, **settings).run():
                return await Runner.run(agent, question)

    try:
        return asyncio.run(run())
    finally:
        check_ledger(folder / "ledger.db")


def killed(act: Callable[[], Any]) -> None:
    """Do it in a forked process, which must be killed by itself."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"it ended by itself: {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
