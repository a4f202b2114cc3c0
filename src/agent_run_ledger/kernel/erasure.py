"""Erasures: what stays of an erased record, what a decision says of those it erased, and whether the two agree."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from agent_run_ledger.kernel.record import Record, RecordKind, record_frame

ERASABLE: Final = (
    RecordKind.START,
    RecordKind.RESULT,
    RecordKind.ERROR,
    RecordKind.ABANDONED,
    RecordKind.RESCUED,
)
"""What can be erased: everything but what tells how a run ended and what people decided."""

EVENTS: Final = ("erase", "prune")
"""The names of the DECISION records that erase."""

KEPT_DOMAIN: Final = b"agent-run-ledger/kept/v1\n"
DIGEST_BYTES: Final = 32
_FILLER_BYTES: Final = 8

Ranges = list[tuple[int, int]]
"""First and last record id of neighbours among the records that the run could still erase, ascending."""

Look = Callable[[int, int], Iterable[tuple[int, bytes]]]
"""Reads anew which records of the run from a first to a last id are erased: (record id, `kept_digest`), ascending."""


def filler(record_id: int) -> bytes:
    """Return what stands for the fingerprint of an erased record: its id, 8 bytes big-endian; a fingerprint has 32."""
    return record_id.to_bytes(_FILLER_BYTES, "big")


def erased_form(record_id: int, record: Record) -> Record:
    """Return what an erasure leaves of a record: place, scope, name, occurrence, attempt, times, packing and usage."""
    return replace(record, salt=b"", fingerprint=filler(record_id), inputs=b"", code=b"", value_sha256=b"", payload=b"")


def kept_digest(record: Record) -> bytes:
    """Return SHA-256(record_frame) of an erased record as it stands, 32 bytes."""
    return hashlib.sha256(record_frame(record)).digest()


def kept_sha256(digests: Iterable[bytes]) -> bytes:
    """Return what a decision keeps of the records it erased: SHA-256(domain ‖ their `kept_digest`s in their order)."""
    whole = hashlib.sha256(KEPT_DOMAIN)
    for digest in digests:
        whole.update(digest)
    return whole.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What a DECISION record says it erased (format: docs/formats/run_records.md)."""

    event: str
    count: int
    ranges: Ranges
    kept_sha256: bytes


def parse_erasure(content: object) -> Erasure | None:
    """Return what the content of a DECISION record says; None where it is none of an erasure."""
    if not isinstance(content, dict):
        return None
    fields = cast("dict[str, object]", content)
    event, count, kept = fields.get("event"), fields.get("count"), _parse_digest(fields.get("kept_sha256"))
    ranges = _parse_ranges(fields.get("ranges"))
    if event not in EVENTS or type(count) is not int or count < 0 or kept is None or ranges is None:
        return None
    return Erasure(event=str(event), count=count, ranges=ranges, kept_sha256=kept)


def _parse_digest(text: object) -> bytes | None:
    try:
        digest = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return digest if len(digest) == DIGEST_BYTES else None


def _parse_ranges(listed: object) -> Ranges | None:
    ranges: Ranges = []
    last = -1
    if not isinstance(listed, list):
        return None
    for item in cast("list[object]", listed):
        pair = cast("list[object]", item) if isinstance(item, list) else []
        if len(pair) != 2 or not all(type(end) is int for end in pair):
            return None
        first, until = cast("list[int]", pair)
        if not last < first <= until:
            return None
        ranges.append((first, until))
        last = until
    return ranges


class ErasedAccount:
    """Holds what decisions say against what is erased. Memory: 41 bytes for each erased record.

    Records are noted in the order of the log, each decision is settled when the records before it are noted.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def note(self, uid: str, record_id: int, digest: bytes) -> None:
        """Take in an erased record of the run with this uid; `digest` is its `kept_digest`."""
        run = self._runs.get(uid)
        if run is None:
            run = self._runs[uid] = _Run()
        run.add(record_id, digest)

    def settle(self, uid: str, said: Erasure, look: Look | None = None) -> list[str]:
        """Return how a decision contradicts what is erased. What it names is settled either way, and once only.

        `look` is asked where the two differ: a record may have been noted before it was erased, or not yet.
        """
        run = self._runs.setdefault(uid, _Run())
        ids, digests = run.take(said.ranges)
        if look is not None and (len(ids) != said.count or kept_sha256(digests) != said.kept_sha256):
            ids, digests = run.take_anew(said.ranges, ids, look)
        if len(ids) != said.count:
            return [f"the {said.event} says that it erased {said.count} records, and {len(ids)} of them are erased"]
        if kept_sha256(digests) != said.kept_sha256:
            return [f"what is left of the records that the {said.event} erased is not what it left of them"]
        return []

    @property
    def is_settled(self) -> bool:
        """Whether every erased record was named by a decision."""
        return not any(run.open for run in self._runs.values())

    def unexplained(self) -> Iterator[tuple[str, int]]:
        """Yield (uid, record id) of the erased records that no decision names."""
        for uid, run in self._runs.items():
            yield from ((uid, record_id) for record_id in run.unsettled())


class _Run:
    """The erased records of one run: ids ascending, their digests one after another, and which are settled."""

    __slots__ = ("_digests", "_ids", "_settled", "open")

    def __init__(self) -> None:
        self._ids = array("q")
        self._digests = bytearray()
        self._settled = bytearray()
        self.open = 0

    def add(self, record_id: int, digest: bytes) -> None:
        self._ids.append(record_id)
        self._digests += digest
        self._settled.append(0)
        self.open += 1

    def take(self, ranges: Ranges) -> tuple[list[int], list[bytes]]:
        """Settle what is open within the ranges and return it."""
        taken: list[int] = []
        digests: list[bytes] = []
        for first, last in ranges:
            for at in range(bisect_left(self._ids, first), bisect_right(self._ids, last)):
                if not self._settled[at]:
                    self._settled[at] = 1
                    taken.append(self._ids[at])
                    digests.append(self._digest(at))
        self.open -= len(taken)
        return taken, digests

    def take_anew(self, ranges: Ranges, taken: Sequence[int], look: Look) -> tuple[list[int], list[bytes]]:
        """Return what is erased now within the ranges and was not settled before `taken` was, and settle it too."""
        just_now = set(taken)
        ids: list[int] = []
        digests: list[bytes] = []
        for first, last in ranges:
            for record_id, digest in look(first, last):
                at = bisect_left(self._ids, record_id)
                known = at < len(self._ids) and self._ids[at] == record_id
                if known and record_id not in just_now:
                    continue
                if not known:
                    self._insert(at, record_id, digest)
                ids.append(record_id)
                digests.append(digest)
        return ids, digests

    def unsettled(self) -> Iterator[int]:
        return (record_id for at, record_id in enumerate(self._ids) if not self._settled[at])

    def _insert(self, at: int, record_id: int, digest: bytes) -> None:
        self._ids.insert(at, record_id)
        self._digests[at * DIGEST_BYTES : at * DIGEST_BYTES] = digest
        self._settled.insert(at, 1)

    def _digest(self, at: int) -> bytes:
        return bytes(self._digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
