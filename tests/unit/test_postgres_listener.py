"""How a listener waits between its tries: ever longer while it hears nothing, and from the beginning once it heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest

from agent_run_ledger.store import postgres_listener
from agent_run_ledger.store.postgres_listener import AGAIN_S, RunListener


class Over:
    """Notes each pause, and ends the listener after so many."""

    def __init__(self, pauses: int) -> None:
        self.pauses: list[float] = []
        self._most = pauses

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def is_set(self) -> bool:
        return len(self.pauses) >= self._most


class Connection:
    """Is lost as soon as it was listened on."""

    def execute(self, *_: Any, **__: Any) -> None:
        return

    def notifies(self, **_: Any) -> Iterator[object]:
        raise psycopg.OperationalError("ended")

    def close(self) -> None:
        return


def test_a_connection_on_which_it_heard_begins_its_pauses_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, False, False, True, False, True, True]

    def connect(_: object) -> Connection:
        if answers.pop(0):
            return Connection()
        raise psycopg.OperationalError("away")

    monkeypatch.setattr(postgres_listener, "connect", connect)
    monkeypatch.setattr(RunListener, "__init__", lambda _: None)
    heard: list[int] = []
    listener = cast(Any, RunListener)()
    listener._place, listener._tell, listener._over = None, lambda: heard.append(1), Over(7)
    listener._run()
    first = AGAIN_S[0]
    assert listener._over.pauses == [first, 2 * first, 4 * first, first, 2 * first, first, first]
    assert len(heard) == 3
