"""What observers are told of a run: plain values about attempts, calls and commits, without inputs or results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedCall:
    """A call that an earlier attempt began and nothing says how it ended: its cost is uncertain.

    `unknown`: it may not be repeated, so its outcome stays unknown until a person resolves it.
    """

    step: str
    attempt: int
    tries: int
    started_at_ms: int
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttemptOpened:
    """An attempt of a run began. This object stands for the attempt in every later notice of it.

    `resumed`: it is not the run's first attempt. `takeover`: another process may still believe that it works on the
    run. `abandoned`: what its start found begun and not concluded.
    """

    run_id: str
    attempt: int
    generation: int
    resumed: bool
    takeover: bool
    abandoned: tuple[AbandonedCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallBegun:
    """The body of a step is about to run, its `tries`-th time in this attempt. This object stands for the call."""

    attempt: AttemptOpened
    step: str
    tries: int
    started_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRestored:
    """A call was answered from its record: its body did not run, and what it used was paid for before.

    `read_usage` reads what the recorded call used from the store (the stored form of `kernel.usage`); b"" for unknown.
    """

    attempt: AttemptOpened
    step: str
    record_id: int
    read_usage: Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConcluded:
    """A call ended and its record is committed: a RESULT, an ERROR or a RESCUED.

    `error` is what the step raised, or why its result cannot be stored. `again`: the step will be tried again after
    a wait. `usage` is the record's (the stored form of `kernel.usage`), b"" where nobody said.
    """

    call: CallBegun
    kind: RecordKind
    record_id: int
    ended_at_ms: int
    usage: bytes
    error: BaseException | None
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallJudged:
    """The breaker found that a call repeats earlier ones; its record, which is committed, says so.

    `level`: "warn", "nudge" or "quarantine"; `rule` and `count` of `limit` as in `kernel.loops.Verdict`.
    """

    attempt: AttemptOpened
    step: str
    record_id: int
    level: str
    rule: str
    count: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUnrecorded:
    """A body ran in this attempt, and when the attempt ended no record of it was known to be committed.

    Its commit failed, or it was interrupted. `usage` is what it said it used, b"" for unknown: paid, and not on record.
    """

    call: CallBegun
    usage: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMade:
    """A commit of this attempt came back. `failed` is the code of what it raised, "" when it landed.

    `waited_s` is the time before the write lock was had (-1 when it never was), `took_s` all of it, in seconds.
    """

    attempt: AttemptOpened
    waited_s: float
    took_s: float
    failed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """An attempt ended and gave the run back. `state` is the run's, as this attempt last saw it on record.

    Still `running`: interrupted, taken over, or the store failed. `error` is what `execute` raises.
    """

    attempt: AttemptOpened
    state: RunState
    error: BaseException | None


Notice = AttemptOpened | CallRestored | CallConcluded | CallJudged | CallUnrecorded | CommitMade | AttemptEnded
