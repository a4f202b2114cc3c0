"""What a run does next about one of its effects, from how the members of its key stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from agent_run_ledger.kernel.effects.states import ActionState


class Member(Protocol):
    """What is asked about one member of a key: see `effects.views.ActionView`."""

    @property
    def state(self) -> ActionState: ...  # noqa: D102
    @property
    def request_sha256(self) -> bytes: ...  # noqa: D102
    @property
    def worker(self) -> str | None: ...  # noqa: D102
    @property
    def handed_out(self) -> bool: ...  # noqa: D102


class Move(StrEnum):
    """What comes next. DRIFT: the key belongs to other bytes. GIVE: the outcome is on record, whatever it is.

    APPROVAL, ELSEWHERE and EVIDENCE are waits: for people, for another worker, for what ends a doubt.
    """

    PROPOSE = "propose"
    DISPATCH = "dispatch"
    DOUBT = "doubt"
    LOOK = "look"
    SUCCEED = "succeed"
    GIVE = "give"
    DRIFT = "drift"
    APPROVAL = "approval"
    ELSEWHERE = "elsewhere"
    EVIDENCE = "evidence"


def next_move(
    members: Sequence[Member],
    *,
    request_sha256: bytes,
    worker: str,
    was_ours: Callable[[str], bool],
    looked: bool,
    successors: int,
) -> Move:
    """Return what follows for these bytes. `members`: of their key, in the order in which they were made.

    `worker` is this attempt; `was_ours` says whether a worker was an attempt of this run that is over: nobody else may
    doubt a claim before its time. `looked`: whether the target was asked about the doubt already. `successors`: how
    many may be proposed by the run itself, each once it is proved that the one before did not happen.

    Nothing here leads from a claim back to one: what was begun and did not end is doubted, never begun again.
    """
    if not members:
        return Move.PROPOSE
    if all(member.request_sha256 != request_sha256 for member in members):
        return Move.DRIFT
    last = members[-1]
    if last.state is ActionState.PROPOSED:
        return Move.APPROVAL
    if last.state is ActionState.AVAILABLE:
        return Move.DISPATCH
    if last.state in (ActionState.CLAIMED, ActionState.PREPARED):
        return _held(last, worker, was_ours)
    if last.state is ActionState.UNRESOLVED:
        return Move.EVIDENCE if looked else Move.LOOK
    if last.state is ActionState.NOT_EXECUTED and len(members) <= successors:
        return Move.SUCCEED
    return Move.GIVE


def _held(last: Member, worker: str, was_ours: Callable[[str], bool]) -> Move:
    """Return what follows where somebody has the claim."""
    if last.worker == worker:
        return Move.DOUBT if last.handed_out else Move.DISPATCH
    return Move.DOUBT if last.worker is not None and was_ours(last.worker) else Move.ELSEWHERE
