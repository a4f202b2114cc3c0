"""The read model of one run: its attempts, its steps and where each of them stands, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

import orjson

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.kernel.erasure import EVENTS
from agent_run_ledger.kernel.record import KEPT_INPUTS, SUBMITTED_KEY, Record, RecordKind
from agent_run_ledger.kernel.states import RunEvent, RunState
from agent_run_ledger.ledger.call_view import CallsTold, CallsView, ChildView, children_of
from agent_run_ledger.ledger.run_effect_lines import EffectLine, effect_lines
from agent_run_ledger.ledger.step_states import StepDefinition, StepState, settle
from agent_run_ledger.ledger.views import (
    Holder,
    RecordView,
    content_of,
    is_live,
    parse_holder,
    record_content,
    told_prefix,
    view_record,
)
from agent_run_ledger.ports import InFlight, Reader, RunRow, Store, StoredRecord
from agent_run_ledger.runs.prefix import Prefix, lineage, origin_of

CLOCK_TOLERANCE_MS = 60_000
"""A start reads the clock, waits for its turn to write, and the log takes its own time: more apart is no wait."""


class AttemptEnd(StrEnum):
    """How an attempt ended. DIED: nothing says how, so its process was killed or gave up without a word."""

    LIVE = "live"
    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"
    TAKEN_OVER = "taken over"
    DIED = "died"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt. `ended_at_ms` is None where nothing was recorded at its end; `reason` names what it failed at.

    `is_erased`: its START is, and with it who held it and its graph: `steps` are those that its records name.
    `clock_changed`: the clock of its process and that of the log were so far apart at its start, or its end lies so
    far before it, that their difference is no duration. `is_fork`, `is_submission`: it is the making of the fork,
    or the submission to a queue, in which nothing ran.
    """

    number: int
    generation: int
    holder: Holder
    started_at_ms: int
    ended_at_ms: int | None
    end: AttemptEnd
    reason: str
    steps: tuple[StepDefinition, ...]
    clock_changed: bool
    is_erased: bool = False
    is_fork: bool = False
    is_submission: bool = False

    @property
    def executed(self) -> bool:
        """Whether anything could run in it."""
        return not (self.is_fork or self.is_submission)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkView:
    """A run that was forked from the one that is looked at; `from_step` is "" where that is erased."""

    run_id: str
    state: RunState
    from_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """What a person did to the run, during or after which attempt.

    `records`: how many an erasure erased, None for other decisions; the batches of one erasure are one decision here.
    """

    event: str
    reason: str
    actor: str
    attempt: int
    at_ms: int
    records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step: where it stands, the record that stands for it, all its records, and what is in flight.

    `defined` is False for a step that has records but is no longer part of the pipeline (REMOVED).
    """

    definition: StepDefinition
    defined: bool
    state: StepState
    current: RecordView | None
    records: tuple[RecordView, ...]
    in_flight: tuple[InFlight, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run. `used` holds the record ids its result rests on, None where it is not completed.

    `prefix` is what it refers to, None where it is no fork; `forks` are the runs forked from it, oldest first.
    `erased` counts its own erased records; `is_refused` says whether an `execute` is refused for them, or for those of
    another run that it refers to. `kept_inputs_id` is
    the START record that keeps the inputs' values, None where none does. `calls` are those of a dynamic run, which has
    no `steps`; None for a pipeline. `parent` is the run within which this one was started, `children` are those that
    were started within it, oldest first. `effects` are, by id, the actions that its calls were about.
    """

    row: RunRow
    live: bool | None
    attempts: tuple[AttemptView, ...]
    decisions: tuple[DecisionView, ...]
    steps: tuple[StepView, ...]
    used: frozenset[int] | None
    code_changed: tuple[str, ...]
    policy: Mapping[str, Any] | None
    max_parallel: int | None
    input_names: tuple[str, ...]
    erased: int
    is_refused: bool
    kept_inputs_id: int | None
    prefix: Prefix | None = None
    forks: tuple[ForkView, ...] = ()
    calls: CallsView | None = None
    parent: str | None = None
    children: tuple[ChildView, ...] = ()
    effects: Mapping[str, EffectLine] = field(default_factory=dict[str, EffectLine])

    @property
    def taken_over(self) -> bool:
        """Whether a person took the run from its last attempt, which can write nothing more even if it lives."""
        return bool(self.attempts) and self.attempts[-1].end is AttemptEnd.TAKEN_OVER


def view_run(store: Store, row: RunRow) -> RunView:
    """Return the read model of a run. Reads each of its records once; holds none of their payloads."""
    reader = store.reader()
    live = is_live(store, row)
    told = _Told(reader, row)
    prefix = told_prefix(content_of(reader, row.start_record_id))
    if prefix is not None:
        told.add_referenced(row, prefix)
    for stored in reader.records(row.row_id, kinds=tuple(RecordKind)):
        told.add(stored)
    told.describe_erased_starts()
    attempts = _attempts(told, row, live)
    marks, running = reader.in_flight(row.row_id), _may_run(row, live, attempts)
    content = told.last_start
    inputs = content.get("inputs")
    policy, max_parallel = content.get("policy"), content.get("max_parallel")
    calls = told.calls.view(marks, running=running) if told.calls.is_dynamic else None
    return RunView(
        row=row,
        live=live,
        attempts=attempts,
        decisions=tuple(told.decisions),
        steps=() if told.calls.is_dynamic else _steps(told, row, attempts, marks, running=running),
        used=told.used,
        code_changed=told.code_changed,
        policy=cast("dict[str, Any]", policy) if isinstance(policy, dict) else None,
        max_parallel=max_parallel if isinstance(max_parallel, int) else None,
        input_names=tuple(cast("dict[str, object]", inputs)) if isinstance(inputs, dict) else (),
        erased=len(told.erased),
        is_refused=_is_refused(told, row, attempts),
        kept_inputs_id=told.kept_inputs_id,
        prefix=prefix,
        forks=tuple(_fork(reader, fork) for fork in reader.forks_of(row.row_id)),
        calls=calls,
        effects=effect_lines(store, calls, SystemClock().now_ms()),
        parent=None if row.parent_row_id is None else reader.get_run(row.parent_row_id).run_id,
        children=children_of(store, row),
    )


def _is_refused(told: _Told, row: RunRow, attempts: Sequence[AttemptView]) -> bool:
    gone = told.erased | told.erased_elsewhere
    if not gone:
        return False
    if row.start_record_id in gone:
        return True
    if row.state is RunState.COMPLETED:
        return not gone.isdisjoint(told.results)
    defined = {step.name for step in attempts[-1].steps} if attempts else set[str]()
    if told.calls.is_dynamic:  # any call of the agent's may be one of these
        defined = set(told.by_step)
    return any(
        record.erased and record.kind is RecordKind.RESULT for name in defined for record in told.by_step.get(name, ())
    )


def _fork(reader: Reader, row: RunRow) -> ForkView:
    prefix = told_prefix(content_of(reader, row.start_record_id))
    return ForkView(run_id=row.run_id, state=row.state, from_step="" if prefix is None else prefix.from_step)


class _Told:
    """What the records of a run say, gathered in one pass."""

    def __init__(self, reader: Reader, row: RunRow) -> None:
        self._reader = reader
        self.calls = CallsTold(row)
        self.starts: list[AttemptView] = []
        self.ends: dict[int, tuple[AttemptEnd, int]] = {}
        self.decisions: list[DecisionView] = []
        self.by_step: dict[str, list[RecordView]] = {}
        self.last_start: Mapping[str, Any] = {}
        self.used: frozenset[int] | None = None
        self.code_changed: tuple[str, ...] = ()
        self.erased: set[int] = set()
        self.erased_elsewhere: set[int] = set()
        self.results: frozenset[int] = frozenset()
        self.kept_inputs_id: int | None = None

    def add_referenced(self, row: RunRow, prefix: Prefix) -> None:
        """Take in the records of other runs that this one refers to; they come before its own."""
        ancestors = lineage(self._reader, row)
        for name, record_id in prefix.records.items():
            stored = self._reader.record(record_id)
            if stored.erased:
                self.erased_elsewhere.add(record_id)
            origin = origin_of(self._reader, ancestors, stored.run_row_id)
            self.by_step[name] = [view_record(stored, origin)]
        for record_id in sorted((*prefix.calls, *prefix.others)):
            stored = self._reader.record(record_id)
            if stored.erased:
                self.erased_elsewhere.add(record_id)
            origin = origin_of(self._reader, ancestors, stored.run_row_id)
            view = view_record(stored, origin)
            self.by_step.setdefault(stored.record.name, []).append(view)
            self.calls.add(stored, view)

    def add(self, stored: StoredRecord) -> None:
        """Take in one record."""
        record, view = stored.record, None
        if stored.erased:
            self.erased.add(stored.record_id)
        if record.kind is RecordKind.START:
            self._add_start(stored)
        elif record.kind is RecordKind.END:
            self._add_end(stored)
        elif record.kind is RecordKind.DECISION:
            self._add_decision(record)
        else:
            view = view_record(stored)
            self.by_step.setdefault(record.name, []).append(view)
        self.calls.add(stored, view)

    def describe_erased_starts(self) -> None:
        """Let the records tell which steps an attempt had whose START is erased: those that were recorded by then."""
        for at, start in enumerate(self.starts):
            if start.is_erased:
                names = [
                    n for n, all_of_it in self.by_step.items() if any(r.attempt <= start.number for r in all_of_it)
                ]
                self.starts[at] = replace(start, steps=tuple(map(StepDefinition.unknown, names)))

    def _add_decision(self, record: Record) -> None:
        content = record_content(record)
        count = content.get("count") if record.name in EVENTS else None
        decision = DecisionView(
            event=record.name,
            reason=str(content.get("reason", "")),
            actor=str(content.get("actor", "")),
            attempt=record.attempt,
            at_ms=record.ended_at_ms,
            records=count if isinstance(count, int) else None,
        )
        before = self.decisions[-1] if self.decisions else None
        if before is not None and before.records is not None and decision.records is not None:
            records = before.records + decision.records
            if replace(before, at_ms=decision.at_ms, records=records) == replace(decision, records=records):
                decision = replace(decision, records=records)
                self.decisions.pop()
        self.decisions.append(decision)

    def _add_start(self, stored: StoredRecord) -> None:
        self.last_start = content = record_content(stored.record)
        if self.kept_inputs_id is None and KEPT_INPUTS in content:
            self.kept_inputs_id = stored.record_id
        change, time_ms = self._leaf(stored)
        generation = change.get("generation")
        started_at_ms = stored.record.started_at_ms
        self.starts.append(
            AttemptView(
                number=stored.record.attempt,
                generation=generation if isinstance(generation, int) else 0,
                holder=parse_holder(str(content.get("holder", ""))),
                started_at_ms=started_at_ms,
                ended_at_ms=None,
                end=AttemptEnd.UNKNOWN,
                reason="",
                steps=StepDefinition.parse_all(content.get("steps")),
                is_erased=stored.erased,
                clock_changed=time_ms is not None and abs(time_ms - started_at_ms) > CLOCK_TOLERANCE_MS,
                is_fork=told_prefix(content) is not None,
                is_submission=SUBMITTED_KEY in content,
            )
        )

    def _add_end(self, stored: StoredRecord) -> None:
        new = str(self._leaf(stored)[0].get("new", ""))
        end = AttemptEnd(new) if new in set(AttemptEnd) else AttemptEnd.UNKNOWN
        self.ends[stored.record.attempt] = (end, stored.record.ended_at_ms)
        content = record_content(stored.record)
        if end is AttemptEnd.COMPLETED:
            self.used = frozenset(item for item in _listed(content.get("used")) if isinstance(item, int))
            results = content.get("results")
            named = cast("dict[str, object]", results).values() if isinstance(results, dict) else ()
            self.results = frozenset(item for item in named if isinstance(item, int))
            self.code_changed = tuple(map(str, _listed(content.get("code_changed"))))

    def _leaf(self, stored: StoredRecord) -> tuple[Mapping[str, object], int | None]:
        """Return the transition written with a record and the leaf's time; empty and None where it is not readable."""
        for event in self._reader.events(first=stored.leaf_index, stop=stored.leaf_index + 1):
            try:
                envelope = cast("dict[str, Any]", orjson.loads(event.envelope))
                change = cast("dict[str, object]", envelope["changes"][stored.record_id & 0xFFFF])
                time_ms = envelope.get("time_ms")
            except (ValueError, LookupError, TypeError, AttributeError):
                break
            return change, time_ms if isinstance(time_ms, int) else None
        return {}, None


def _listed(value: object) -> list[object]:
    """Return a list from a record's content; empty for what is none, since nobody has checked the record here."""
    return cast("list[object]", value) if isinstance(value, list) else []


def _attempts(told: _Told, row: RunRow, live: bool | None) -> tuple[AttemptView, ...]:
    ended: list[AttemptView] = []
    for attempt in told.starts:
        end, ended_at_ms = told.ends.get(attempt.number, (None, None))
        if end is None:
            last = attempt.number == row.attempt
            end, ended_at_ms = _end_without_record(told, attempt.number, live if last else False)
        failed_at = _failed_at(told, attempt.number) if end in (AttemptEnd.FAILED, AttemptEnd.SUSPENDED) else ""
        backwards = ended_at_ms is not None and ended_at_ms < attempt.started_at_ms
        changed = attempt.clock_changed or backwards
        ended.append(replace(attempt, end=end, ended_at_ms=ended_at_ms, reason=failed_at, clock_changed=changed))
    return tuple(ended)


_DECIDED_END = {
    RunEvent.QUARANTINE: AttemptEnd.QUARANTINED,
    RunEvent.CANCEL: AttemptEnd.CANCELLED,
    RunEvent.TAKEOVER: AttemptEnd.TAKEN_OVER,
}


def _end_without_record(told: _Told, number: int, live: bool | None) -> tuple[AttemptEnd, int | None]:
    for decision in told.decisions:
        if decision.attempt == number and decision.event in _DECIDED_END:
            return _DECIDED_END[RunEvent(decision.event)], decision.at_ms
    if live is None:
        return AttemptEnd.UNKNOWN, None
    return (AttemptEnd.LIVE, None) if live else (AttemptEnd.DIED, None)


def _failed_at(told: _Told, number: int) -> str:
    """Return "step 'x': Type: message" of the first step that was left failed in this attempt."""
    errors = [
        records[-1]
        for records in ([r for r in all_records if r.since_attempt == number] for all_records in told.by_step.values())
        if records and records[-1].error
    ]
    if not errors:
        return ""
    first = min(errors, key=lambda record: record.record_id)
    return f"step {first.step!r}: {first.error}"


def _may_run(row: RunRow, live: bool | None, attempts: Sequence[AttemptView]) -> bool:
    """Return whether what is in flight may be running: its attempt lives, or nobody can say that it does not."""
    may_write = not attempts or attempts[-1].end is not AttemptEnd.TAKEN_OVER
    working = row.state in (RunState.RUNNING, RunState.QUARANTINED, RunState.CANCELLED)
    return live is not False and may_write and working


def _steps(
    told: _Told, row: RunRow, attempts: Sequence[AttemptView], marks: Sequence[InFlight], *, running: bool
) -> tuple[StepView, ...]:
    definitions = attempts[-1].steps if attempts else ()
    known = {definition.name for definition in definitions}
    strays = tuple(StepDefinition.unknown(name) for name in told.by_step if name not in known)
    in_flight = {mark.name for mark in marks}
    settled = settle(
        (*definitions, *strays),
        told.by_step,
        attempt=row.attempt,
        used=told.used,
        in_flight=in_flight,
        running=running,
        executed=not attempts or attempts[-1].executed,
    )
    return tuple(
        StepView(
            definition=definition,
            defined=definition.name in known,
            state=settled[definition.name].state if definition.name in known else StepState.REMOVED,
            current=settled[definition.name].record,
            records=tuple(told.by_step.get(definition.name, ())),
            in_flight=tuple(mark for mark in marks if mark.name == definition.name),
        )
        for definition in (*definitions, *strays)
    )
