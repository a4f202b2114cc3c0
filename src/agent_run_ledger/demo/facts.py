"""The facts of a demonstration, computed from three witnesses: the meter, the driver's lives, and the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_run_ledger.demo.meter import MeterEvent, MeterLine


class Mark(StrEnum):
    """What happened to one step in one life. `again` must never occur: a recorded step whose body ran once more."""

    LIVE = "live"
    RESTORED = "restored"
    KILLED = "killed"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    AGAIN = "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process as the driver saw it. `signal` is what ended it, 0 for an exit by itself."""

    number: int
    pid: int
    exit_code: int
    signal: int
    wall_ms: int

    @property
    def ended(self) -> str:
        """Say how it ended."""
        if self.signal:
            return f"killed by signal {self.signal}"
        return "completed" if self.exit_code == 0 else f"stopped with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One RESULT record: in which attempt it was recorded, how long its body took, and what it says it cost."""

    name: str
    attempt: int
    took_ms: int
    subject: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A run as the ledger has it."""

    state: str
    attempt: int
    steps: tuple[RecordedStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The log as it was verified: its size in leaves and its root."""

    log_size: int
    root_hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step through all lives. `tokens` is what the meter shows for its recorded result."""

    number: int
    name: str
    subject: str
    marks: tuple[Mark, ...]
    tokens: int
    took_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeFacts:
    """One life in numbers. All tokens are the meter's.

    paid = spent + uncertain. `spent` went into results that this life recorded, `uncertain` into calls of which it
    recorded nothing; `restored` was paid by an earlier life and not again. `calls_without_answer` cost nobody knows
    how much: they are in none of the sums.
    """

    number: int
    ended: str
    wall_ms: int
    steps_live: int
    steps_restored: int
    killed_in: str
    model_calls: int
    calls_without_answer: int
    tokens_paid: int
    tokens_spent: int
    tokens_uncertain: int
    tokens_restored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All lives and all steps. The two lists of steps paid in more than one life tell recorded from unrecorded."""

    lives: tuple[LifeFacts, ...]
    steps: tuple[StepFacts, ...]
    recorded_paid_again: tuple[str, ...]
    unrecorded_paid_again: tuple[str, ...]
    tokens_in_records: int
    tokens_estimated: bool


def tally(names: Sequence[str], lives: Sequence[Life], meter: Sequence[MeterLine], history: History) -> Tally:
    """Return the facts about the steps `names` (in their order). A life's number is its attempt in the ledger."""
    recorded: dict[str, list[RecordedStep]] = {}
    for step in history.steps:
        recorded.setdefault(step.name, []).append(step)
    paid = [line for line in meter if line.event is MeterEvent.PAID]
    numbered = enumerate(names, start=1)
    steps = tuple(_step_facts(place, name, lives, meter, recorded.get(name, [])) for place, name in numbered)
    return Tally(
        lives=tuple(_life_facts(index, life, steps, meter, recorded) for index, life in enumerate(lives)),
        steps=steps,
        recorded_paid_again=_named(line for line in paid if _is_repeated(line, recorded)),
        unrecorded_paid_again=_named(line for line in paid if _is_lost(line, recorded)),
        tokens_in_records=sum(step.tokens for step in history.steps),
        tokens_estimated=any(line.estimated for line in paid),
    )


def merged(lives: Sequence[Life]) -> list[Life]:
    """Return one Life per number: a process that died before it became an attempt shares its successor's number."""
    by_number: dict[int, Life] = {}
    for life in lives:
        before = by_number.get(life.number)
        wall_ms = life.wall_ms + (0 if before is None else before.wall_ms)
        by_number[life.number] = Life(
            number=life.number, pid=life.pid, exit_code=life.exit_code, signal=life.signal, wall_ms=wall_ms
        )
    return list(by_number.values())


def _step_facts(
    place: int, name: str, lives: Sequence[Life], meter: Sequence[MeterLine], recorded: Sequence[RecordedStep]
) -> StepFacts:
    began = {line.life for line in meter if line.event is MeterEvent.BODY and line.step == name}
    attempts = {step.attempt for step in recorded}
    latest = recorded[-1] if recorded else None
    return StepFacts(
        number=place,
        name=name,
        subject="" if latest is None else latest.subject,
        marks=tuple(_mark(life, life.number in began, attempts) for life in lives),
        tokens=sum(
            line.tokens
            for line in meter
            if line.event is MeterEvent.PAID and line.step == name and latest and line.life == latest.attempt
        ),
        took_ms=None if latest is None else latest.took_ms,
    )


def _mark(life: Life, began: bool, attempts: Collection[int]) -> Mark:
    if life.number in attempts:
        return Mark.LIVE
    if any(attempt < life.number for attempt in attempts):
        return Mark.AGAIN if began else Mark.RESTORED
    if not began:
        return Mark.NOT_REACHED
    return Mark.KILLED if life.signal else Mark.FAILED


def _life_facts(
    index: int,
    life: Life,
    steps: Sequence[StepFacts],
    meter: Sequence[MeterLine],
    recorded: Mapping[str, Sequence[RecordedStep]],
) -> LifeFacts:
    marks = [(step, step.marks[index]) for step in steps]
    mine = [line for line in meter if line.life == life.number]
    paid = [line for line in mine if line.event is MeterEvent.PAID]
    spent = sum(line.tokens for line in paid if line.life in _attempts(line.step, recorded))
    total = sum(line.tokens for line in paid)
    return LifeFacts(
        number=life.number,
        ended=life.ended,
        wall_ms=life.wall_ms,
        steps_live=sum(1 for _, mark in marks if mark is Mark.LIVE),
        steps_restored=sum(1 for _, mark in marks if mark is Mark.RESTORED),
        killed_in=", ".join(step.name for step, mark in marks if mark is Mark.KILLED),
        model_calls=len(paid),
        calls_without_answer=sum(1 for line in mine if line.event is MeterEvent.LOST),
        tokens_paid=total,
        tokens_spent=spent,
        tokens_uncertain=total - spent,
        tokens_restored=sum(step.tokens for step, mark in marks if mark is Mark.RESTORED),
    )


def _attempts(step: str, recorded: Mapping[str, Sequence[RecordedStep]]) -> set[int]:
    return {record.attempt for record in recorded.get(step, ())}


def _is_repeated(line: MeterLine, recorded: Mapping[str, Sequence[RecordedStep]]) -> bool:
    """Return whether a call was paid after its step was recorded and came to no record of its own."""
    attempts = _attempts(line.step, recorded)
    return line.life not in attempts and any(attempt < line.life for attempt in attempts)


def _is_lost(line: MeterLine, recorded: Mapping[str, Sequence[RecordedStep]]) -> bool:
    """Return whether a call was paid, never recorded, and its step recorded by a later life."""
    attempts = _attempts(line.step, recorded)
    return bool(attempts) and all(attempt > line.life for attempt in attempts)


def _named(lines: Iterable[MeterLine]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.step for line in lines))
