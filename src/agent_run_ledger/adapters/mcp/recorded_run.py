"""The run that a session is recorded in: entered at its start, and entered anew after a stop that was released."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent_run_ledger.errors import (
    LedgerError,
    NotAdmitted,
    Pending,
    Refused,
    RunCancelled,
    RunQuarantined,
    Tampered,
    Uncertain,
    Vetoed,
)
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.runs.run import Run

log = logging.getLogger("agent_run_ledger")
T = TypeVar("T")

STOPS = (RunQuarantined, RunCancelled)
"""What a session can begin with: it then answers every call of a tool with it."""

_HALTS = (Refused, Tampered, Uncertain, NotAdmitted)


class SessionEnded(Pending):
    """The client has ended its session, and the run waits for another one."""

    code = "session_ended"


@dataclass(frozen=True, slots=True)
class Place(Generic[T]):
    """An attempt of the run. Steps are called in a task that was given a copy of `context`."""

    run: Run
    context: Context
    within: T


class RecordedRun(Generic[T]):
    """Guarantees: a call gets an attempt that may go on, or the error that says why there is none. After a stop the
    run is entered again as soon as that is allowed and nothing of the stopped attempt is under way.

    `make`: called within each attempt; what it returns is `Place.within`.
    """

    def __init__(self, ledger: RunLedger, run_id: str, *, wait_s: float, make: Callable[[], T]) -> None:
        self.run_id = run_id
        self._ledger = ledger
        self._wait_s = wait_s
        self._make = make
        self._lock = asyncio.Lock()
        self._place: Place[T] | None = None
        self._stop: LedgerError | None = None
        self._under_way = 0
        self._leave: asyncio.Future[Exception | None] | None = None
        self._holder: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Enter the run. What stands against that is raised, but for STOPS, which calls will be answered with."""
        try:
            await self._enter(self._wait_s)
        except STOPS as error:
            self._stop = error

    async def begin(self) -> Place[T]:
        """Return the attempt to call steps in; `end` is to be called after that. Raises what stopped the run."""
        async with self._lock:
            if self._stop is not None:
                if self._under_way:
                    raise self._stop
                await self._left(self._stop)
                try:
                    await self._enter(0)
                except LedgerError as error:
                    self._stop = error
                    raise
                self._stop = None
            if self._place is None:
                raise SessionEnded(f"the session with run {self.run_id!r} is over")
            self._under_way += 1
            return self._place

    def end(self, error: BaseException | None = None) -> None:
        """Note that a call has ended, and what it raised."""
        self._under_way -= 1
        if isinstance(error, _HALTS) and not isinstance(error, Vetoed) and error.code != "step_timeout":
            self._stop = error

    async def close(self, *, complete: bool) -> None:
        """Leave the run: completed, or suspended until another session goes on with it."""
        async with self._lock:
            over = complete and self._under_way == 0 and self._stop is None
            await self._left(None if over else SessionEnded("the client has ended its session"))

    async def _enter(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[Place[T]] = loop.create_future()
        self._leave = loop.create_future()
        self._holder = asyncio.create_task(self._hold(entered, self._leave, wait_s))
        self._place = await entered

    async def _hold(
        self, entered: asyncio.Future[Place[T]], leave: asyncio.Future[Exception | None], wait_s: float
    ) -> None:
        """Be the one task that enters and leaves: a context variable is reset where it was set."""
        try:
            async with self._ledger.bind(self.run_id, wait_s=wait_s).run() as run:
                entered.set_result(Place(run, copy_context(), self._make()))
                why = await leave
                if why is not None:
                    raise why
        except BaseException as error:
            if not entered.done():
                entered.set_exception(error)
                return
            if not isinstance(error, LedgerError):
                raise
            if error is not self._stop and not isinstance(error, SessionEnded):
                log.warning("run %r was left with an error: %s", self.run_id, error)

    async def _left(self, why: Exception | None) -> None:
        self._place = None
        if self._leave is not None and not self._leave.done():
            self._leave.set_result(why)
        if self._holder is not None:
            with contextlib.suppress(LedgerError):
                await self._holder
        self._leave = self._holder = None
