"""Calls whose result comes in chunks: handed on as they come, and recorded as one list when they are exhausted."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, StepTimeout
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.bodies import Outcome, timed_out
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.usage import METER

if TYPE_CHECKING:
    from agent_run_ledger.runs.dynamic import DynamicSession
    from agent_run_ledger.runs.open_calls import Answer, OpenCall

_IMMUTABLE: Final = (str, int, float, bool, bytes, type(None))
END: Final = object()


class Chunks:
    """What both kinds of streams share: the chunks so far, and how the call ends.

    A consumer of a live stream gets a copy of each chunk, equal to what a restored stream gives. A stream that is not
    exhausted has no result on record: its call is abandoned and its cost uncertain. The chunks that were taken are
    kept, for a program that enters the completed run again and leaves the stream at the same place.
    """

    def __init__(self, session: DynamicSession, call: OpenCall) -> None:
        self.session = session
        self.call = call
        self._kept: list[Any] = []
        self._restored: Iterator[Any] | None = None
        self._part = False
        self.begun = False
        self.over = False
        self.until: float | None = None

    def open(self, answer: Answer | None) -> None:
        """Note how the call is answered; with None its body is to be run."""
        self.begun = True
        if answer is None:
            limit_s = self.call.step.timeout_s
            self.until = None if limit_s is None else time.monotonic() + limit_s
            return
        self.over = True
        self.session.exit(self.call)
        self._part = answer.part
        self._restored = iter(answer.give())

    def next_restored(self, stop: Callable[[], BaseException]) -> Any:
        """Return the next chunk of the record, or raise `stop`."""
        chunk = END if self._restored is None else next(self._restored, END)
        if chunk is END:
            self._restored = None
            raise self.session.refused(self.call) if self._part else stop()
        return chunk

    def copied(self, chunk: Any) -> Any:
        """Keep a chunk, and return it as a restored stream would give it."""
        if type(chunk) in _IMMUTABLE:
            self._kept.append(chunk)
            return chunk
        packed = codecs.pack(chunk, limit_bytes=self.session.context.limit_bytes)
        self._kept.append(codecs.unpack(packed.encoding, packed.payload))
        return packed.decoded

    def ended(self, error: Exception | None) -> Outcome:
        """Return how the body ended: with all its chunks, or with this error."""
        if isinstance(error, StepTimeout):
            return timed_out(self.call.body)
        return Outcome(call=self.call.body, value=None if error is not None else self._kept, error=error)

    def left(self) -> None:
        """Nobody will take the rest. Only noted: this may be called while memory is cleaned up."""
        if not self.over:
            self.over = True
            self.session.leave(self.call, self._taken())
            self.session.exit(self.call)
        elif self._restored is not None:  # its number is free for the next one, as when nothing was on record
            self._restored = None
            self.session.leave(self.call)

    def _taken(self) -> codecs.Packed | None:
        try:
            return codecs.pack(self._kept, limit_bytes=self.session.context.limit_bytes) if self._kept else None
        except LedgerError:  # together they are too large: then they are not kept
            return None

    def check_time(self) -> None:
        """Raise StepTimeout when the step's time is over."""
        if self.until is not None and time.monotonic() >= self.until:
            raise StepTimeout("")

    @contextmanager
    def inside(self) -> Generator[None]:
        """Make the body, while it makes one chunk, the place where steps are called and usage is reported."""
        call = self.call
        meter, place = METER.set(call.body.meter), CURRENT.set(call.inner)
        try:
            yield
        finally:
            CURRENT.reset(place)
            METER.reset(meter)


class Stream(Chunks, Iterator[Any]):
    """The iterator that a call of a generator step returns in a dynamic run."""

    def __init__(self, session: DynamicSession, call: OpenCall) -> None:
        super().__init__(session, call)
        self._source: Iterator[Any] | None = None

    def __next__(self) -> Any:
        """Return the next chunk; after the last one the list of all is on disk."""
        try:
            if not self.begun:
                self.open(self.session.begin(self.call))
            if self.over:
                return self.next_restored(StopIteration)
            chunk = self._chunk()
        except StopIteration:
            raise
        except BaseException:
            self.left()
            raise
        return chunk

    def _chunk(self) -> Any:
        error: Exception | None = None
        try:
            with self.inside():
                if self._source is None:
                    reach("body.before")
                    self._source = iter(self.call.step.plain(*self.call.body.args, **self.call.body.kwargs))
                chunk = next(self._source, END)
            if chunk is not END:
                self.check_time()
                return self.copied(chunk)
            reach("body.after")
        except MemoryError:
            raise
        except Exception as raised:
            error = raised
        answer = self.session.conclude(self.call, self.ended(error))
        self.over = True
        self.session.exit(self.call)
        answer.give()
        raise StopIteration

    def close(self) -> None:
        """Leave the stream: what was not taken is not recorded."""
        source = self._source
        self.left()
        close: Callable[[], object] | None = getattr(source, "close", None)
        if close is not None:
            close()

    def __del__(self) -> None:
        self.left()
