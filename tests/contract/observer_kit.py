"""An observer that keeps what it is told, and how tests give steps a usage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.kernel.notices import CallBegun, Notice
from agent_run_ledger.kernel.usage import Usage, usage_bytes
from agent_run_ledger.runs.batches import Concluded
from agent_run_ledger.runs.journal import Journal


class Keeper:
    """Keeps notices and the comings and goings around bodies, each with the thread it came from."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.around_bodies: list[tuple[str, str, str]] = []
        self.threads: list[int] = []

    def tell(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.threads.append(threading.get_ident())

    def around(self, call: CallBegun) -> AbstractContextManager[object]:
        return self._around(call)

    @contextmanager
    def _around(self, call: CallBegun) -> Generator[None]:
        here = threading.current_thread().name
        self.around_bodies.append(("enter", call.step, here))
        try:
            yield
        finally:
            self.around_bodies.append(("leave", call.step, here))

    def of(self, kind: type[Any]) -> list[Any]:
        """The notices of one kind, in order."""
        return [notice for notice in self.notices if isinstance(notice, kind)]

    def kinds(self) -> list[str]:
        return [type(notice).__name__ for notice in self.notices]


def two_steps(ledger: RunLedger, second: Callable[[int], Any] = lambda first: first + 1) -> None:
    ledger.step(name="first")(lambda: 1)
    ledger.step(name="second", depends_on=["first"])(second)


def let_pay(monkeypatch: pytest.MonkeyPatch, paid: Mapping[str, list[Usage]]) -> None:
    """Give the records of these steps a usage, whether or not the body reported one."""
    whole = Journal.conclude

    def conclude(self: Journal, *args: Any, **settings: Any) -> Concluded:
        concluded = whole(self, *args, **settings)
        if concluded.record.name in paid:
            concluded.record.usage = usage_bytes(paid[concluded.record.name])
        return concluded

    monkeypatch.setattr(Journal, "conclude", conclude)
