"""The row of one member of a key, and where the ledger around it stands."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger.kernel.effects.evidence import Drain, Observation
from agent_run_ledger.kernel.effects.states import (
    CLOSED,
    FIRST_EPOCH,
    ActionState,
    LedgerState,
    TargetClass,
    WitnessPolicy,
)


def ends_by_time(target_class: TargetClass, *, checks_expiry: bool) -> bool:
    """Return whether time alone may end a doubt: the receiver itself refuses a permit that is over."""
    return target_class is TargetClass.V or (target_class is TargetClass.I and checks_expiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is to be done and under which conditions.

    Times are Unix milliseconds; the window is `not_before_ms <= now < dispatch_before_ms`. `preconditions` are pairs
    of name and expected value at the target. The class and `checks_expiry` (the receiver itself refuses a permit that
    is over) are what the audience is taken for, `approvals_needed` is what the policy of that digest says; all but that
    stands in the statement that approvers sign.
    """

    request_sha256: bytes
    executor: str
    audience: str
    target_class: TargetClass
    not_before_ms: int
    dispatch_before_ms: int
    policy_sha256: bytes
    display_sha256: bytes
    approvals_needed: int = 1
    checks_expiry: bool = False
    preconditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One approval that counts: whose it is, in which epoch, of which authorisation instance, over which statement."""

    approval_id: bytes
    principal: str
    epoch: int
    nonce: bytes
    statement_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One member of a key. Its claim's generation is above `floor`, and above that of every other member.

    `epoch`: that in which it was proposed, and so that of its approvals and its claim. `generation`: None before the
    claim. `worker`: the one process that holds the claim; a process that was started again is another worker.
    `opening`: through which opening of the ledger it was prepared. `prepare_leaf`: the log has the leaf of that.
    `in_doubt_since_ms`: when the doubt was recorded. `fenced_mark`: at or below it the receiver takes nothing more.
    `drain_corrections`: how many clock corrections the ledger had when the drain was recorded.
    `demoted_epoch`: the admission that made it unresolved. `rebuilt`: made from a receipt of a history that was lost,
    so the ledger may not have its bytes.
    """

    action_key: str
    action_id: bytes
    epoch: int
    floor: int
    state: ActionState
    requester: str
    terms: Terms
    generation: int | None = None
    approvals: tuple[Approval, ...] = ()
    revoked: bool = False
    claim_id: bytes | None = None
    claim_key: bytes | None = None
    worker: str | None = None
    claimed_ms: int | None = None
    prepare_leaf: bool = False
    opening: bytes | None = None
    prepared_ms: int | None = None
    permit_expires_ms: int | None = None
    handed_out: bool = False
    in_doubt_since_ms: int | None = None
    replaces: bytes | None = None
    drain: Drain | None = None
    drain_corrections: int = 0
    observation: Observation | None = None
    fenced_mark: int | None = None
    evidence: tuple[bytes, ...] = ()
    demoted_epoch: int | None = None
    rebuilt: bool = False

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state in CLOSED

    @property
    def mark(self) -> int:
        """The generation below which nothing new of this key may begin."""
        own = self.floor if self.generation is None else self.generation
        return own if self.fenced_mark is None else max(own, self.fenced_mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a ledger stands: what the rules need to know of it besides one key.

    `lost_leaves`: an admission of this ledger lost leaves. `bound_ms`: how far two clocks may be apart.
    `max_permit_ms`: the longest life of a permit. `closed_audiences`: receivers that the last admission did not
    reach. `origin_frozen`: the origin before the last admission can append nothing more. `opening` is drawn anew each
    time that a process opens the ledger, and never stored but in the rows that were prepared through it.
    `corrections`: how often officers corrected the clock. `corrected_ms`: the latest time that one of these
    corrections set or set aside, 0 without one; what was recorded before may have been so by any clock up to it.
    `clock_doubted`: beside what `state` says, the clock cannot be trusted either; where it is the clock alone, `state`
    says so and this is False.
    """

    ledger_id: bytes
    opening: bytes = b""
    state: LedgerState = LedgerState.OPEN
    epoch: int = FIRST_EPOCH
    witness: WitnessPolicy = WitnessPolicy.NONE
    lost_leaves: bool = False
    bound_ms: int = 1_000
    max_permit_ms: int = 60_000
    people_for_not_executed: int = 1
    officers_needed: int = 1
    closed_audiences: frozenset[str] = frozenset()
    origin_frozen: bool = True
    corrections: int = 0
    corrected_ms: int = 0
    clock_doubted: bool = False

    @property
    def clock_trusted(self) -> bool:
        """Whether the clock may say that something is over."""
        return self.state is not LedgerState.TIME_UNTRUSTED and not self.clock_doubted

    @property
    def witnessed(self) -> bool:
        """Whether there is a memory outside the database."""
        return self.witness is not WitnessPolicy.NONE

    @property
    def admitted(self) -> bool:
        """Whether an admission stands between this history and an earlier one."""
        return self.epoch > FIRST_EPOCH


@dataclass(frozen=True, slots=True)
class Now:
    """The time of one decision, read after the locks: between `earliest_ms` and `latest_ms`, both Unix milliseconds.

    The later one decides whether something is over, the earlier one whether it has begun.
    """

    earliest_ms: int
    latest_ms: int


def highest_mark(members: tuple[Action, ...]) -> int:
    """Return the highest mark of a key, 0 for a key without members."""
    return max((member.mark for member in members), default=0)
