"""A call of a dynamic run between the moment it was made and the moment it is answered, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent_run_ledger.runs.batches import Started
from agent_run_ledger.runs.bodies import Call
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.frames import Equal, Frame
from agent_run_ledger.runs.steps import Step


@dataclass(slots=True, kw_only=True)
class OpenCall:
    """A call between the moment it was made and the moment it is answered.

    `shared`: calls with its key are one call. `once`: it is not tried again within the attempt, for its chunks are
    out. `marked`: its start is on disk, and nothing on disk says how it ended.
    """

    frame: Frame
    equal: Equal
    step: Step[..., Any]
    identity: CallIdentity
    body: Call
    shared: bool
    inner: Frame
    once: bool
    because: list[str] = field(default_factory=list[str])
    started: Started | None = None
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call is answered: with a value or an error; `again_in_s`: not yet, its body is to be run again then.

    `part`: the value is what was taken of a stream that was left; there is no more on record.
    """

    value: Any = None
    part: bool = False
    error: Exception | None = None
    again_in_s: float | None = None

    def give(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value
