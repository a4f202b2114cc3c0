"""How a call of a dynamic run ends: judged, recorded, noted, and what its caller then gets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import EffectPending, LedgerError, Pending, Unavailable, Unstorable, pending_of
from agent_run_ledger.kernel.backoff import backoff_s
from agent_run_ledger.kernel.loops import Level
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs.abandoned import ASKS, BESIDE, EFFECT, SEEN
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.batches import Batch, Concluded, Loop, Started, Waits, Written
from agent_run_ledger.runs.bodies import Outcome
from agent_run_ledger.runs.breaker import VERDICT, Breaker, Judged, decision, nudge
from agent_run_ledger.runs.calls import CallIdentity, changed_arguments, changed_warning
from agent_run_ledger.runs.commits import Commits
from agent_run_ledger.runs.endings import Ending, ending_of, may_try_again
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.history import History
from agent_run_ledger.runs.nudges import Nudges
from agent_run_ledger.runs.open_calls import Answer, OpenCall
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.runs.stopped import stopped
from agent_run_ledger.runs.watch import Watch

log = logging.getLogger("agent_run_ledger")


class Concluding:
    """Guarantees: what a body returned is handed out only after it is committed and synced, or is of an effect, whose
    outcome was synced before; the calls of tools are judged one after the other, in the order in which they are
    recorded. `used` gets the records of results.
    """

    def __init__(
        self,
        context: Context,
        commits: Commits,
        history: History,
        watch: Watch | None,
        *,
        run_id: str,
        used: set[int],
        digests: codecs.DigestCache,
        scope_within: Callable[[CallIdentity], bytes],
        breaker: Breaker | None,
    ) -> None:
        self._context = context
        self._commits = commits
        self._history = history
        self._watch = watch
        self._run_id = run_id
        self._used = used
        self._digests = digests
        self._scope_within = scope_within
        self.breaker = breaker
        self.nudges = Nudges()

    def conclude(self, call: OpenCall, started: Started, outcome: Outcome) -> Answer:
        """Record how a body ended and return what its caller gets. LoopDetected where that shows a loop."""
        self._warn_of_changes(call)
        limit_bytes = self._context.limit_bytes
        ended = ending_of(outcome, run_id=self._run_id, at_ms=started.at_ms, limit_bytes=limit_bytes)
        started.called = call.inner.used and not started.repeatable and ended.failure is not None
        failure, retries = ended.failure, 0 if call.once else call.step.retries
        again = failure is not None and may_try_again(failure, started.tries, retries)
        breaker = self.breaker if call.step.watched and not again else None
        glimpse = None if breaker is None else breaker.glimpse(call.step, call.identity, ended)
        with breaker.lock if breaker is not None else nullcontext():
            judged, told = None, None
            if breaker is not None and glimpse is not None:
                judged = breaker.judge(call.identity, glimpse, started.after)
                ended, told = self._told(call.step, ended, judged)
            written = self._record(call, started, ended, judged, again=again)
            if breaker is not None and judged is not None:
                breaker.landed(written.record_ids[0])
                if self._watch is not None and judged.verdict.level is not Level.OK:
                    self._watch.judged(call.step.name, written.record_ids[0], judged.verdict)
                if told is not None:
                    self.nudges.add(call.identity.scope, written.record_ids[0], told)
        why = stopped(self._run_id, written)
        if why is not None:
            raise why
        if again:
            return Answer(again_in_s=self._backoff_s(call.step, started.tries))
        if ended.failure is None and ended.packed is not None:
            return Answer(value=ended.packed.decoded)
        return Answer(error=ended.failure)

    def _record(
        self, call: OpenCall, started: Started, ended: Ending, judged: Judged | None, *, again: bool
    ) -> Written:
        kept = None if judged is None else judged.kept
        if call.step.beside and call.shared:
            kept = {**(kept or {}), BESIDE: True}
        if call.inner.effect:
            kept = {**(kept or {}), **_of_effect(call.inner, ended.failure)}
        item = self._commits.journal.conclude(started, ended, because=call.because, code=call.step.code, more=kept)
        if self._watch is not None and call.body.around is not None:
            self._watch.ending(call.body.around, item, ended.failure, again=again)
        call.marked = False
        batch = Batch(concluded=[item])
        if judged is not None and judged.verdict.level is Level.QUARANTINE:
            batch.loop = Loop(reason=judged.reason, content=decision(call.step.name, judged))
        try:
            written = self._commits.commit(batch)
        except LedgerError as error:
            self._not_recorded(call, ended, error)
            raise
        self._note(call, item, ended, written)
        return written

    def _not_recorded(self, call: OpenCall, ended: Ending, error: LedgerError) -> None:
        if ended.packed is not None and ended.failure is None:
            error.unrecorded[call.step.name] = ended.packed.decoded
        call.marked = isinstance(error, Unavailable)  # nothing was written: its start still stands
        self._commits.halt(error, call.frame)

    def _told(self, step: Step[..., Any], ended: Ending, judged: Judged) -> tuple[Ending, str | None]:
        """Return the ending with what the agent is told in the text that it reads, else what waits in `nudges`."""
        level = judged.verdict.level
        if level is not Level.OK:
            log.warning("run %r, tool %r: %s", self._run_id, step.name, judged.verdict.words())
        if level is not Level.NUDGE:
            return ended, None
        text = nudge(step.name, cast("dict[str, Any]", judged.kept[VERDICT]))
        if ended.failure is None and ended.packed is not None and _is_prose(ended.packed.decoded):
            try:
                whole = codecs.pack(f"{ended.packed.decoded}\n\n{text}", limit_bytes=self._context.limit_bytes)
                return replace(ended, packed=whole), None
            except Unstorable:  # no room for it
                pass
        return ended, text

    def _warn_of_changes(self, call: OpenCall) -> None:
        given = call.identity.given
        if given is not None:
            given.changed = changed_arguments(call.identity.arguments, given.values, cache=self._digests)
            if given.changed:
                log.warning(changed_warning(self._run_id, call.step.name, given.changed))

    def _note(self, call: OpenCall, item: Concluded, ended: Ending, written: Written) -> None:
        identity, after, record_id = call.identity, item.started.after, written.record_ids[0]
        if call.inner.used:
            self.nudges.forget_within(self._scope_within(identity))
        with self._history.lock:
            if item.record.kind is not RecordKind.RESULT:
                self._history.note_error(identity.key, record_id, item.record.kind, after)
                self._commits.pending |= waits_beside_effects(ended.failure)
                if call.step.kept_elsewhere and isinstance(ended.failure, Pending):
                    self._commits.waits.append(Waits(record_id=record_id, name=call.step.name))
                return
            self._used.add(record_id)
            if call.inner.used:
                self._history.forget_within(self._scope_within(identity))
            self._history.note_result(item.record, record_id, after)

    def _backoff_s(self, step: Step[..., Any], tries: int) -> float:
        return backoff_s(
            tries, base_s=step.retry_base_s, cap_s=step.retry_cap_s, fraction=self._context.entropy.fraction()
        )


_SAW: Final = frozenset({"approval_pending", "effect_in_doubt", "effect_elsewhere", "effect_left"})
"""The codes with which a call of an effect waits for what it saw. Any other one is held up by something else."""


def waits_beside_effects(error: BaseException | None) -> bool:
    """Return whether an error says that something is waited for which is no effect."""
    waits = pending_of(error)
    return waits is not None and not isinstance(waits, EffectPending)


def _of_effect(place: Frame, failure: BaseException | None) -> dict[str, object]:
    """Return what is kept of a call of an effect: its action, and what it waits for, as it saw that."""
    kept: dict[str, object] = {EFFECT: place.effect}
    if isinstance(failure, EffectPending) and failure.code in _SAW:
        kept[SEEN] = place.seen
        if place.asks:
            kept[ASKS] = True
    return kept


def _is_prose(value: object) -> bool:
    """Return whether a value is a text that a sentence can stand behind: none that a program may parse."""
    return type(value) is str and value.lstrip()[:1] not in ("{", "[", "<", '"')
