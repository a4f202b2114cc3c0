"""Running the bodies of steps in this thread or in threads of their own, and collecting how each one ended."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agent_run_ledger.errors import Misuse, StepTimeout
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.steps import Shape, Step
from agent_run_ledger.runs.usage import METER, Meter
from agent_run_ledger.runs.watch import Around

T = TypeVar("T")


class OffLoop(Protocol):
    """Runs a blocking function on the store's own thread, shielded from cancellation."""

    def __call__(self, fn: Callable[[], T], /) -> Awaitable[T]:
        """Return an awaitable of fn's value; a cancelled await still waits for fn to end."""
        ...


@dataclass(slots=True, kw_only=True)
class Call:
    """One body to run: what, with what, until when, and what it uses meanwhile."""

    index: int
    lane: int
    step: Step[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meter: Meter
    around: Around | None = None

    @property
    def ticket(self) -> tuple[int, int]:
        """What tells this call from another one in flight."""
        return (self.index, self.lane)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a body ended: a value, an exception, or something that must never be recorded (`abort`)."""

    call: Call
    value: Any = None
    error: Exception | None = None
    abort: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class Todo:
    """What a driver is to do next: launch these, then wait for any outcome, at most `wait_s` seconds."""

    launch: list[Call] = field(default_factory=list[Call])
    wait_s: float | None = None
    done: bool = False


def finish(call: Call, body: Callable[[], Any]) -> Outcome:
    """Run `body` here and return how it ended. BaseException and MemoryError become `abort`."""
    token = METER.set(call.meter)
    try:
        reach("body.before")
        if call.around is None:
            value = body()
        else:
            with call.around:
                value = body()
        reach("body.after")
    except MemoryError as error:
        return Outcome(call=call, abort=error)
    except Exception as error:
        return Outcome(call=call, error=error)
    except BaseException as error:
        return Outcome(call=call, abort=error)
    finally:
        METER.reset(token)
    return Outcome(call=call, value=value)


def sync_body(call: Call) -> Callable[[], Any]:
    """Return the body of a step that needs no event loop; a generator is exhausted into a list."""
    body = call.step.body
    if call.step.shape is Shape.GENERATOR:
        return lambda: list(body(*call.args, **call.kwargs))
    if call.step.shape is Shape.SYNC:
        return lambda: body(*call.args, **call.kwargs)
    raise Misuse(f"step {call.step.name!r} is async", code="async_step", hint="use `await ledger.aexecute(...)`")


def in_thread(call: Call, report: Callable[[Outcome], None]) -> None:
    """Run a sync body in a daemon thread with a copy of this context, and report its outcome from there."""
    context = contextvars.copy_context()
    body = sync_body(call)
    thread = threading.Thread(
        target=lambda: report(context.run(finish, call, body)),
        name=f"arl-step-{call.step.name}",
        daemon=True,
    )
    try:
        thread.start()
    except RuntimeError as error:  # no more threads to be had: the body did not run, its siblings go on
        report(Outcome(call=call, error=error))


def timed_out(call: Call) -> Outcome:
    """Return the outcome of a call whose time is over."""
    return Outcome(
        call=call,
        error=StepTimeout(
            f"step {call.step.name!r} did not return within {call.step.timeout_s} s",
            hint="its body may still be running; its cost is uncertain",
        ),
    )


class SyncBodies:
    """The bodies of one attempt, driven from one thread. A lone body without a timeout runs in that very thread."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._running: dict[tuple[int, int], tuple[Call, float | None]] = {}

    def run(self, todo: Todo) -> list[Outcome]:
        """Launch what is to be launched and return at least one outcome, or none when `wait_s` passed first."""
        if (
            len(todo.launch) == 1
            and not self._running
            and todo.wait_s is None
            and todo.launch[0].step.timeout_s is None
        ):
            return [finish(todo.launch[0], sync_body(todo.launch[0]))]
        for call in todo.launch:
            deadline = None if call.step.timeout_s is None else time.monotonic() + call.step.timeout_s
            self._running[call.ticket] = (call, deadline)
            in_thread(call, self._done.put)
        return self._collect(todo.wait_s)

    def _collect(self, wait_s: float | None) -> list[Outcome]:
        until = None if wait_s is None else time.monotonic() + wait_s
        while True:
            bound = self._bound(until)
            try:
                first = self._done.get(timeout=bound)
            except queue.Empty:
                late = self._expired()
                if late or (until is not None and time.monotonic() >= until):
                    return late
                continue
            outcomes = [outcome for outcome in (first, *self._drain()) if self._accept(outcome)]
            if outcomes:
                return outcomes

    def _bound(self, until: float | None) -> float | None:
        moments = [deadline for _, deadline in self._running.values() if deadline is not None]
        if until is not None:
            moments.append(until)
        return None if not moments else max(0.0, min(moments) - time.monotonic())

    def _drain(self) -> list[Outcome]:
        drained: list[Outcome] = []
        while not self._done.empty():
            drained.append(self._done.get())
        return drained

    def _accept(self, outcome: Outcome) -> bool:
        """Return False for the late result of a call that timed out: it is discarded."""
        current = self._running.get(outcome.call.ticket)
        if current is None or current[0] is not outcome.call:
            return False
        del self._running[outcome.call.ticket]
        return True

    def _expired(self) -> list[Outcome]:
        now = time.monotonic()
        late = [call for call, deadline in self._running.values() if deadline is not None and deadline <= now]
        for call in late:
            del self._running[call.ticket]
        return [timed_out(call) for call in late]
