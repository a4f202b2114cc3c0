"""What the rules answer, and the form of a guard: a code, words and a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from agent_run_ledger.kernel.effects.action import Action, Standing
from agent_run_ledger.kernel.effects.states import ActionState, Event

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """One transition, for one leaf: `rows` are the members as they are afterwards, the changed and the new ones.

    `old` and `new` are the states of the member that was asked about; `ledger` is set where the ledger itself changes.
    `cosign_first`: tell nobody that it is done before the leaf is cosigned.
    """

    event: Event
    old: ActionState | None
    new: ActionState | None
    rows: tuple[Action, ...]
    ledger: Standing | None = None
    cosign_first: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """Nothing changes: what was asked for is on record already, in this row. Never a second grant.

    `same_permit`: the permit that was handed out may be told again, since its receiver takes it for one effect.
    """

    action: Action
    same_permit: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing changes, and the same question gets the same answer. `code` is stable, `words` are for people."""

    code: str
    words: str


Decision: TypeAlias = Accepted | Recorded | Rejected


@dataclass(frozen=True, slots=True)
class Case(Generic[C]):
    """One question to the guards: the ledger, all members of the key in order, the one asked about, the command."""

    ledger: Standing
    members: tuple[Action, ...]
    member: Action | None
    command: C

    @property
    def row(self) -> Action:
        """The member asked about; LookupError for an event that has none, whose guards must not ask."""
        if self.member is None:
            raise LookupError("this event is about no member")
        return self.member


@dataclass(frozen=True, slots=True)
class Guard(Generic[C]):
    """One condition of a transition: where it does not hold, the answer is Rejected(code, words)."""

    code: str
    words: str
    holds: Callable[[Case[C]], bool]


def first_refusal(guards: Iterable[Guard[C]], case: Case[C]) -> Rejected | None:
    """Return the refusal of the first guard that does not hold, None when all do."""
    for guard in guards:
        if not guard.holds(case):
            return Rejected(guard.code, guard.words)
    return None
