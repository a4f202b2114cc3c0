"""What one commit of an attempt is to write, and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_run_ledger import codecs
from agent_run_ledger.kernel.budget import Reserve
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.calls import CallIdentity

STOPPED = frozenset((RunState.QUARANTINED, RunState.CANCELLED))
"""States of a run, or of one that it is within, in which nothing may start."""

MOST_WAITS: Final = 10_000
"""How many calls that waited one END names; what is beyond them counts in the budgets."""


@dataclass(slots=True, kw_only=True)
class Started:
    """A call that is running: where its mark stands, its step's place in the plan, and since when.

    `repeatable`: whether it may run again where nothing says how it ended. `after`: the latest record of the run when
    it was started, 0 where nobody asks. `reserve`: what it may use, as its step declares. `taken`: the chunks that were
    taken of a stream which was left. `called`: its body called steps, raised, and may not run again. `losses`:
    that of the transaction which marked it (see ports.Tx).
    """

    lane: int
    index: int
    identity: CallIdentity
    tries: int
    at_ms: int
    repeatable: bool = True
    kept_elsewhere: bool = False
    after: int = 0
    taken: codecs.Packed | None = None
    called: bool = False
    reserve: Reserve | None = None
    losses: int = 0


@dataclass(slots=True, kw_only=True)
class Concluded:
    """A call that ended, with the record that says how."""

    started: Started
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop that the breaker found: the reason of the QUARANTINE, and what its DECISION keeps beside it."""

    reason: str
    content: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A call that waited, by its record and its step, which no budget counts: the next attempt makes it again.

    `left`: nobody concluded it, and its record says that nobody knows how it ended. `reserve`: what it had reserved.
    """

    record_id: int
    name: str
    left: bool = False
    reserve: Reserve | None = None


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one commit is to write. `end` builds the END content from the record ids of `concluded`.

    `values` are results without a start of their own; `abandoned` are calls that nobody will conclude any more.
    `loop`: the run is to be put into QUARANTINE for one, and how its reason and its decision say so. `waits`: the
    calls that the run which ends waits for, and makes again.
    """

    concluded: list[Concluded] = field(default_factory=list[Concluded])
    starts: list[Started] = field(default_factory=list[Started])
    values: Sequence[Record] = ()
    abandoned: Sequence[Started] = ()
    loop: Loop | None = None
    end_state: RunState | None = None
    end_reason: str = ""
    end: Callable[[Sequence[int]], dict[str, object]] | None = None
    waits: Sequence[Waits] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.concluded or self.starts or self.values or self.abandoned) and self.end_state is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """A run that the attempt's run is within, and that lets nothing start any more: it was stopped, or its budget."""

    run_id: str
    state: RunState
    reason: str


@dataclass(slots=True, kw_only=True)
class Written:
    """What a commit wrote, and the run's state as it was found under the lock, or as the commit left it.

    `record_ids` are those of `concluded`, `value_ids` of `values`, `left_ids` of `abandoned`, `end_id` of
    the end, 0 for none. Of the starts only the first `started` were recorded: the others' bodies must not run (see
    `stopped.stopped`).
    """

    state: RunState
    reason: str
    record_ids: tuple[int, ...]
    value_ids: tuple[int, ...] = ()
    left_ids: tuple[int, ...] = ()
    end_id: int = 0
    started: int = 0
    above: Above | None = None
    losses: int = 0

    @property
    def last_id(self) -> int:
        """The highest record id of these, 0 for none."""
        return max((*self.value_ids, *self.record_ids, *self.left_ids, self.end_id))


def left_waiting(start: Started, record_id: int) -> Waits:
    """Return what is noted of a call of an effect that was left, by the record that says so."""
    return Waits(record_id=record_id, name=start.identity.name, left=True, reserve=start.reserve)


def waits_of(batch: Batch, left_ids: Sequence[int]) -> Sequence[Waits]:
    """Return the waits of a run that is not completed, with what is left at its very end; at most `MOST_WAITS`."""
    if batch.end_state is RunState.COMPLETED:
        return ()
    left = zip(batch.abandoned, left_ids, strict=True)
    here = [left_waiting(start, record_id) for start, record_id in left if start.kept_elsewhere]
    return [*batch.waits, *here][:MOST_WAITS]
