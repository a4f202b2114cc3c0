"""What happened in each attempt of a run and what the next `execute` would be answered, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.run_view import AttemptView, DecisionView, RunView
from agent_run_ledger.ledger.step_states import Settled, StepDefinition, StepState, settle
from agent_run_ledger.ledger.views import RecordView
from agent_run_ledger.runs.prefix import Origin


class Cause(StrEnum):
    """Why a body ran in an attempt."""

    FIRST = "first"
    CHANGED = "changed"
    ABANDONED = "abandoned"
    FAILED = "failed"
    RESCUED = "rescued"


class NextAnswer(StrEnum):
    """What the next `execute` with the same inputs and the same program would be answered."""

    GOES_ON = "goes_on"
    RETURNS_RECORD = "returns_record"
    BUSY = "busy"
    REFUSED_UNTIL_RELEASE = "refused_until_release"
    REFUSED_FOR_EVER = "refused_for_ever"
    REFUSED_AS_ERASED = "refused_as_erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep:
    """A step whose body ran: why, how it ended, and what it cost in tries. `because` are the paths that changed."""

    name: str
    state: StepState
    cause: Cause
    because: tuple[str, ...]
    tries: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStory:
    """One attempt. `code_changed`, `added` and `removed` compare its program with that of the attempt before.

    `origins`: for each restored or kept step whose record is another run's, which run recorded it.
    """

    attempt: AttemptView
    restored: tuple[str, ...]
    live: tuple[LiveStep, ...]
    kept: tuple[str, ...]
    waiting: tuple[str, ...]
    code_changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    decisions: tuple[DecisionView, ...]
    origins: Mapping[str, Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """All attempts in order, and what comes next."""

    run: RunView
    attempts: tuple[AttemptStory, ...]
    next_answer: NextAnswer


def tell_run(run: RunView) -> RunStory:
    """Return the story of a run. Reads nothing: the view has it all."""
    records = {step.definition.name: step.records for step in run.steps}
    now = {step.definition.name: Settled(state=step.state, record=step.current) for step in run.steps}
    stories: list[AttemptStory] = []
    before: AttemptView | None = None
    for attempt in run.attempts:
        last = attempt.number == run.row.attempt
        settled = now if last else _as_of(attempt, records)
        stories.append(_tell(run, attempt, before, records, settled))
        before = attempt
    return RunStory(run=run, attempts=tuple(stories), next_answer=next_answer(run))


def _as_of(attempt: AttemptView, records: Mapping[str, Sequence[RecordView]]) -> Mapping[str, Settled]:
    return settle(
        attempt.steps,
        records,
        attempt=attempt.number,
        used=None,
        in_flight=(),
        running=False,
        executed=attempt.executed,
    )


def _tell(
    run: RunView,
    attempt: AttemptView,
    before: AttemptView | None,
    records: Mapping[str, Sequence[RecordView]],
    settled: Mapping[str, Settled],
) -> AttemptStory:
    def named(*states: StepState) -> tuple[str, ...]:
        return tuple(step.name for step in attempt.steps if settled[step.name].state in states)

    ran = named(StepState.LIVE, StepState.FAILED, StepState.RESCUED, StepState.UNCERTAIN, StepState.RUNNING)
    earlier = {} if before is None else {step.name: step for step in before.steps}
    present = {step.name: step for step in attempt.steps}
    return AttemptStory(
        attempt=attempt,
        restored=named(StepState.RESTORED),
        live=tuple(_live(name, settled[name], records.get(name, ()), attempt.number) for name in ran),
        kept=named(StepState.KEPT),
        waiting=named(StepState.WAITING),
        code_changed=tuple(name for name, step in present.items() if _code_differs(step, earlier.get(name))),
        added=tuple(name for name in present if before is not None and name not in earlier),
        removed=tuple(name for name in earlier if name not in present),
        decisions=tuple(decision for decision in run.decisions if decision.attempt == attempt.number),
        origins=_origins(attempt, settled),
    )


def _origins(attempt: AttemptView, settled: Mapping[str, Settled]) -> dict[str, Origin]:
    origins: dict[str, Origin] = {}
    for step in attempt.steps:
        record = settled[step.name].record
        if record is not None and record.origin is not None:
            origins[step.name] = record.origin
    return origins


def _live(name: str, settled: Settled, records: Sequence[RecordView], attempt: int) -> LiveStep:
    mine = [record for record in records if record.since_attempt == attempt]
    earlier = [record for record in records if record.since_attempt < attempt]
    because = mine[-1].because if mine else ()
    return LiveStep(
        name=name,
        state=settled.state,
        cause=Cause.CHANGED if because else _cause(earlier),
        because=because,
        tries=max((record.tries for record in mine), default=1),
        error=mine[-1].error if mine else "",
    )


_CAUSES = {
    RecordKind.RESULT: Cause.CHANGED,
    RecordKind.ABANDONED: Cause.ABANDONED,
    RecordKind.ERROR: Cause.FAILED,
    RecordKind.RESCUED: Cause.RESCUED,
}


def _cause(earlier: Sequence[RecordView]) -> Cause:
    return _CAUSES[earlier[-1].kind] if earlier else Cause.FIRST


def _code_differs(now: StepDefinition, before: StepDefinition | None) -> bool:
    return before is not None and bool(now.code_hex and before.code_hex) and now.code_hex != before.code_hex


def next_answer(run: RunView) -> NextAnswer:
    """Return what the next attempt at a run would be answered."""
    if run.is_refused and run.row.state not in (RunState.CANCELLED, RunState.QUARANTINED):
        return NextAnswer.REFUSED_AS_ERASED
    if run.row.state is RunState.COMPLETED:
        return NextAnswer.RETURNS_RECORD
    if run.row.state is RunState.CANCELLED:
        return NextAnswer.REFUSED_FOR_EVER
    if run.row.state is RunState.QUARANTINED:
        return NextAnswer.REFUSED_UNTIL_RELEASE
    return NextAnswer.BUSY if run.live and not run.taken_over else NextAnswer.GOES_ON
