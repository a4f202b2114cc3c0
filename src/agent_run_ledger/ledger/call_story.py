"""What happened in each attempt of a dynamic run, and what the next one would do with each call on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.scopes import enclosing_call
from agent_run_ledger.ledger.call_view import CallKey, CallStanding, CallView
from agent_run_ledger.ledger.run_view import RunView
from agent_run_ledger.ledger.views import RecordView
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.history import History

_CONCLUDED: Final = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED)


class CallFate(StrEnum):
    """What the same call would be answered in the next attempt, by the rules after a crash.

    RAISES: the agent went on from the error, so it is given again. TRIES: nothing came after it, so that a step or a
    safe tool is tried again; a tool that is not safe raises it again. RUNS: nothing says how it ended, and it may run
    twice. UNKNOWN: the agent is told that nobody knows. NOT_ASKED: it was made within a call that is restored.
    RUNNING: its attempt lives.
    """

    RESTORES = "restores"
    RAISES = "raises"
    TRIES = "tries"
    RUNS = "runs"
    UNKNOWN = "unknown"
    NOT_ASKED = "not_asked"
    RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldCall:
    """A call and its fate. `went_on`: whether the agent went on from its error, or from not knowing its outcome."""

    call: CallView
    fate: CallFate
    went_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCounts:
    """What one attempt recorded: calls that returned, failed, were left, or were left and may not run again."""

    recorded: int
    failed: int
    left: int
    unknown: int


def tell_calls(store: Store, run: RunView) -> list[ToldCall]:
    """Return every call of a dynamic run with its fate, in the order of the view. Raises what `History` raises."""
    calls = () if run.calls is None else run.calls.calls
    by_inner: dict[bytes, CallView] = {call.inner: call for call in calls if call.inner is not None}
    history = History(store, run.row, (), run.prefix)
    beside = _beside(calls)
    told: list[ToldCall] = []
    covered: dict[bytes, bool] = {b"": False}
    for call in calls:
        if _is_covered(call.scope, by_inner, covered):
            told.append(ToldCall(call=call, fate=CallFate.NOT_ASKED))
        else:
            told.append(_judge(call, history, beside=call.key in beside))
    return told


def _beside(calls: Sequence[CallView]) -> frozenset[CallKey]:
    """Return the calls with keys of which none comes after the error of another one, see `Step.beside`.

    Results and errors say so, but for those that people said. Of a step that has neither, what the other calls with
    keys say.
    """
    keyed = [call for call in calls if call.is_keyed]
    concluded = {call.name for call in keyed if any(map(_is_conclusion, call.records))}
    said = {call.name for call in keyed if any(record.beside for record in call.records)}
    return frozenset(call.key for call in keyed if call.name in said or (said and call.name not in concluded))


def attempt_counts(run: RunView) -> Mapping[int, CallCounts]:
    """Return by attempt what it recorded of calls; values of the run's own are not counted."""
    counts: Counter[tuple[int, str]] = Counter()
    calls = () if run.calls is None else run.calls.calls
    for record in (record for call in calls if not call.is_own for record in call.records):
        if record.resolves is None:
            counts[record.attempt, _column(record)] += 1
    names = ("recorded", "failed", "left", "unknown")
    return {
        attempt.number: CallCounts(**{name: counts[attempt.number, name] for name in names}) for attempt in run.attempts
    }


def _column(record: RecordView) -> str:
    if record.kind is RecordKind.RESULT:
        return "recorded"
    if record.kind is RecordKind.ABANDONED:
        return "unknown" if record.unknown else "left"
    return "failed"


def _is_covered(scope: bytes, by_inner: Mapping[bytes, CallView], covered: dict[bytes, bool]) -> bool:
    """Return whether a call around this scope has a result: then nothing within it is asked for."""
    path: list[bytes] = []
    at = enclosing_call(scope)
    while at not in covered:
        path.append(at)
        around = by_inner.get(at)
        at = b"" if around is None else enclosing_call(around.scope)
    for inner in reversed(path):
        around = by_inner.get(inner)
        has_result = around is not None and around.standing is CallStanding.RECORDED
        outer = b"" if around is None else enclosing_call(around.scope)
        covered[inner] = has_result or covered[outer]
    return covered[enclosing_call(scope)]


def _is_conclusion(record: RecordView) -> bool:
    return record.kind in _CONCLUDED and not record.erased and record.resolves is None


def _judge(call: CallView, history: History, *, beside: bool) -> ToldCall:
    if call.standing is CallStanding.RUNNING:
        return ToldCall(call=call, fate=CallFate.RUNNING)
    unknown = next((record for record in reversed(call.records) if record.unknown), None)
    if unknown is not None:
        resolved = next((one for one in call.resolutions if one.call == unknown.record_id), None)
        before = None if resolved is None else resolved.decision_id
        went_on = history.handled(call.key, unknown.record_id, before=before, beside=beside)
        if resolved is None or went_on:
            return ToldCall(call=call, fate=CallFate.UNKNOWN, went_on=went_on)
    if call.mark is not None:
        return ToldCall(call=call, fate=CallFate.RUNS if call.mark.repeatable else CallFate.UNKNOWN)
    if any(record.kind is RecordKind.RESULT for record in call.records):
        return ToldCall(call=call, fate=CallFate.RESTORES)
    errors = [record for record in call.records if record.kind in (RecordKind.ERROR, RecordKind.RESCUED)]
    if not errors:
        return ToldCall(call=call, fate=CallFate.RUNS)
    before = history.told_until(errors[-1].record_id) if call.effect else None
    went_on = history.handled(call.key, errors[-1].record_id, before=before, beside=beside)
    by_person = errors[-1].resolves is not None
    return ToldCall(call=call, fate=CallFate.RAISES if went_on or by_person else CallFate.TRIES, went_on=went_on)
