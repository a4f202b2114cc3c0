"""The values that a run and the runs within it handed out before their commit, in the order in which they were made."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from agent_run_ledger.errors import LedgerError, Unavailable
from agent_run_ledger.kernel.record import Record


class Owner(Protocol):
    """The commits of the run that handed a value out."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    def write(self, values: Sequence[Record]) -> object:
        """Commit these values. Unavailable: nothing was written; after any other error nobody knows."""
        ...


class HandedOut:
    """One per family: a run that is within none, and all that are within it, also where they are in other stores.

    Guarantees: values reach the disk in the order in which they were handed out, and each before anything of the
    family that is begun, concluded or ended after it. Where one never will, the others commit nothing more: their
    next attempts begin from what is on record. Thread-safe.
    """

    def __init__(self) -> None:
        self.in_order = threading.RLock()  # held while values are on their way to disk
        self._lock = threading.Lock()
        self._waiting: list[tuple[Owner, Record]] = []
        self._lost: Owner | None = None

    def add(self, owner: Owner, value: Record) -> None:
        """Let a value be written before anything that is committed from now on. Does not wait for a commit."""
        with self._lock:
            self._waiting.append((owner, value))

    def before(self, owner: Owner) -> list[Record]:
        """Write what was handed out before, up to the values of `owner` that come last, and return these.

        Who asks holds `in_order`, and commits what it gets in `writing`. Raises Unavailable where a value of another
        run cannot be written, and Unavailable("value_lost") where nobody knows whether it ever was.
        """
        while True:
            if self._lost is not None and self._lost is not owner:
                raise _lost(self._lost)
            with self._lock:
                waiting = list(self._waiting)
            if not waiting:
                return []
            first = waiting[0][0]
            until = next((at for at, (other, _) in enumerate(waiting) if other is not first), len(waiting))
            values = [value for _, value in waiting[:until]]
            if first is owner and until == len(waiting):
                return values
            self._write(first, values, for_=owner)

    def _write(self, first: Owner, values: Sequence[Record], *, for_: Owner) -> None:
        try:
            with self.writing(first, len(values)):
                first.write(values)
        except Unavailable:
            raise
        except LedgerError as error:
            if first is for_:
                raise
            raise _lost(first) from error

    @contextmanager
    def writing(self, owner: Owner, count: int) -> Generator[None]:
        """Commit the first `count` values, which are all of `owner`: they wait on only where nothing was written."""
        try:
            yield
        except Unavailable:
            raise
        except BaseException:
            self._lost = self._lost or owner
            self._gone(count)
            raise
        self._gone(count)

    def waits(self, owner: Owner) -> bool:
        """Return whether a value of this run waits for its commit."""
        with self._lock:
            return any(other is owner for other, _ in self._waiting)

    def leave(self, owner: Owner) -> None:
        """Note that nothing more is written of a run: what still waits of it is lost."""
        with self.in_order, self._lock:
            others = [one for one in self._waiting if one[0] is not owner]
            if len(others) < len(self._waiting):
                self._lost = self._lost or owner
            self._waiting = others

    def _gone(self, count: int) -> None:
        with self._lock:
            del self._waiting[:count]


def _lost(owner: Owner) -> Unavailable:
    return Unavailable(
        f"a value that run {owner.run_id!r} handed out could not be recorded, and what comes after may rest on it",
        code="value_lost",
        hint="leave the run, and start it again: it goes on from what is on record",
    )
