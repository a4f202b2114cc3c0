"""Evidence about one key, after its signature was verified elsewhere: receipts, fences, observations, drains."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Found(StrEnum):
    """What a look at the target or its receiver saw. UNKNOWN: accepted, and nobody kept how it ended."""

    EXECUTED = "executed"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


class DrainKind(StrEnum):
    """Why nothing more can arrive. EXPIRY: the receiver refuses every permit there is. PATH_DEAD: the way is gone."""

    EXPIRY = "expiry"
    PATH_DEAD = "path_dead"


class Covers(StrEnum):
    """Whose path a drain speaks of: the one worker's of the claim, or every executor's that can reach the target."""

    WORKER = "worker"
    EVERY_EXECUTOR = "every_executor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The receiver's signed word that it executed these bytes under this generation."""

    evidence_id: bytes
    action_key: str
    receiver: str
    generation: int
    request_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceAnswer:
    """The receiver's signed answer for the whole key, at any generation: what it found, and its mark from now on.

    It accepts nothing at or below `mark` any more. `epoch` is that of the question. Where it executed something,
    `generation` and `request_sha256` name it.
    """

    evidence_id: bytes
    action_key: str
    receiver: str
    epoch: int
    mark: int
    found: Found
    generation: int | None = None
    request_sha256: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What `observer` saw at the target when it asked, in `epoch`. It need not know a generation or a digest.

    `after` is the evidence_id of the drain that was on record when the question was asked: an order by cause, which
    no clock can falsify. None: no drain was on record.
    """

    evidence_id: bytes
    action_key: str
    epoch: int
    observer: str
    found: Found
    after: bytes | None
    generation: int | None = None
    request_sha256: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Recorded evidence that no request of this key can arrive any more; `observer` stands for it."""

    evidence_id: bytes
    action_key: str
    epoch: int
    observer: str
    kind: DrainKind
    covers: Covers
