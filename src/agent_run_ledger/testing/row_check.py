"""What must hold between the rows of one run, beyond what the log itself proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.errors import ClassGone, LedgerError
from agent_run_ledger.kernel.record import DYNAMIC_KEY, Record, RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import InFlight, Reader, RunRow, StoredRecord
from agent_run_ledger.runs.later import CallKey, key_of_call
from agent_run_ledger.runs.prefix import Prefix, prefix_in
from agent_run_ledger.testing.resolution_check import Resolutions

MAY_BE_IN_FLIGHT = frozenset((RunState.RUNNING, RunState.QUARANTINED, RunState.CANCELLED))
"""A run fails, suspends or completes only when nothing runs any more; the operator's states come at any time."""

_OF_A_LIVE_ATTEMPT = frozenset((RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED))
_LIMIT_BYTES = 1 << 62


class RunRows:
    """The rows of one run, read once from first to last; payloads are looked at and let go.

    `problems` has one sentence per contradiction, `kinds` counts the records, `marks` is what is in flight, and
    `classes_gone` names results whose class this program does not have.
    """

    def __init__(self, reader: Reader, row: RunRow) -> None:
        self.row = row
        self.kinds: Counter[RecordKind] = Counter()
        self.marks: list[InFlight] = reader.in_flight(row.row_id)
        self.problems: list[str] = []
        self.classes_gone: list[str] = []
        self._results: dict[CallKey, int] = {}
        self._result_names: dict[int, str] = {}
        self._reader = reader
        self._referenced_unknown = False
        self._starts: list[int] = []
        self._takeovers = 0
        self._start_leaf = -1
        self._end: Record | None = None
        self._last_id = -1
        self._resolutions = Resolutions()
        self._dynamic = False
        for stored in reader.records(row.row_id, kinds=tuple(RecordKind)):
            self._read(stored)
        wrong = (self._resolutions.missing(), self._counting_problems(), self._mark_problems(), self._end_problems())
        for said in chain.from_iterable(wrong):
            self._note(said)

    def _note(self, said: str) -> None:
        self.problems.append(f"run {self.row.run_id!r}: {said}")

    def _read(self, stored: StoredRecord) -> None:
        record, record_id = stored.record, stored.record_id
        self.kinds[record.kind] += 1
        if record.run_uid != self.row.run_uid:
            self._note(f"record {record_id} belongs to run_uid {record.run_uid.hex()}")
        if record_id <= self._last_id:
            self._note(f"record {record_id} comes after record {self._last_id}")
        self._last_id = record_id
        for said in self._resolutions.read(stored):
            self._note(said)
        if record.kind is RecordKind.START:
            self._starts.append(record.attempt)
            self._start_leaf = stored.leaf_index
            if record_id == self.row.start_record_id:
                self._read_referenced(record)
        elif record.kind is RecordKind.DECISION:
            self._takeovers += record.name == "takeover"
        elif record.kind is RecordKind.ABANDONED:
            self._read_abandoned(stored)
        elif record.kind in _OF_A_LIVE_ATTEMPT and self._starts[-1:] != [record.attempt]:
            self._note(f"record {record_id} is of attempt {record.attempt} and was not written during it")
        if record.kind is RecordKind.RESULT:
            self._read_result(stored)
        elif record.kind is RecordKind.END and record_id == self.row.end_record_id:
            self._end = record

    def _read_referenced(self, start: Record) -> None:
        """What a fork refers to are results of other runs, and it has none of its own for the same calls."""
        if not start.payload:  # erased, and with it the list of what it referred to, and of which kind the run is
            self._referenced_unknown = self.row.forked_from_row_id is not None
            self._dynamic = not start.salt
            return
        try:
            content: Any = codecs.unpack(start.encoding, start.payload)
            prefix = prefix_in(content)
            self._dynamic = DYNAMIC_KEY in content
        except LedgerError as error:
            self._note(f"its START cannot be read: {error}")
            return
        if prefix is not None:
            self._read_prefix(prefix)

    def _read_prefix(self, prefix: Prefix) -> None:
        for record_id in prefix.others:
            try:
                self._reader.record(record_id)
            except LedgerError as error:
                self._note(f"it refers to record {record_id}: {error}")
        calls: list[tuple[str | None, int]] = [(None, record_id) for record_id in prefix.calls]
        for name, record_id in (*prefix.records.items(), *calls):
            try:
                other = self._reader.record(record_id).record
            except LedgerError as error:
                self._note(f"it refers to record {record_id} for step {name!r}: {error}")
                continue
            another = name is not None and other.name != name
            if other.kind is not RecordKind.RESULT or another or other.run_uid == self.row.run_uid:
                self._note(f"it refers to record {record_id}, which is no result of step {name!r} of another run")
            self._result_names[record_id] = other.name
            self._results[key_of_call(other)] = record_id

    def _read_abandoned(self, stored: StoredRecord) -> None:
        """The start of a later attempt says in its own leaf that a call of an earlier one was abandoned.

        A dynamic run leaves calls too while it goes on: branches that are cancelled, streams that are closed.
        """
        attempt = self._starts[-1] if self._starts else 0
        if self._dynamic and stored.record.attempt == attempt:
            return
        if stored.record.attempt >= attempt or stored.leaf_index != self._start_leaf:
            self._note(
                f"record {stored.record_id}: a call of attempt {stored.record.attempt} abandoned outside a later start"
            )

    def _read_result(self, stored: StoredRecord) -> None:
        """A call has one result, and this program can restore it to the value that was recorded."""
        record = stored.record
        if key_of_call(record) in self._results:
            self._note(f"step {record.name!r} has two results of one call")
        self._results[key_of_call(record)] = stored.record_id
        self._result_names[stored.record_id] = record.name
        if not record.salt:
            return  # erased: the leaf is all that is left
        try:
            value = codecs.unpack(record.encoding, record.payload)
            digest = codecs.pack(value, limit_bytes=_LIMIT_BYTES).value_sha256
        except ClassGone as error:
            self.classes_gone.append(f"run {self.row.run_id!r}, step {record.name!r}: {error.message}")
        except LedgerError as error:
            self._note(f"the result of step {record.name!r} cannot be restored: {error}")
        else:
            if digest != record.value_sha256:
                self._note(f"the result of step {record.name!r} does not have the digest that was recorded with it")

    def _counting_problems(self) -> Iterator[str]:
        row = self.row
        if self._starts != list(range(1, row.attempt + 1)):
            yield f"its START records are of attempts {self._starts}, its row says attempt {row.attempt}"
        if row.generation != row.attempt + self._takeovers:
            yield f"generation {row.generation} after {row.attempt} attempts and {self._takeovers} takeovers"

    def _mark_problems(self) -> Iterator[str]:
        row = self.row
        if self.marks and row.state not in MAY_BE_IN_FLIGHT:
            yield f"it is {row.state} and has {len(self.marks)} calls in flight"
        seen: set[CallKey] = set()
        for mark in self.marks:
            key = (mark.scope, mark.name, mark.fingerprint, mark.occurrence)
            if key in self._results:
                yield f"step {mark.name!r} is in flight and has a result"
            if key in seen and mark.fingerprint:  # erased marks of one step look alike
                yield f"step {mark.name!r} is in flight twice"
            seen.add(key)
            if mark.attempt != row.attempt or not 1 <= mark.generation <= row.generation:
                yield (
                    f"step {mark.name!r} is in flight for attempt {mark.attempt} (generation {mark.generation}), "
                    f"the run is at attempt {row.attempt} (generation {row.generation})"
                )

    def _end_problems(self) -> Iterator[str]:
        if self.row.state is not RunState.COMPLETED:
            return
        if self._end is None:
            yield "it is completed and has no END record"
            return
        try:
            content: Any = codecs.unpack(self._end.encoding, self._end.payload)
            named: dict[str, int] = content["results"]
            used: list[int] = content["used"]
        except (LedgerError, LookupError, TypeError) as error:
            yield f"its END record cannot be read: {error!r}"
            return
        if not named and content.get("dynamic") is not True:
            yield "its END record names no result"
        if self._referenced_unknown:
            return
        for name, record_id in named.items():
            if self._result_names.get(record_id) != name:
                yield f"its END record takes record {record_id} for the result of step {name!r}, which it is not"
        for record_id in sorted(set(used) - set(self._result_names)):
            yield f"its END record used record {record_id}, which is no result of this run"
