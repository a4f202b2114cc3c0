"""A live dynamic run: every call of a step is looked up, started and concluded here, from any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Misuse, Pending, Refused, Superseded, Unavailable, pending_of
from agent_run_ledger.kernel.digests import fingerprint
from agent_run_ledger.kernel.scopes import ROOT, call_scope, keyed_scope
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RecordKey
from agent_run_ledger.ports.effect_steps import Effects
from agent_run_ledger.runs.arguments import bind_arguments, call_key
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.batches import Batch
from agent_run_ledger.runs.bodies import Call, OffLoop, Outcome
from agent_run_ledger.runs.breaker import TURN
from agent_run_ledger.runs.called_steps import CalledSteps
from agent_run_ledger.runs.calls import CallIdentity, identify_call
from agent_run_ledger.runs.commits import Commits
from agent_run_ledger.runs.concluding import Concluding, waits_beside_effects
from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.divergence import difference_from, diverged_call
from agent_run_ledger.runs.drivers import drive
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.history import Fate, Found, History
from agent_run_ledger.runs.journal import Journal
from agent_run_ledger.runs.later import CallKey
from agent_run_ledger.runs.leaf_check import check_against_leaf
from agent_run_ledger.runs.leaving import is_left
from agent_run_ledger.runs.open_calls import Answer, OpenCall
from agent_run_ledger.runs.opened_run import OpenedRun
from agent_run_ledger.runs.steps import OnChange, Shape, Step
from agent_run_ledger.runs.stopped import stopped
from agent_run_ledger.runs.tools import outcome_unknown
from agent_run_ledger.runs.usage import METER, Meter

log = logging.getLogger("agent_run_ledger")
T = TypeVar("T")
Post = Callable[[Callable[[], object]], None]
"""Runs a function on the store's own thread, after what was handed to it before, and does not wait for it."""


class DynamicSession:
    """The live attempt of a dynamic run, or the records of a completed one.

    Guarantees: a call that is on record is answered from it; any other runs only after its start is committed, and
    its result is handed out only after it is committed and synced. After an error that says that this attempt may not
    go on, every further call raises that error: who swallows it gets no further.
    """

    def __init__(
        self, context: Context, opened: OpenedRun, *, on_change: OnChange, off_loop: OffLoop, post: Post
    ) -> None:
        self.off_loop = off_loop
        self._post = post
        self.context = context
        self.run_id = opened.row.run_id
        self.opened = opened
        self.root = Frame(self, ROOT)
        self._journal: Journal | None = opened.journal
        self._watch = opened.watch
        self._on_change = on_change
        self._history = History(context.store, opened.row, opened.keys, opened.prefix)
        # The start's leaf also holds what an earlier attempt left behind: every call comes after all of that.
        self._start_id = (opened.row.last_start_record_id or 0) | 0xFFFF
        self._commits = Commits(opened, self._history, self._start_id)
        self._lock = self._commits.lock
        self._closed = False
        self.waiting: dict[object, Pending] = {}  # what its caller was told and may have swallowed
        self._called = CalledSteps(self.run_id, None if self._journal is None else self._journal.limited)
        self._digests = codecs.DigestCache()
        self._open: dict[int, OpenCall] = {}
        self._used: set[int] = set()
        self._made: dict[CallKey, codecs.Packed] = {}
        self._concluding = Concluding(
            context,
            self._commits,
            self._history,
            opened.watch,
            run_id=self.run_id,
            used=self._used,
            digests=self._digests,
            scope_within=self.scope_within,
            breaker=opened.breaker,
        )
        self._ended = threading.Condition(self._lock)
        self._ending = 0

    @property
    def last_id(self) -> int:
        """The latest record of the run that this attempt knows of."""
        return self._commits.last_id

    @property
    def over(self) -> bool:
        """Whether nothing new may run: the run is completed, or failed for good."""
        return self._journal is None

    def effects(self) -> Effects:
        """Return the effects of this run's store, opened at the first call. Refused where it has none."""
        return self.context.effects()

    def went_on_from(self, scope: bytes, run_uid: bytes, end_record_id: int) -> bool:
        """Return whether this run went on after a child that was started in this scope had failed."""
        with self._history.lock:
            return self._history.handled((scope, "", run_uid, 0), end_record_id)

    def note_child_end(self, key: CallKey, after: int, last_id: int) -> None:
        """Note a child that was left: it was begun after one record, and what is begun from now on after its last."""
        self._history.note_begun(key, after)
        with self._lock:
            self._commits.last_id = max(self._commits.last_id, last_id)

    # -- a call begins ----------------------------------------------------------------------------------------

    def call(self, frame: Frame, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See current.Caller."""
        return drive(self, frame, step, args, kwargs)

    def enter(self, frame: Frame, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenCall:
        """Note a call and give it its identity. Reads and writes nothing."""
        self._check_open(frame)
        self._called.check(step)
        bound = bind_arguments(step, args, kwargs)
        scope, text = frame.scope, call_key(step, bound, args, kwargs)
        if text is not None:
            scope = keyed_scope(self.opened.scope_key, scope, step.name, text)
        identity = identify_call(step, bound, self._called.environment(step), cache=self._digests, scope=scope)
        equal = (step.name, identity.fingerprint if text is None else scope + identity.fingerprint)
        number = frame.begin(equal, interchangeable=step.interchangeable and text is None)
        identity.occurrence = number if text is None else 0
        outer = METER.get()
        if outer is not None:
            outer.note_run()
        call = OpenCall(
            frame=frame,
            equal=equal,
            step=step,
            identity=identity,
            body=_body(step, args, kwargs),
            shared=text is not None,
            inner=Frame(self, None, call=identity, outer=frame),
            once=step.shape in (Shape.GENERATOR, Shape.ASYNC_GENERATOR),
        )
        with self._lock:
            self._open[id(call)] = call
        return call

    def begin(self, call: OpenCall) -> Answer | None:
        """Return the answer that is on record, or start the call and return None: its body is to be run."""
        self._check_open(call.frame)
        return self._commits.guarded(lambda: self._begin(call), call.frame)

    def start_again(self, call: OpenCall) -> None:
        """Start the next try of a call."""
        self._check_open(call.frame)
        tries = 1 if call.started is None else call.started.tries + 1
        call.body = _body(call.step, call.body.args, call.body.kwargs)
        call.inner.shut()
        call.inner = Frame(self, None, call=call.identity, outer=call.frame)
        self._commits.guarded(lambda: self._start(call, tries), call.frame)

    def scope_within(self, identity: CallIdentity) -> bytes:
        """Return the scope of what a call's body calls."""
        return call_scope(
            self.opened.scope_key, identity.scope, identity.name, identity.fingerprint, identity.occurrence
        )

    # -- a call ends ------------------------------------------------------------------------------------------

    def conclude(self, call: OpenCall, outcome: Outcome) -> Answer:
        """Record how a body ended and return what its caller gets. Misuse where the run has ended."""
        with self._lock:
            if self._closed:
                raise _over(self.run_id)
            self._ending += 1  # keeps the run from ending meanwhile
        try:
            return self._commits.guarded(lambda: self._conclude(call, outcome), call.frame)
        finally:
            with self._ended:
                self._ending -= 1
                self._ended.notify_all()

    def leave(self, call: OpenCall, taken: codecs.Packed | None = None) -> None:
        """Note that nobody will conclude this call: the next commit of the run records that. Writes nothing.

        `taken`: the chunks of a stream that were taken before.
        """
        with self._lock:
            left_behind = call.marked and not self._closed
            call.marked = False
            if left_behind and call.started is not None:
                call.started.taken = taken
                self._commits.forsake(call.started)
        if not call.shared and ((left_behind and call.step.repeatable) or call.started is None):
            call.frame.give_back(call.equal, call.identity.occurrence)

    def refused(self, call: OpenCall) -> Refused:
        """Return what a call gets of which a run that is over has no more on record; the session is halted by it."""
        return self.halt(self._completed(call.step.name, []), call.frame)

    def halt(self, error: Refused, frame: Frame) -> Refused:
        """Let nothing go on in this session, and return the error that says why; `frame`: who gets it."""
        self._commits.halt(error, frame)
        return error

    def exit(self, call: OpenCall) -> None:
        """Note that a call was answered, or never will be: nothing more is called in its body."""
        call.frame.end(call.equal)
        call.inner.shut()
        with self._lock:
            self._open.pop(id(call), None)

    # -- values of the run's own ------------------------------------------------------------------------------

    def value(self, frame: Frame, name: str, make: Callable[[], T], *, in_background: bool) -> T:
        """Return the recorded value of this name and occurrence, or make and record one.

        `in_background`: do not wait for the commit, which comes before that of any later call.
        """
        self._check_open(frame)
        print_ = fingerprint(name=name, version="1", inputs={}, environment={})
        identity = CallIdentity(name=name, fingerprint=print_, arguments={}, environment={}, version="1")
        identity.scope = frame.scope
        equal = (name, print_)
        identity.occurrence = frame.begin(equal, interchangeable=True)
        before = self._made.get(identity.key)
        if before is not None:
            return cast(T, codecs.unpack(before.encoding, before.payload))
        find = partial(self._find, identity, b"", repeatable=True, shared=False, later=in_background)
        found = self._commits.guarded(find, frame)
        if found.key is not None:
            return cast(T, self._load(found.key, frame.scope))
        if self._journal is None:
            raise self.halt(self._completed(name, []), frame)
        place = CURRENT.set(None)  # a step called in there would be asked for in no restart
        try:
            packed = codecs.pack(make(), limit_bytes=self.context.limit_bytes)
        except BaseException:
            frame.give_back(equal, identity.occurrence)
            raise
        finally:
            CURRENT.reset(place)
        after = self.last_id
        self._commits.add_value(self._journal.value(identity, packed, after=after), after)
        if identity.scope:
            self._made[identity.key] = packed  # a body that is tried again asks again
        if in_background:
            self._post(self._check_and_write)
            return cast(T, packed.decoded)
        try:
            self.write_values()
        except Unavailable:  # it goes with a later commit: who asks again gets it
            self._made[identity.key] = packed
            frame.give_back(equal, identity.occurrence)
            raise
        return cast(T, packed.decoded)

    def turn(self, frame: Frame, *, in_background: bool) -> None:
        """Record that the user spoke, which begins new counts of repetitions; one that is restored began them then."""
        made: list[None] = []
        breaker = self._concluding.breaker
        with breaker.lock if breaker is not None else nullcontext():  # or a call could be judged by it, and lie before
            try:
                self.value(frame, TURN, lambda: made.append(None), in_background=in_background)
            finally:
                if made and breaker is not None:  # also where it waits for a later commit
                    breaker.turn()

    def next_nudge(self, frame: Frame) -> str | None:
        """Return the next text for the agent of this frame's body that no result carries, None where there is none."""
        return self._concluding.nudges.take(frame.scope)

    def write_values(self) -> None:
        """Return when every value that this run and its family handed out is committed."""
        self._commits.guarded(self._commits.write_values, self.root)

    def _check_and_write(self) -> None:
        self._commits.guarded(self._history.recorded.check_the_others, self.root)
        self.write_values()

    # -- the run ends -----------------------------------------------------------------------------------------

    def close(self, error: BaseException | None) -> LedgerError | None:
        """End the attempt as the body of the run ended, and give it back. Returns what leaving must raise, if anything.

        An Exception makes the run failed (Pending, or a group of nothing but such: suspended); what is none (an
        interrupt, a cancellation) leaves it as it is: the next attempt finds what was open. So does, for a run in a
        queue, what is no failure of its own (see `leaving`).
        """
        halted = self._commits.halted or next(iter(self.waiting.values()), None)
        failure = error if error is not None else halted
        try:
            if self._journal is not None and (failure is None or isinstance(failure, Exception)):
                self._end(failure)
        except LedgerError as late:
            if failure is None:
                failure = late
            if error is None and halted is None:
                return late
            log.warning("run %r: its end could not be recorded: %s", self.run_id, late)
        finally:
            self._shut()
            self._commits.close()
            self.opened.close(failure)
        return halted if error is None else None

    def _shut(self) -> None:
        """Let no call begin or end any more, and wait for those that are being recorded."""
        with self._ended:
            self._closed = True
            self._ended.wait_for(lambda: not self._ending)

    def _end(self, failure: BaseException | None) -> None:
        if isinstance(failure, Superseded) or is_left(self.opened.row.queue, failure, self._commits.halted):
            return
        self._shut()
        with self._lock:
            for call in self._open.values():
                if call.marked and call.started is not None:
                    call.marked = False
                    self._commits.forsake(call.started)
        left_over = self._history.recorded.left_over(ROOT)
        if failure is None and left_over:
            log.warning("run %r is completed; %d recorded results were not asked for", self.run_id, left_over)
        batch = Batch(end_state=RunState.COMPLETED, waits=self._commits.waits)
        if failure is not None:
            waits = pending_of(failure)
            batch.end_state = RunState.FAILED if waits is None else RunState.SUSPENDED
            batch.end_reason = type(waits or failure).__name__
        content: dict[str, object] = {
            "dynamic": True,
            "results": {},
            "used": sorted(self._used | self.opened.within_restored(self._used)),
            "code_changed": self._history.recorded.code_changed,
            "reason": batch.end_reason,
            "left_over": left_over,
        }
        if self._commits.pending or waits_beside_effects(failure):
            content["pending"] = True
        batch.end = lambda _: content
        why = stopped(self.run_id, self._commits.commit(batch))
        if why is not None and failure is None:
            raise why

    # -- inside -----------------------------------------------------------------------------------------------

    def _begin(self, call: OpenCall) -> Answer | None:
        identity, step = call.identity, call.step
        if not step.repeatable and not self.over:
            self._commits.settle(identity.key)
        # What waits may be over now: only what an earlier attempt went on from, and did not end with, is given again.
        before = self._start_id if step.kept_elsewhere else None
        how = {"repeatable": step.repeatable, "shared": call.shared, "beside": step.beside}
        found = self._find(identity, step.code, before=before, **how)
        if found.fate is Fate.RESTORE and found.key is not None:
            return Answer(value=self._load(found.key, identity.scope))
        if found.fate is Fate.RAISE:
            error, told = self._history.error(found.record_id)
            if told is not None:
                self._concluding.nudges.add(identity.scope, found.record_id, told)
            return Answer(error=error)
        if found.fate is Fate.PART:
            return Answer(value=self.opened.load(found.record_id), part=True)
        if found.fate is Fate.UNKNOWN:
            check_against_leaf(self.context.store, self.context.store.reader().record(found.record_id))
            said = outcome_unknown(step.name, found.record_id)
            return Answer(value=[said] if call.once else said)  # of a stream it is the only chunk
        call.because = self._because(call)
        if self._journal is None:
            raise self._completed(step.name, call.because)
        self._start(call, 1)
        return None

    def _find(
        self, identity: CallIdentity, code: bytes, *, later: bool = False, before: int | None = None, **how: bool
    ) -> Found:
        """Look a call up; `how`: what `History.find` is to know of it."""
        with self._history.lock:
            found = self._history.find(identity, code=code, complete=self._journal is None, before=before, **how)
        if found.fate not in (Fate.RESTORE, Fate.UNKNOWN) and not later:
            self._history.recorded.check_the_others()
        return found

    def _load(self, key: RecordKey, scope: bytes) -> Any:
        value, told = self.opened.recall(key.record_id)
        if told is not None and not (type(value) is str and value.endswith(told)):
            self._concluding.nudges.add(scope, key.record_id, told)
        with self._lock:
            self._used.add(key.record_id)
        if self._watch is not None:
            self._watch.restored(key)
        return value

    def _because(self, call: OpenCall) -> list[str]:
        """Return why a call is not on record although one of its step is; Diverged where that is not to be."""
        identity = call.identity
        with self._history.lock:
            if self._history.was_begun(identity.key):
                return []
            unused = self._history.recorded.unconsumed(identity.scope, identity.name)
        unused = [record_id for record_id in unused if not self._passed_over(call, record_id)]
        if not unused:
            return []
        difference = difference_from(self.context.store, unused, identity, self.context.clock.now_ms())
        if self._journal is not None and (call.step.on_change or self._on_change) is OnChange.REFUSE:
            raise diverged_call(self.run_id, call.step.name, difference)
        return list(difference.paths)

    def _passed_over(self, call: OpenCall, record_id: int) -> bool:
        """Return whether the caller went on from a result that no call has asked for, and note that it was used."""
        went_on_from = call.step.went_on_from
        if went_on_from is None or not went_on_from(call.body.kwargs, self.opened.load(record_id)):
            return False
        with self._history.lock:
            self._history.recorded.pass_over(call.identity.scope, call.identity.name, record_id)
        with self._lock:
            self._used.add(record_id)
        return True

    def _completed(self, name: str, paths: list[str]) -> Refused:
        changed = f": {', '.join(paths)} changed" if paths else ""
        return Refused(
            f"run {self.run_id!r} is {self.opened.row.state}, and this call of {name!r} is not on its record{changed}",
            code="run_completed",
            hint="nothing new runs in a run that is over; use a new run_id",
        )

    def _start(self, call: OpenCall, tries: int) -> None:
        journal = self._commits.journal
        if self._concluding.breaker is not None and call.step.watched:
            self._concluding.breaker.prepare()
        lane = self._commits.take_lane()
        started = journal.started(lane, 0, call.identity, tries, call.step.reserves)
        started.repeatable, started.after = call.step.repeatable, self.last_id
        started.kept_elsewhere = call.step.kept_elsewhere
        call.body.lane = lane
        if self._watch is not None:
            call.body.around = self._watch.body(call.step.name, tries, started.at_ms)
        try:
            written = self._commits.commit(Batch(starts=[started]))
        except Unavailable:
            self._commits.free_lane(lane)
            raise
        why = stopped(self.run_id, written)
        if why is not None:
            raise why
        if written.state is not RunState.RUNNING:  # the run was left while this call began in a thread
            raise _over(self.run_id)
        call.started, call.marked = started, True

    def _conclude(self, call: OpenCall, outcome: Outcome) -> Answer:
        started = call.started
        call.frame.check_open()
        self._end_within(call)
        if started is None or not call.marked:
            raise _over(self.run_id)
        if call.inner.broken and self._commits.halted is not None:
            raise self._commits.halted
        return self._concluding.conclude(call, started, outcome)

    def _end_within(self, call: OpenCall) -> None:
        """Nobody waits any more for what the body has begun and left open."""
        if not call.inner.used:
            return
        call.inner.shut()
        with self._lock:
            for left in self._open.values():
                if left.marked and left.started is not None and left.frame.within(call.inner):
                    left.marked = False
                    self._commits.forsake(left.started)

    def _check_open(self, frame: Frame) -> None:
        if self._commits.halted is not None:
            frame.break_up()
            raise self._commits.halted
        if self._closed:
            raise _over(self.run_id)
        frame.check_open()


def _body(step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return Call(index=0, lane=0, step=step, args=args, kwargs=kwargs, meter=Meter(step.name))


def _over(run_id: str) -> Misuse:
    return Misuse(
        f"run {run_id!r} is over: a step was called in it, or ended too late",
        code="run_over",
        hint="end what was begun in the run, its threads and tasks too, before its `with` block is left",
    )
