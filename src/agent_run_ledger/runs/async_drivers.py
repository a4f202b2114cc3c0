"""Drives one call of a dynamic run on an event loop: everything that touches the store runs on the store's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from agent_run_ledger.errors import StepTimeout
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.bodies import Outcome, timed_out
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.drivers import inside
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.runs.streams import END, Chunks
from agent_run_ledger.runs.usage import METER

if TYPE_CHECKING:
    from agent_run_ledger.runs.dynamic import DynamicSession
    from agent_run_ledger.runs.open_calls import Answer, OpenCall


async def acall(
    session: DynamicSession, frame: Frame, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Answer a call of an async step. Its place is where it is awaited: a branch of a gather counts."""
    place = CURRENT.get()
    if isinstance(place, Frame) and place.session is session:
        frame = place
    call = session.enter(frame, step, args, kwargs)
    off_loop = session.off_loop
    try:
        answer: Answer | None = await off_loop(lambda: session.begin(call))
        while answer is None:
            outcome = await _outcome(call)
            answer = await off_loop(partial(session.conclude, call, outcome))
            if answer.again_in_s is not None:
                await asyncio.sleep(answer.again_in_s)
                await off_loop(lambda: session.start_again(call))
                answer = None
    except BaseException:
        session.leave(call)
        raise
    finally:
        session.exit(call)
    return answer.give()


async def _outcome(call: OpenCall) -> Outcome:
    """Await an async body in this very task. Cancellation passes through: it is never recorded as a result."""
    body = call.body
    limit = asyncio.timeout(call.step.timeout_s)
    with inside(call):
        token = METER.set(body.meter)
        try:
            reach("body.before")
            async with limit:
                if body.around is None:
                    value = await call.step.body(*body.args, **body.kwargs)
                else:
                    with body.around:
                        value = await call.step.body(*body.args, **body.kwargs)
            reach("body.after")
        except MemoryError:
            raise
        except TimeoutError as error:
            return timed_out(body) if limit.expired() else Outcome(call=body, error=error)
        except Exception as error:
            return Outcome(call=body, error=error)
        finally:
            METER.reset(token)
    return Outcome(call=body, value=value)


class AsyncStream(Chunks, AsyncIterator[Any]):
    """The async iterator that a call of an async generator step returns in a dynamic run."""

    def __init__(self, session: DynamicSession, call: OpenCall) -> None:
        super().__init__(session, call)
        self._source: Any = None

    def __aiter__(self) -> Self:
        """Return self."""
        return self

    async def __anext__(self) -> Any:
        """Return the next chunk; after the last one the list of all is on disk."""
        off_loop, session, call = self.session.off_loop, self.session, self.call
        try:
            if not self.begun:
                self.open(await off_loop(lambda: session.begin(call)))
            if self.over:
                return self.next_restored(StopAsyncIteration)
            return await self._chunk()
        except StopAsyncIteration:
            raise
        except BaseException:
            self.left()
            raise

    async def _chunk(self) -> Any:
        session, call = self.session, self.call
        error: Exception | None = None
        limit = asyncio.timeout(None if self.until is None else self.until - time.monotonic())
        try:
            with self.inside():
                if self._source is None:
                    reach("body.before")
                    self._source = aiter(call.step.body(*call.body.args, **call.body.kwargs))
                async with limit:
                    chunk = await anext(self._source, END)
            if chunk is not END:
                return self.copied(chunk)
            reach("body.after")
        except MemoryError:
            raise
        except TimeoutError as raised:
            error = StepTimeout("") if limit.expired() else raised
        except Exception as raised:
            error = raised
        outcome = self.ended(error)
        answer = await session.off_loop(lambda: session.conclude(call, outcome))
        self.over = True
        session.exit(call)
        answer.give()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave the stream: what was not taken is not recorded."""
        self.left()
        if self._source is not None and hasattr(self._source, "aclose"):
            await self._source.aclose()

    def __del__(self) -> None:
        self.left()
