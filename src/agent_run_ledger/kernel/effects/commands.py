"""What can be asked of the rules: one frozen command for each event, with the time of the question in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias, get_args

from agent_run_ledger.kernel.dsse import Signature
from agent_run_ledger.kernel.effects.action import Now, Terms
from agent_run_ledger.kernel.effects.approval import VerifiedApproval
from agent_run_ledger.kernel.effects.evidence import Drain, FenceAnswer, Observation, Receipt
from agent_run_ledger.kernel.effects.states import Event, Role


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: a principal whose credential was checked elsewhere, and the roles it has in this ledger."""

    principal: str
    roles: frozenset[Role]


class DoubtBy(StrEnum):
    """Whose doubt it is: the worker's own, that of a clock after permit and bound, or an operator's."""

    WORKER = "worker"
    EXPIRY = "expiry"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    actor: Actor
    now: Now


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfAction(_Command):
    action_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose(_Command):
    """Ask for an action under a key. `action_id` is that of the member that is made if the key is free."""

    event: ClassVar[Event] = Event.PROPOSE
    action_key: str
    action_id: bytes
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(_OfAction):
    """Put other bytes in the place of proposed ones: a new member, and the actor is its requester."""

    event: ClassVar[Event] = Event.EDIT
    new_action_id: bytes
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(_OfAction):
    """Refuse what was proposed."""

    event: ClassVar[Event] = Event.REJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve(_OfAction):
    """Count one verified approval."""

    event: ClassVar[Event] = Event.APPROVE
    approval: VerifiedApproval


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(_OfAction):
    """Take an available action for one worker. The same `claim_key` of the same worker gives the record again."""

    event: ClassVar[Event] = Event.CLAIM
    claim_id: bytes
    claim_key: bytes
    worker: str
    request_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(_OfAction):
    """Write down the intention to dispatch; the permit is good for `permit_ms` milliseconds, or to the window's end."""

    event: ClassVar[Event] = Event.PREPARE
    claim_id: bytes
    worker: str
    permit_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOut(_OfAction):
    """Hand the permit out. `cosigned`: a checkpoint that covers the prepare leaf has its cosignature."""

    event: ClassVar[Event] = Event.HAND_OUT
    claim_id: bytes
    worker: str
    cosigned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(_OfAction):
    """The executor's report of a success: the receiver's receipt, or its adapter's observation."""

    event: ClassVar[Event] = Event.OUTCOME
    evidence: Receipt | FenceAnswer | Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Success(_OfAction):
    """A reconciler's decision that the effect happened."""

    event: ClassVar[Event] = Event.SUCCESS
    evidence: Receipt | FenceAnswer | Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt(_OfAction):
    """Record that nobody knows how it ended. `worker` is named where the doubt is the worker's own."""

    event: ClassVar[Event] = Event.DOUBT
    by: DoubtBy
    worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe(_OfAction):
    """Record evidence and decide nothing by it. `signatures`: see `decided`, of a drain by dead paths."""

    event: ClassVar[Event] = Event.OBSERVE
    evidence: Observation | Drain
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotExecuted(_OfAction):
    """A reconciler's decision that the effect did not happen and cannot any more.

    By `fence`; without one by the drain on record and the observation after it. `people` decide together with the
    actor. `signatures`: theirs over `decided.decision_bytes`, empty where the ledger has no trust file.
    """

    event: ClassVar[Event] = Event.NOT_EXECUTED
    fence: FenceAnswer | None = None
    people: frozenset[str] = frozenset()
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOff(_OfAction):
    """Give up finding out, for good. `nobody_can_observe`: the signed decision says that nobody can look."""

    event: ClassVar[Event] = Event.WRITE_OFF
    nobody_can_observe: bool
    people: frozenset[str] = frozenset()
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseUnprepared(_OfAction):
    """Close what was never prepared."""

    event: ClassVar[Event] = Event.CLOSE_UNPREPARED
    fence: FenceAnswer | None = None
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor(_OfAction):
    """Make a new member in the place of a closed one. `cosigned`: so is the leaf that closed it."""

    event: ClassVar[Event] = Event.SUCCESSOR
    new_action_id: bytes
    terms: Terms
    cosigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke(_OfAction):
    """Forbid what was not sent yet."""

    event: ClassVar[Event] = Event.REVOKE


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(_OfAction):
    """Close what nobody claimed in its window."""

    event: ClassVar[Event] = Event.EXPIRE


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit(_Command):
    """People's decision that this state of the ledger carries authority again, seen from one key.

    `outside_epoch`: the highest one that the witness, the receivers or the trust file know of this ledger.
    `stopped_ms`: since when nothing of the older history dispatched. `unreached`: receivers at which the epoch could
    not be raised.
    """

    event: ClassVar[Event] = Event.ADMIT
    epoch: int
    outside_epoch: int
    officers: frozenset[str]
    stopped_ms: int
    lost_leaves: bool
    origin_frozen: bool
    unreached: frozenset[str] = frozenset()


Command: TypeAlias = (
    Propose
    | Edit
    | Reject
    | Approve
    | Claim
    | Prepare
    | HandOut
    | Outcome
    | Success
    | Doubt
    | Observe
    | NotExecuted
    | WriteOff
    | CloseUnprepared
    | Successor
    | Revoke
    | Expire
    | Admit
)

BY_NAME: Final[Mapping[str, type[Command]]] = {kind.__name__: kind for kind in get_args(Command)}
"""The commands by the name that a record has them under."""
