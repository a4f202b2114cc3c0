"""Drives one call of a dynamic run from lookup to answer in this thread."""

from __future__ import annotations

import queue
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent_run_ledger.runs.bodies import Outcome, finish, in_thread, sync_body, timed_out
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.steps import Shape, Step
from agent_run_ledger.runs.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_run_ledger.runs.dynamic import DynamicSession
    from agent_run_ledger.runs.open_calls import OpenCall


def drive(
    session: DynamicSession, frame: Frame, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what a call of the step returns: a value, a coroutine, an iterator or an async iterator."""
    if step.shape is Shape.SYNC:
        return _call(session, session.enter(frame, step, args, kwargs))
    if step.shape is Shape.GENERATOR:
        return Stream(session, session.enter(frame, step, args, kwargs))
    from agent_run_ledger.runs.async_drivers import AsyncStream, acall

    if step.shape is Shape.ASYNC:
        call = acall(session, frame, step, args, kwargs)
        # Python's warning names the call where nobody awaits it
        call.__qualname__ = step.name  # type: ignore[attr-defined]
        return call
    return AsyncStream(session, session.enter(frame, step, args, kwargs))


def _call(session: DynamicSession, call: OpenCall) -> Any:
    try:
        answer = session.begin(call)
        while answer is None:
            answer = session.conclude(call, _outcome(call))
            if answer.again_in_s is not None:
                time.sleep(answer.again_in_s)
                session.start_again(call)
                answer = None
    except BaseException:
        session.leave(call)
        raise
    finally:
        session.exit(call)
    return answer.give()


def _outcome(call: OpenCall) -> Outcome:
    """Run a sync body, here or, where its time is limited, in a thread. What must not be recorded is raised."""
    with inside(call):
        body = call.body
        if call.step.timeout_s is None:
            outcome = finish(body, sync_body(body))
        else:
            done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
            in_thread(body, done.put)
            try:
                outcome = done.get(timeout=call.step.timeout_s)
            except queue.Empty:
                outcome = timed_out(body)
    if outcome.abort is not None:
        raise outcome.abort
    return outcome


@contextmanager
def inside(call: OpenCall) -> Generator[None]:
    """Make the body of a call the place where steps are called."""
    token = CURRENT.set(call.inner)
    try:
        yield
    finally:
        CURRENT.reset(token)
