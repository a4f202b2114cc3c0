"""The states of a run and the table of allowed transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands. `running` says nothing about a living process: the attempt lock does."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"
    COMPLETED = "completed"


class RunEvent(StrEnum):
    """What can happen to a run."""

    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    SUSPEND = "suspend"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    TAKEOVER = "takeover"
    CANCEL = "cancel"


class CallState(StrEnum):
    """Where one call of a step stands, as the log names it."""

    NONE = "none"
    STARTED = "started"
    RECORDED = "recorded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"
    RESOLVED = "resolved"
    RESCUED = "rescued"
    ERASED = "erased"


_R = RunState

RUN_TRANSITIONS: Mapping[tuple[RunState | None, RunEvent], RunState] = {
    (None, RunEvent.START): _R.RUNNING,
    (_R.RUNNING, RunEvent.START): _R.RUNNING,
    (_R.FAILED, RunEvent.START): _R.RUNNING,
    (_R.SUSPENDED, RunEvent.START): _R.RUNNING,
    (_R.RUNNING, RunEvent.COMPLETE): _R.COMPLETED,
    (_R.RUNNING, RunEvent.FAIL): _R.FAILED,
    (_R.RUNNING, RunEvent.SUSPEND): _R.SUSPENDED,
    (_R.RUNNING, RunEvent.QUARANTINE): _R.QUARANTINED,
    (_R.FAILED, RunEvent.QUARANTINE): _R.QUARANTINED,
    (_R.SUSPENDED, RunEvent.QUARANTINE): _R.QUARANTINED,
    (_R.QUARANTINED, RunEvent.RELEASE): _R.RUNNING,
    (_R.RUNNING, RunEvent.TAKEOVER): _R.RUNNING,
    (_R.FAILED, RunEvent.TAKEOVER): _R.FAILED,
    (_R.SUSPENDED, RunEvent.TAKEOVER): _R.SUSPENDED,
    (_R.RUNNING, RunEvent.CANCEL): _R.CANCELLED,
    (_R.FAILED, RunEvent.CANCEL): _R.CANCELLED,
    (_R.SUSPENDED, RunEvent.CANCEL): _R.CANCELLED,
    (_R.QUARANTINED, RunEvent.CANCEL): _R.CANCELLED,
}
"""Every pair that is not a key is refused. `cancelled` and `completed` have no way out."""


def next_run_state(state: RunState | None, event: RunEvent) -> RunState | None:
    """Return the state after `event`, or None when the table refuses it."""
    return RUN_TRANSITIONS.get((state, event))
