"""The commits of a live dynamic run: one at a time per lane, with what was forsaken, and none after a fatal error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from agent_run_ledger.errors import (
    LedgerError,
    Misuse,
    NotAdmitted,
    Refused,
    RunCancelled,
    RunQuarantined,
    Tampered,
    Unavailable,
    Uncertain,
)
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.runs.batches import Batch, Started, Waits, Written, left_waiting
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.history import History
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.later import CallKey
from agent_run_ledger.runs.opened_run import OpenedRun

log = logging.getLogger("agent_run_ledger")
T = TypeVar("T")
MAX_LANES = 1 << 16
FATAL: Final = (Refused, Tampered, Uncertain, NotAdmitted)
"""Errors of ours after which an attempt may not go on."""


class Commits:
    """Guarantees: what nobody will conclude is recorded with the next commit, once; after an error that says that
    this attempt may not go on, it stays `halted`. Thread-safe; `lock` is not held while the store is read or written.
    `waits` are the calls of effects so far that waited or were left, whatever was made of their errors.
    """

    def __init__(self, opened: OpenedRun, history: History, last_id: int) -> None:
        self.run_id = opened.row.run_id
        self._journal = opened.journal
        self._history = history
        self._watch = opened.watch
        self.lock = threading.RLock()  # reentrant: a stream that is cleaned up may come in anywhere
        self.last_id = last_id
        self.halted: LedgerError | None = None
        self._forsaken: list[Started] = []
        self._on_their_way: list[Started] = []  # forsaken, and in a commit that has not ended
        self._landed = threading.Condition(self.lock)
        self.waits: list[Waits] = []
        self.pending = False  # whether a call waited for something beside effects
        self._handed_out = opened.handed_out
        self._free_lanes: list[int] = []
        self._next_lane = 0

    @property
    def journal(self) -> Journal:
        """The write side of the attempt; Misuse in a completed run."""
        if self._journal is None:
            raise Misuse(f"run {self.run_id!r} has no live attempt", code="no_attempt")
        return self._journal

    def commit(self, batch: Batch) -> Written:
        """Write a batch, and before it or with it what was forsaken and the values that are not written yet."""
        handed_out = self._handed_out
        with handed_out.in_order:
            values = handed_out.before(self)
            if values:
                batch.values = [*values, *batch.values]
                with handed_out.writing(self, len(values)):
                    return self._commit(batch)
        return self._commit(batch)

    def write(self, values: Sequence[Record]) -> Written:
        """Commit these values, which are the next of all to be written: see `handed_out.Owner`."""
        return self._commit(Batch(values=values))

    def add_value(self, value: Record, after: int) -> None:
        """Let a value be written before anything that is committed from now on; it came after that record."""
        self._history.note_begun((value.scope, value.name, value.fingerprint, value.occurrence), after)
        self._handed_out.add(self, value)

    def write_values(self) -> None:
        """Return when no value of the family waits for its commit any more."""
        with self._handed_out.in_order:
            if self._handed_out.before(self):
                self.commit(Batch())

    def close(self) -> None:
        """Let nothing be written any more. What was handed out and still waits is written now, if it can be."""
        try:
            if self._handed_out.waits(self):
                self.write_values()
        except LedgerError as error:
            log.warning("run %r is left, and a value that it handed out is not on record: %s", self.run_id, error)
        finally:
            self._handed_out.leave(self)

    def settle(self, key: CallKey) -> None:
        """Return when the record that a call with this key was forsaken is committed, if one was."""
        with self._landed:
            self._landed.wait_for(lambda: all(started.identity.key != key for started in self._on_their_way))
            waits = any(started.identity.key == key for started in self._forsaken)
            if self.halted is not None:
                raise self.halted
        if waits:
            self.commit(Batch())

    def _commit(self, batch: Batch) -> Written:
        with self.lock:
            forsaken, self._forsaken = self._forsaken, []
            self._on_their_way += forsaken
        batch.abandoned = forsaken
        try:
            written = self.journal.commit(batch)
            self._note(forsaken, written)
        except Unavailable:  # nothing was written; after any other error nobody knows, and the next attempt looks
            with self.lock:
                self._forsaken = [*forsaken, *self._forsaken]
            raise
        except FATAL as error:  # who waits for what was on its way is to know, before it goes on
            with self.lock:
                self.halted = self.halted or error
            raise
        finally:
            if forsaken:
                self._arrived(forsaken)
        if self._watch is not None:
            self._watch.landed(written.state, batch.concluded, written.record_ids)
        for item in batch.concluded:
            self.free_lane(item.started.lane)
        return written

    def _arrived(self, forsaken: Sequence[Started]) -> None:
        with self._landed:
            gone = {id(one) for one in forsaken}
            self._on_their_way = [one for one in self._on_their_way if id(one) not in gone]
            self._landed.notify_all()

    def forsake(self, started: Started) -> None:
        """Note a call that nobody will conclude. Writes nothing: it may be told while memory is cleaned up."""
        with self.lock:
            self._forsaken.append(started)

    def take_lane(self) -> int:
        """Return a place for a start mark that no call of this attempt holds."""
        with self.lock:
            if self._free_lanes:
                return self._free_lanes.pop()
            if self._next_lane >= MAX_LANES:
                raise Misuse(f"run {self.run_id!r} has {MAX_LANES:,} calls in flight", code="too_many_calls")
            self._next_lane += 1
            return self._next_lane - 1

    def free_lane(self, lane: int) -> None:
        """Give a place back."""
        with self.lock:
            self._free_lanes.append(lane)

    def guarded(self, act: Callable[[], T], frame: Frame) -> T:
        """Return what `act` returns; errors of ours after which this attempt may not go on halt it."""
        try:
            return act()
        except FATAL as error:
            self.halt(error, frame)
            raise

    def halt(self, error: LedgerError, frame: Frame) -> None:
        """Let nothing go on: who swallows the error gets it again. A person's decision takes the place of another.

        `frame`: where a call gets the error. What the bodies around it return from then on is no result of them.
        """
        frame.break_up()
        with self.lock:
            if self.halted is None or isinstance(error, RunCancelled | RunQuarantined):
                self.halted = error

    def _note(self, forsaken: Sequence[Started], written: Written) -> None:
        with self.lock:
            self.last_id = max(self.last_id, written.last_id)
            self._free_lanes += [started.lane for started in forsaken]
        if not forsaken:
            return
        with self._history.lock:
            for started, record_id in zip(forsaken, written.left_ids, strict=True):
                if started.kept_elsewhere:
                    self.waits.append(left_waiting(started, record_id))
                self._history.note_abandoned(
                    started.identity.key, record_id, unknown=not started.repeatable, after=started.after
                )
