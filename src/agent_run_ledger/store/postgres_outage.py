"""Waiting for a server that is away: for how long, how often it is asked again, and what is said of it."""

from __future__ import annotations

import logging
import threading
import time

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.ports import Entropy

log = logging.getLogger("agent_run_ledger")

PAUSES_S = (0.1, 1.0)
"""Before a server that was away is asked again: at first, and at most. It doubles, and up to half of it is left out."""


class Outage:
    """Guarantees: a thread waits for `wait_s` at most while a server is away, however often it asks; what it was told
    last is raised then. Used behind the lock of the writer, but for `said`, `gave_up` and `break_off`.
    """

    def __init__(self, location: str, *, wait_s: float, entropy: Entropy) -> None:
        self._location = location
        self._wait_s = wait_s
        self._entropy = entropy
        self._over = threading.Event()
        self._here = threading.local()
        self._number = 0
        self._began_s = 0.0
        self._tries = 0
        self._told: Unavailable | None = None
        self.repeats = 0
        """How often a transaction was begun once more since this writer was made."""

    def wait(self, error: Unavailable, pauses: int, *, since_s: float) -> None:
        """Return when it may be asked again. Raises `error` where this thread has waited for long enough.

        `pauses`: how often it waited for this transaction; `since_s`: when that was asked for.
        """
        if self._told is None:
            self._number, self._began_s, self._tries = self._number + 1, time.monotonic(), 0
        begins, self._told, self._tries = self._told is None, error, self._tries + 1
        least, most = PAUSES_S
        pause_s = min(most, least * 2.0 ** min(pauses, 10)) * (1 - self._entropy.fraction() / 2)
        if self._waited() or self._over.is_set() or time.monotonic() + pause_s > since_s + self._wait_s:
            self.gave_up()
            raise error
        if begins:
            log.warning("the store is away, and is asked again for up to %g s: %s", self._wait_s, error.message)
        if self._over.wait(pause_s):
            raise error
        self.repeats += 1

    def answered(self) -> None:
        """Note that a transaction was begun."""
        if self._told is None:
            return
        self._told = None
        log.info(
            "%s answers after %.1f s, in which it was asked in vain %d times",
            self._location,
            time.monotonic() - self._began_s,
            self._tries,
        )

    def said(self) -> Unavailable | None:
        """Return what to raise for a thread whose turn did not come, because the one before it waits for the server."""
        told = self._told
        return None if told is None else Unavailable(told.message, code=told.code, hint=told.hint)

    def gave_up(self) -> None:
        """Note that this thread has waited: until the server answers, it asks once, and does not wait again."""
        self._here.number = self._number

    def break_off(self) -> None:
        """Let nobody wait any more."""
        self._over.set()

    def _waited(self) -> bool:
        return getattr(self._here, "number", 0) == self._number
