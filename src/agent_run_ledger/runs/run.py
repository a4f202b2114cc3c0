"""A dynamic run as its program sees it: where steps are called, and what it records of its own."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from agent_run_ledger.errors import Misuse
from agent_run_ledger.runs.branches import Job, check_limit, each, in_threads, on_loop, wrapped
from agent_run_ledger.runs.current import CURRENT, Caller
from agent_run_ledger.runs.dynamic import DynamicSession
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.inputs import Inputs

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Run:
    """A run that is being worked on. Steps that are called in its `with` block are recorded in it.

    `id` is the run's id. What `now`, `random`, `uuid4` and `value` return is recorded, in the order of the calls in
    their scope, and the same at every restart. On an event loop it is on record before anything that this run, or one
    within or around it, begins with it; elsewhere it is on record when it is returned.
    """

    def __init__(self, session: DynamicSession, inputs: Inputs, *, max_parallel: int, on_loop: bool) -> None:
        self.id: str = session.run_id
        self._session = session
        self._inputs = inputs
        self._max_parallel = max_parallel
        self._on_loop = on_loop

    def __repr__(self) -> str:
        """Return a short form for messages."""
        return f"<Run {self.id!r}>"

    @property
    def inputs(self) -> dict[str, Any]:
        """A fresh copy of the run's inputs."""
        return {name: self._inputs.take(name) for name in self._inputs.names}

    def gather(self, *calls: Any, limit: int | None = None) -> Any:
        """Make these calls at once, each a scope of its own, and return their results in order.

        `calls`: functions without arguments, called in threads; in `async with` also awaitables, and the whole is to
        be awaited. `limit`: how many at once, 1 to 1,024, the ledger's `max_parallel` by default. All end before the
        first error, in their order, is raised. Misuse for a limit or a call that is none of these.
        """
        return self._branch(list(calls), limit)

    def map(self, fn: Callable[[Any], Any], items: Iterable[Any], limit: int | None = None) -> Any:
        """Call fn with each item at once, each a scope of its own, and return the results in order. See `gather`."""
        return self._branch(each(fn, items), limit)

    def wrap(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return fn for a thread of your own: what it calls there belongs to this run, in a branch numbered now.

        So wrap in an order that is the same at every start. What it calls after the run is over is Misuse.
        """
        return wrapped(self._frame(), fn)

    @property
    def root(self) -> Caller:
        """The place of what the run's body calls itself: for hooks that are called where no context leads to it."""
        return self._session.root

    def now(self) -> datetime:
        """Return the time in UTC, aware, to the millisecond."""
        return self._value("run.now", lambda: datetime.fromtimestamp(self._session.context.clock.now_ms() / 1000, UTC))

    def random(self) -> float:
        """Return a number in [0, 1); not for secrets."""
        return self._value("run.random", random.random)

    def uuid4(self) -> uuid.UUID:
        """Return a random UUID (RFC 9562)."""
        return self._value("run.uuid4", uuid.uuid4)

    def value(self, name: str, fn: Callable[[], T], /) -> T:
        """Return what fn returns, recorded under this name. For quick things without effects: no start is recorded.

        What fn raises passes through and is not recorded. Unstorable for a value without a stored form; Misuse for a
        name that is not printable or has more than 190 characters.
        """
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= 190:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse("a value needs a printable name of 1 to 190 characters", code="bad_value")
        return self._value(f"run.{name}", fn)

    def turn(self) -> None:
        """Note that a person spoke to the agent: the breaker counts repetitions anew from here on. Recorded."""
        self._session.turn(self._frame(), in_background=self._is_on_loop())

    def nudge(self) -> str | None:
        """Return what the breaker has to tell the agent that no result carries: each text once, then None.

        A tool's text carries its own nudge. For a tool that returns other values, or raised, put this in front of the
        model before it is asked again. In the body of a call it returns what is to be said of the calls made there.
        The same at every restart, where it is asked for when the calls that were made at once have ended.
        """
        return self._session.next_nudge(self._frame())

    def _value(self, name: str, fn: Callable[[], T]) -> T:
        return self._session.value(self._frame(), name, fn, in_background=self._is_on_loop())

    def _branch(self, jobs: Sequence[Job | Awaitable[Any]], limit: int | None) -> Any:
        at_once = self._max_parallel if limit is None else limit
        check_limit(at_once)
        frame = self._frame()
        if self._is_on_loop():
            return on_loop(frame, jobs, limit=at_once)
        for job in jobs:
            if not callable(job):
                raise Misuse(
                    f"gather takes functions without arguments, not {type(job).__name__}",
                    code="bad_call",
                    hint="gather(lambda: search('a'), ...); awaitables need `async with ledger.run(...)`",
                )
        return in_threads(frame, jobs, limit=at_once)  # type: ignore[arg-type]

    def _is_on_loop(self) -> bool:
        """Return whether this is the event loop of an async run, and no thread that a sync function of it runs in."""
        if not self._on_loop:
            return False
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def _frame(self) -> Frame:
        place = CURRENT.get()
        if place is None:
            raise Misuse(
                f"run {self.id!r} was used outside its `with` block, or in a thread that does not belong to it",
                code="outside_run",
                hint="carry it into a thread of your own by run.map or run.wrap",
            )
        return place if isinstance(place, Frame) and place.session is self._session else self._session.root
