"""Hearing that a run was submitted: a thread that waits on a connection of its own for what servers announce."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

import psycopg

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.store.postgres import QUERIES_FILE, Place, connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.statements import statements

WAIT_S: Final = 1.0
"""How long it waits for the server at a time: so long a listener that is not needed any more may live on."""
AGAIN_S: Final = (0.5, 15.0)
"""After a lost connection: the first pause, and the longest. One on which it heard begins anew."""


class RunListener:
    """Calls `tell` soon after a run was submitted by any process, and once after each gap in which it was deaf.

    It never raises: who waits for runs looks by himself too, so that one who hears nothing is late, and no more.
    """

    def __init__(self, place: Place, tell: Callable[[], None]) -> None:
        self._place = place
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arl-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear no more. It returns at once; the thread ends within WAIT_S."""
        self._over.set()

    def _run(self) -> None:
        pause_s = AGAIN_S[0]
        while not self._over.is_set():
            try:
                with closing(connect(self._place)) as connection:
                    connection.execute(statements(QUERIES_FILE)["listen"], prepare=False)
                    pause_s = AGAIN_S[0]
                    self._hear(connection)
                return
            except (psycopg.Error, LedgerError):
                self._over.wait(pause_s)
                pause_s = min(2 * pause_s, AGAIN_S[1])

    def _hear(self, connection: Connection) -> None:
        self._tell()  # what was submitted before this connection listened
        while not self._over.is_set():
            for _ in connection.notifies(timeout=WAIT_S, stop_after=1):
                self._tell()
