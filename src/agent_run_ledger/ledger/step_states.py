"""Where each step of a run stood in one attempt, judged from records alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from agent_run_ledger.kernel.digests import short_digest
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.views import RecordView


class StepState(StrEnum):
    """Where a step stands in an attempt.

    LIVE: its body ran and its result was recorded. RESTORED: the record of an earlier attempt, or of a run that it
    was forked from, stood for it. KEPT: there is such a record, and nothing shows that this attempt came as far.
    RUNNING: started and its attempt is alive. UNCERTAIN: started, and nothing says how it ended. WAITING: not started.
    REMOVED: it has records and is no longer part of the pipeline.
    """

    LIVE = "live"
    RESTORED = "restored"
    KEPT = "kept"
    RUNNING = "running"
    FAILED = "failed"
    RESCUED = "rescued"
    UNCERTAIN = "uncertain"
    WAITING = "waiting"
    REMOVED = "removed"


_FIELDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """A step as a START record describes it."""

    name: str
    version: str
    depends_on: tuple[str, ...]
    code_hex: str

    @classmethod
    def parse_all(cls, steps: object) -> tuple[StepDefinition, ...]:
        """Return the steps of a START record, [name, version, dependencies, code]; what is not that is left out."""
        listed = cast("list[object]", steps) if isinstance(steps, list) else []
        return tuple(parsed for item in listed if (parsed := cls._parse(item)) is not None)

    @classmethod
    def unknown(cls, name: str) -> StepDefinition:
        """Return what is known of a step that no START record of the last attempt describes: its name."""
        return cls(name=name, version="", depends_on=(), code_hex="")

    @classmethod
    def _parse(cls, item: object) -> StepDefinition | None:
        fields = cast("list[object]", item) if isinstance(item, list) else []
        if len(fields) != _FIELDS or not isinstance(fields[2], list):
            return None
        name, version, code_hex = (str(fields[at]) for at in (0, 1, 3))
        needed = tuple(map(str, cast("list[object]", fields[2])))
        return cls(name=name, version=version, depends_on=needed, code_hex=code_hex)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A step's state, and the record it rests on: the result, or the error or abandonment that stands last.

    None for what has not ended: an earlier attempt's record says nothing about a call that was started since.
    """

    state: StepState
    record: RecordView | None


_FROM_KIND = {
    RecordKind.RESULT: StepState.LIVE,
    RecordKind.ERROR: StepState.FAILED,
    RecordKind.RESCUED: StepState.RESCUED,
    RecordKind.ABANDONED: StepState.UNCERTAIN,
}
_HOLDS = (StepState.LIVE, StepState.RESTORED)


def settle(
    definitions: Sequence[StepDefinition],
    records: Mapping[str, Sequence[RecordView]],
    *,
    attempt: int,
    used: Collection[int] | None,
    in_flight: Collection[str],
    running: bool,
    executed: bool = True,
) -> dict[str, Settled]:
    """Return where each step stood in `attempt`, or stands now where that is the last one.

    `records`: by step, in the order recorded. `used`: the record ids a completed run rests on, None otherwise.
    `in_flight`: steps with a start mark; `running` says whether their attempt is alive.
    `executed` is False for the attempt that is the making of a fork: nothing was restored in it.
    """
    settled: dict[str, Settled] = {}
    open_names: list[StepDefinition] = []
    for definition in definitions:
        earlier = [record for record in records.get(definition.name, ()) if record.since_attempt <= attempt]
        mine = [record for record in earlier if record.since_attempt == attempt]
        results = [record for record in earlier if record.kind is RecordKind.RESULT]
        chosen = [record for record in results if used is not None and record.record_id in used]
        if definition.name in in_flight:
            state = StepState.RUNNING if running else StepState.UNCERTAIN
            settled[definition.name] = Settled(state=state, record=None)
        elif chosen and chosen[-1].since_attempt < attempt:
            settled[definition.name] = Settled(state=StepState.RESTORED, record=chosen[-1])
        elif mine:
            settled[definition.name] = Settled(state=_FROM_KIND[mine[-1].kind], record=mine[-1])
        elif results:
            settled[definition.name] = Settled(state=StepState.KEPT, record=results[-1])
            open_names.append(definition)
        else:
            settled[definition.name] = Settled(state=StepState.WAITING, record=None)
    if used is None and executed:
        _restore(open_names, settled)
    return settled


def _restore(open_steps: list[StepDefinition], settled: dict[str, Settled]) -> None:
    """Turn KEPT into RESTORED where everything the step depends on holds: an attempt restores all it can at once."""
    while True:
        still_open = [step for step in open_steps if not _is_restored(step, settled)]
        for step in open_steps:
            if step not in still_open:
                settled[step.name] = Settled(state=StepState.RESTORED, record=settled[step.name].record)
        if len(still_open) == len(open_steps):
            return
        open_steps = still_open


def _is_restored(step: StepDefinition, settled: Mapping[str, Settled]) -> bool:
    record = settled[step.name].record
    for name in step.depends_on:
        needed = settled.get(name)
        if record is None or needed is None or needed.record is None or needed.state not in _HOLDS:
            return False
        if needed.record.record_id > record.record_id and not _takes(record, needed.record):
            return False
    return True


def _takes(record: RecordView, producer: RecordView) -> bool:
    """Return whether one of the record's arguments has the digest of the producer's result."""
    return any(
        short_digest(record.salt, f"a.{name}", producer.value_sha256) == tag for name, tag in record.arguments.items()
    )
