"""What a run does next about one of its effects, from how the members of its key stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent_run_ledger.kernel.effects.action import Action
from agent_run_ledger.kernel.effects.states import ActionState, TargetClass


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
    @property
    def generation(self) -> int | None: ...  # noqa: D102
    @property
    def in_doubt_since_ms(self) -> int | None: ...  # noqa: D102
    @property
    def policy_sha256(self) -> bytes: ...  # noqa: D102
    @property
    def audience(self) -> str: ...  # noqa: D102
    @property
    def executor(self) -> str: ...  # noqa: D102
    @property
    def target_class(self) -> TargetClass: ...  # noqa: D102


class Seen(Protocol):
    """What is seen of a member by who waits for it."""

    @property
    def state(self) -> ActionState: ...  # noqa: D102
    @property
    def handed_out(self) -> bool: ...  # noqa: D102
    @property
    def drain(self) -> bytes | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTerms:
    """Under which terms a program wants its effect: the policy, to whom it goes, who sends it.

    `policies` are the digests of all policies that the trust file has now.
    """

    policy_sha256: bytes
    audience: str
    executor: str
    target_class: TargetClass
    policies: frozenset[bytes]


class Move(StrEnum):
    """What comes next. DRIFT: the key belongs to other bytes. GIVE: the outcome is on record, whatever it is.

    OTHER_POLICY: other people were asked than the program wants. UNKNOWN_POLICY: the policy under which they were asked
    is one no more. OTHER_TERMS: it would go elsewhere, or in another way. APPROVAL, ELSEWHERE and EVIDENCE are waits:
    for people, for another worker, for what ends a doubt.
    """

    PROPOSE = "propose"
    DISPATCH = "dispatch"
    DOUBT = "doubt"
    LOOK = "look"
    SUCCEED = "succeed"
    GIVE = "give"
    DRIFT = "drift"
    OTHER_POLICY = "other_policy"
    UNKNOWN_POLICY = "unknown_policy"
    OTHER_TERMS = "other_terms"
    APPROVAL = "approval"
    ELSEWHERE = "elsewhere"
    EVIDENCE = "evidence"


def next_move(
    members: Sequence[Member],
    *,
    request_sha256: bytes,
    terms: Callable[[], WantedTerms],
    worker: str,
    was_ours: Callable[[str], bool],
    looked: bool,
    successors: int,
) -> Move:
    """Return what follows for these bytes. `members`: of their key, in the order in which they were made.

    `terms` is asked only where something could still be begun under them: whoever proposed the key first chose those
    of its member, and what was begun or decided under others is told as it is.
    `worker` is this attempt; `was_ours` says whether a worker was an attempt of this run that is over: nobody else may
    doubt a claim before its time. `looked`: whether the target was asked about the doubt already. `successors`: how
    many may be proposed by the run itself, each once it is proved that the one before did not happen; those that people
    propose after the same proof count, what they edit does not.

    Nothing here leads from a claim back to one: what was begun and did not end is doubted, never begun again.
    """
    if not members:
        return Move.PROPOSE
    if all(member.request_sha256 != request_sha256 for member in members):
        return Move.DRIFT
    last = members[-1]
    if last.state in (ActionState.PROPOSED, ActionState.AVAILABLE):
        ready = Move.APPROVAL if last.state is ActionState.PROPOSED else Move.DISPATCH
        return differs(last, terms()) or ready
    if last.state in (ActionState.CLAIMED, ActionState.PREPARED):
        return _held(last, worker, was_ours)
    if last.state is ActionState.UNRESOLVED:
        return Move.EVIDENCE if looked else Move.LOOK
    if last.state is ActionState.NOT_EXECUTED and _followed(members) < successors:
        return differs(last, terms()) or Move.SUCCEED
    return Move.GIVE


def _followed(members: Sequence[Member]) -> int:
    """Return how many members were begun and have a successor. What was edited before it was begun is none of them."""
    return sum(one.generation is not None or one.in_doubt_since_ms is not None for one in members[:-1])


def differs(member: Member, terms: WantedTerms) -> Move | None:
    """Return in what the terms of a member are not the wanted ones, None where they are."""
    if member.policy_sha256 not in terms.policies:
        return Move.UNKNOWN_POLICY
    if member.policy_sha256 != terms.policy_sha256:
        return Move.OTHER_POLICY
    wanted = (terms.audience, terms.executor, terms.target_class)
    return None if (member.audience, member.executor, member.target_class) == wanted else Move.OTHER_TERMS


def standing(action: Action) -> str:
    """Return in one word what of an action decides about a run that waits for it: another word, and it may go on."""
    drain = None if action.drain is None else action.drain.evidence_id
    return _standing(action.state, handed_out=action.handed_out, drain=drain)


def standing_seen(member: Seen) -> str:
    """Return the same word of an action as a run sees it."""
    return _standing(member.state, handed_out=member.handed_out, drain=member.drain)


def _standing(state: ActionState, *, handed_out: bool, drain: bytes | None) -> str:
    return f"{state}:{'handed_out' if handed_out else 'kept'}:{'' if drain is None else drain.hex()}"


def _held(last: Member, worker: str, was_ours: Callable[[str], bool]) -> Move:
    """Return what follows where somebody has the claim."""
    if last.worker == worker:
        return Move.DOUBT if last.handed_out else Move.DISPATCH
    return Move.DOUBT if last.worker is not None and was_ours(last.worker) else Move.ELSEWHERE
