"""Faults inside of one worker of the effect kit: a way that repeats or loses, and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from agent_run_ledger import probes
from agent_run_ledger.effects.system_time import SystemTime
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.kernel.effects.report import Lost, Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.states import TargetClass
from agent_run_ledger.ports.targets import Sending, Target
from agent_run_ledger.targets.http import HttpTarget


class OnSending(StrEnum):
    """What a way does to one request where the kit cannot stand between the tool and its target."""

    NOTHING = "nothing"
    TWICE = "twice"
    REPLY_LOST = "reply_lost"


@dataclass(slots=True)
class FaultyTarget:
    """A target with a fault between it and who sends. `struck`: how often the fault met a request."""

    target: Target
    fault: OnSending
    struck: int = 0

    @property
    def audience(self) -> str:
        """See ports.targets.Target.audience."""
        return self.target.audience

    @property
    def target_class(self) -> TargetClass:
        """See ports.targets.Target.target_class."""
        return self.target.target_class

    def check(self, request: Request | Call) -> None:
        """See ports.targets.Target.check."""
        self.target.check(request)

    def send(self, sending: Sending) -> Report:
        """Send it as the target does, with the fault."""
        if self.fault is OnSending.NOTHING:
            return self.target.send(sending)
        self.struck += 1
        if self.fault is OnSending.TWICE:
            self.target.send(sending)
            return self.target.send(sending)
        self.target.send(sending)
        return Lost(reason="lost_by_the_kit")


def impatient(target: Target, timeout_s: float | None) -> Target:
    """Return a way that waits no longer than this for an answer, where it is one of ours and can be told so."""
    if timeout_s is None or not isinstance(target, HttpTarget):
        return target
    return replace(target, timeout_s=min(timeout_s, target.timeout_s))


class JumpingTime:
    """The machine's clock, which is set by `jump_ms` when its process reaches `at`. See ports.effects.TimeSource.

    Unix time jumps, the time since the machine's start does not: nobody can set that.
    """

    def __init__(self, jump_ms: int, at: str) -> None:
        self._clock = SystemTime()
        self._jump_ms = jump_ms
        self._at = at
        self.jumped = False

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        true = self._clock.sample()
        return replace(true, wall_ms=true.wall_ms + self._jump_ms) if self.jumped else true

    def install(self) -> None:
        """Jump at the point, and let the hook that was there go on to be told of every point."""
        before: Callable[[str], None] | None = None

        def told(point: str) -> None:
            self.jumped = self.jumped or point == self._at
            if before is not None:
                before(point)

        before = probes.install(told)
