"""What must hold between a call with an unknown outcome, the decision that resolves it, and the outcome's record."""

from __future__ import annotations

from collections.abc import Iterator

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.runs.abandoned import RESOLVE, RESOLVES, detail_of, is_unknown
from agent_run_ledger.runs.resolve import Outcome, content_of

_KINDS = {Outcome.RESULT: RecordKind.RESULT, Outcome.ERROR: RecordKind.ERROR}

CallKey = tuple[bytes, str, bytes, int]


class Resolutions:
    """Follows the records of one run in the order recorded.

    Of an erased call only its place, scope, name and occurrence are compared: its fingerprint is gone.
    """

    def __init__(self) -> None:
        self._open: dict[int, Record] = {}
        self._expected: tuple[int, int, RecordKind] | None = None

    def read(self, stored: StoredRecord) -> Iterator[str]:
        """Take in one record and yield what is wrong with it."""
        record, expected = stored.record, self._expected
        self._expected = None
        if expected is not None:
            yield from self._compare(stored, *expected)
        elif RESOLVES in detail_of(record):
            yield f"record {stored.record_id} says that it resolves a call, and no decision stands before it"
        if record.kind is RecordKind.ABANDONED and (stored.erased or is_unknown(record)):
            self._open[stored.record_id] = record
        elif record.kind is RecordKind.DECISION and record.name == RESOLVE:
            yield from self._decide(stored)

    def missing(self) -> Iterator[str]:
        """Yield what is wrong with the end: an outcome that a decision announced and that is not there."""
        if self._expected is not None:
            yield f"the outcome of call {self._expected[1]} was decided and is not recorded"

    def _decide(self, stored: StoredRecord) -> Iterator[str]:
        try:
            said = content_of(stored.record)
            call, outcome = int(said["record"]), Outcome(said["outcome"])
        except (LedgerError, LookupError, TypeError, ValueError) as error:
            yield f"record {stored.record_id}: a resolution does not say what it resolves: {error!r}"
            return
        if call not in self._open:
            yield f"record {stored.record_id} resolves record {call}, whose outcome is not unknown, or not any more"
        elif outcome in _KINDS:
            self._expected = (stored.record_id + 1, call, _KINDS[outcome])
        else:
            del self._open[call]

    def _compare(self, stored: StoredRecord, place: int, call: int, kind: RecordKind) -> Iterator[str]:
        unknown, record = self._open.pop(call), stored.record
        if stored.record_id != place or record.kind is not kind:
            yield f"the outcome of call {call} was decided, and no record {kind.name} stands behind the decision"
        elif _key(record, unknown) != _key(unknown, record):
            yield f"record {stored.record_id} resolves call {call} and is of another call"
        elif record.salt and detail_of(record).get(RESOLVES) != call:
            yield f"record {stored.record_id} resolves call {call} and does not say so"


def _key(record: Record, other: Record) -> CallKey:
    """Return what identifies a call, as far as neither of two records is erased."""
    fingerprint = record.fingerprint if record.salt and other.salt else b""
    return (record.scope, record.name, fingerprint, record.occurrence)
