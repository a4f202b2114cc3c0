"""The erased records of a log that is being read, held against the decisions that explain them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.erasure import ERASABLE, ErasedAccount, kept_digest, parse_erasure
from agent_run_ledger.ledger.views import record_content
from agent_run_ledger.ports import Reader, StoredRecord

_UNREADABLE = (Tampered, AttributeError, OverflowError, TypeError, ValueError)


class ErasedRecords:
    """Notes erased records leaf by leaf and settles them at their decisions; `count` is how many there are.

    Runs are named by their uid in hex. A log in which something is erased meanwhile is followed: where a decision and
    what was read before it differ, the records are looked at once more.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._account = ErasedAccount()
        self.count = 0

    def note(self, uid: str, stored: StoredRecord) -> list[str]:
        """Take in an erased record; return what is wrong with it whatever a decision says."""
        record = stored.record
        self.count += 1
        if record.kind not in ERASABLE:
            return [f"a record {record.kind.name} is erased, which cannot be"]
        if record.run_uid.hex() != uid:
            return ["an erased record belongs to another run than its change"]
        try:
            digest = kept_digest(record)
        except _UNREADABLE as error:
            return [f"what is left of an erased record cannot be read: {error}"]
        self._account.note(uid, stored.record_id, digest)
        return []

    def settle(self, uid: str, decision: StoredRecord) -> list[str]:
        """Return how a decision to erase, whose MAC was checked, contradicts what is erased."""
        said = parse_erasure(decision_content(decision))
        if said is None or said.event != decision.record.name:
            return ["an erasure does not say what it erased"]
        return self._account.settle(uid, said, partial(self._look, decision.run_row_id))

    @property
    def is_settled(self) -> bool:
        """Whether every erased record was named by a decision."""
        return self._account.is_settled

    def unexplained(self) -> Iterator[tuple[int, str]]:
        """Yield (record id, words) of the erased records that no decision names."""
        for uid, record_id in self._account.unexplained():
            yield record_id, f"a record of run {uid} is erased, and no decision says so"

    def _look(self, run_row_id: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        try:
            for stored in self._reader.leaf_records(first=first >> 16, stop=(last >> 16) + 1):
                mine = stored.run_row_id == run_row_id and first <= stored.record_id <= last
                if mine and stored.erased and stored.record.kind in ERASABLE:
                    yield stored.record_id, kept_digest(stored.record)
        except _UNREADABLE:  # said when the record itself was read
            return


def decision_content(decision: StoredRecord) -> object:
    """Return what a DECISION record says; an empty dict where it cannot be read."""
    return record_content(decision.record)
