"""Receivers of all classes for the search: what each makes of a request that comes late, again or out of order."""

from __future__ import annotations

from typing import NamedTuple

from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.states import TargetClass


class Permit(NamedTuple):
    """A permit that left the ledger; `over`: its time is past. `worker` is the process that has it."""

    epoch: int
    generation: int
    over: bool
    worker: str


class Receiver(NamedTuple):
    """What the other side knows, and how many effects there were.

    `pending`: accepted and without a known outcome, as (generation, the effect ran, its process was stopped).
    """

    effects: int = 0
    epoch: int = 0
    mark: int = 0
    executed: frozenset[int] = frozenset()
    pending: frozenset[tuple[int, bool, bool]] = frozenset()


class Kind(NamedTuple):
    """A class of receivers, and what this one does wrong: the twins of the search on the far side."""

    target_class: TargetClass
    checks_expiry: bool = False
    fence_per_generation: bool = False
    accepted_is_fenced: bool = False
    accepts_over_accepted: bool = False


KINDS = {
    "N": Kind(TargetClass.N),
    "V": Kind(TargetClass.V, checks_expiry=True),
    "I": Kind(TargetClass.I, checks_expiry=True),
    "Ip": Kind(TargetClass.I),
    "F-": Kind(TargetClass.F_MINUS),
    "F": Kind(TargetClass.F),
}


def receive(kind: Kind, seen: Receiver, permit: Permit) -> Receiver:
    """One request arrives."""
    match kind.target_class:
        case TargetClass.N:
            return seen._replace(effects=seen.effects + 1)
        case TargetClass.V:
            if permit.over or permit.epoch < seen.epoch:
                return seen
            return seen._replace(effects=seen.effects + 1, epoch=permit.epoch)
        case TargetClass.I:
            if (kind.checks_expiry and permit.over) or permit.generation in seen.executed:
                return seen
            return seen._replace(effects=seen.effects + 1, executed=seen.executed | {permit.generation})
        case _:
            return _fenced(kind, seen, permit)


def _fenced(kind: Kind, seen: Receiver, permit: Permit) -> Receiver:
    generation = permit.generation
    if permit.epoch < seen.epoch or generation <= seen.mark:
        return seen
    if kind.target_class is TargetClass.F:
        return seen._replace(
            effects=seen.effects + 1,
            epoch=permit.epoch,
            mark=generation,
            executed=seen.executed | {generation},
        )
    if seen.pending and not kind.accepts_over_accepted:
        return seen
    return seen._replace(epoch=permit.epoch, mark=generation, pending=seen.pending | {(generation, False, False)})


def run_pending(seen: Receiver) -> list[tuple[str, Receiver]]:
    """What can happen to accepted requests of F-minus: the effect runs, then its outcome is stored. Or never."""
    after: list[tuple[str, Receiver]] = []
    for generation, ran, stopped in seen.pending:
        rest = seen.pending - {(generation, ran, stopped)}
        if stopped:
            continue
        if ran:
            after.append(("outcome stored", seen._replace(pending=rest, executed=seen.executed | {generation})))
        else:
            after.append(
                ("EFFECT", seen._replace(pending=rest | {(generation, True, False)}, effects=seen.effects + 1))
            )
    return after


def stop(seen: Receiver) -> Receiver:
    """The receiver's process is proven stopped: nothing that it accepted runs any more, and it knows no outcome."""
    return seen._replace(pending=frozenset((generation, ran, True) for generation, ran, _ in seen.pending))


def settle(seen: Receiver) -> Receiver:
    """The receiver is told what was observed of what it accepted."""
    return seen._replace(
        pending=frozenset(), executed=seen.executed | {generation for generation, ran, _ in seen.pending if ran}
    )


def raise_epoch(kind: Kind, seen: Receiver, epoch: int) -> Receiver:
    """An admission reaches the receiver; plain targets and idempotency keys know no epoch."""
    knows = kind.target_class not in (TargetClass.N, TargetClass.I)
    return seen._replace(epoch=max(seen.epoch, epoch)) if knows else seen


def fence(kind: Kind, seen: Receiver, mark: int) -> tuple[Receiver, Found, int | None]:
    """The signed answer for the key, with the generation that was executed, if one was."""
    asked = {mark} if kind.fence_per_generation else set(seen.executed)
    if seen.executed & asked:
        return seen, Found.EXECUTED, max(seen.executed & asked)
    found = Found.UNKNOWN if seen.pending and not kind.accepted_is_fenced else Found.NOTHING
    return seen._replace(mark=max(seen.mark, mark)), found, None
