"""Who decides: principals with their keys and roles, and the policies that say how many of whom approve."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_run_ledger.kernel.effects.action import Now
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.public_keys import key_id_of


class PrincipalKind(StrEnum):
    """A person, or a program that acts by rules of its own."""

    PERSON = "person"
    AUTOMATIC = "automatic"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key of 32 bytes that counts in `not_before_ms <= now < not_after_ms`, Unix milliseconds."""

    public: bytes
    not_before_ms: int
    not_after_ms: int

    @property
    def key_id(self) -> str:
        """Its id."""
        return key_id_of(self.public)

    def begun(self, now: Now) -> bool:
        """Whether it has begun to count, at the earliest that it may be."""
        return self.not_before_ms <= now.earliest_ms

    def over(self, now: Now) -> bool:
        """Whether it counts no more, at the latest that it may be."""
        return now.latest_ms >= self.not_after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody by the name under which statements and commands know them, with their roles and keys.

    `rules_sha256`: the digest (32 bytes) of the rules by which an automatic approver decides; nobody else has one.
    """

    name: str
    kind: PrincipalKind
    roles: frozenset[Role]
    keys: tuple[PublicKey, ...] = ()
    rules_sha256: bytes | None = None

    def key(self, key_id: str) -> PublicKey | None:
        """Return the key of an id, None where it is not theirs."""
        return next((key for key in self.keys if key.key_id == key_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """How many of whom approve: `approvals_needed` of `approvers`, of which at least `people_needed` are people.

    An action under it has a window of at most `max_window_ms` milliseconds.
    """

    name: str
    approvals_needed: int
    people_needed: int
    approvers: frozenset[str]
    max_window_ms: int
