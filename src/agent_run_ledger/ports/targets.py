"""What sends stored bytes, in prose with "must": how a dispatch reaches its target, and what the target says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agent_run_ledger.kernel.effects.permit import Permit
from agent_run_ledger.kernel.effects.report import Report
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.kernel.effects.states import TargetClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One dispatch: the stored request, its permit, and the key under which a receiver may remember it.

    `in_time`: whether the permit still lives, by the clock of who sends. Asked last, before the first byte.
    """

    request: Request | Call
    permit: Permit
    idempotency_key: str
    in_time: Callable[[], bool]


class Target(Protocol):
    """What is acted on, and the way to it.

    - It must send at most one request for each `send`: nothing on the way may follow, repeat or pool it.
    - It must ask `in_time` after everything that can wait and before the first byte, and send nothing where it is over.
    - It must say NotSent only where no byte of the request can have left, and Answered only of a whole answer. What it
      does not know is Lost.
    - It must not let a credential out in an error, a report or a log.
    """

    @property
    def audience(self) -> str:
        """What the approved statement names as the audience."""
        ...

    @property
    def target_class(self) -> TargetClass:
        """What this way makes of the receiver; a class that takes one permit for one effect must be true of it."""
        ...

    def check(self, request: Request | Call) -> None:
        """Raise Misuse for a request that this target cannot send. Asked before a claim is made; nothing is sent.

        "other_request" for one of another kind or to somebody else, "other_arguments" for what it does not take.
        """
        ...

    def send(self, sending: Sending) -> Report:
        """Send the request, once, and return what is known then. An error that it raises counts as Lost."""
        ...
