"""What earlier calls of a dynamic run left on record, and what each means for the same call now."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, islice
from typing import Any, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import ApprovalPending, EffectPending, Pending, Refused, Unavailable, Unstorable
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.scopes import enclosing_call
from agent_run_ledger.ports import RecordKey, RunRow, Store, StoredRecord
from agent_run_ledger.runs.abandoned import CALLED, RESOLVE, after_of, detail_of, is_unknown
from agent_run_ledger.runs.breaker import nudge_of
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.later import CallKey, Later, key_of_call
from agent_run_ledger.runs.leaf_check import check_against_leaf, erased
from agent_run_ledger.runs.prefix import Prefix
from agent_run_ledger.runs.recorded import Recorded


class Fate(Enum):
    """What the record of a call means for the same call now."""

    RUN = auto()
    RESTORE = auto()
    RAISE = auto()
    UNKNOWN = auto()
    PART = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """The fate of a call; `key` of the result that is restored, `record_id` of the error or the unknown outcome.

    PART: of a stream that was left, `record_id` has the chunks that were taken.
    """

    fate: Fate
    key: RecordKey | None = None
    record_id: int = 0


@dataclass(slots=True)
class _Error:
    """The last error of a call."""

    record_id: int
    kind: RecordKind


@dataclass(slots=True)
class _Unknown:
    """The last unknown outcome of a call, and the decision that resolved it, 0 for none."""

    record_id: int
    resolved_at: int = 0


class History:
    """The records of a run and of what it refers to, as the after-a-crash rules read them.

    Guarantees: a call with a result on record is restored from it, at most once per attempt where it has no key of
    its own; a call that may not run again and has an unknown outcome does not run until a person has said that it did
    not happen. An error, or an unknown outcome, that the agent has gone on from is given again, whatever was found
    out since: no record moves. Not thread-safe: who asks or
    notes holds `lock`, and asks for no other one meanwhile: records may be read under it.
    """

    def __init__(
        self, store: Store, row: RunRow | None, keys: Sequence[RecordKey], prefix: Prefix | None = None
    ) -> None:
        self.lock = threading.Lock()
        self._store = store
        self._prefix = prefix
        self._row = row
        self.recorded = Recorded(store, keys)
        self._keyed: dict[CallKey, RecordKey] = {}
        self._errors: dict[CallKey, _Error] = {}
        self._unknown: dict[CallKey, _Unknown] = {}
        self._begun: set[CallKey] = set()
        self._left: set[CallKey] = set()
        self._taken: dict[CallKey, int] = {}
        self._gone: dict[tuple[bytes, str, int], StoredRecord] = {}
        self._later: Later | None = None
        self._live: dict[bytes, dict[CallKey, RecordKey]] = {}
        if row is not None:
            self._read(row)

    def find(
        self,
        identity: CallIdentity,
        *,
        code: bytes,
        repeatable: bool,
        shared: bool,
        complete: bool,
        beside: bool = False,
        before: int | None = None,
    ) -> Found:
        """Return what to do with a call.

        `repeatable`: whether it may run twice. `shared`: whether calls with this key are one call. `complete`: the
        run is completed, so that an error is given again in any case. `beside`: see `Later.than`. `before`, for what
        is on record elsewhere too: the agent went on from an error only where it began something before that record,
        in the attempt that was told of the error, and from none that says that the call waits. Before a body runs,
        `recorded.check_the_others` is to be called.

        Refused("was_repeatable"): the call may not run twice, and was begun as one that may: nobody knows how it ended.
        """
        key = identity.key
        unknown = self._unknown.get(key)
        if unknown is not None:
            at, resolved_at = unknown.record_id, unknown.resolved_at
            if not resolved_at or self.handled(key, at, before=resolved_at, beside=beside):
                return Found(Fate.UNKNOWN, record_id=at)
        hit = self._result(identity, code, shared=shared)
        if hit is not None:
            return Found(Fate.RESTORE, key=hit)
        error = self._errors.get(key)
        if error is None:
            gone = self._gone.get((identity.scope, identity.name, identity.occurrence))
            if gone is not None and not repeatable:  # it may have been of this call, and that one may have happened
                raise erased(self._store, gone)
            if complete and key in self._taken:
                return Found(Fate.PART, record_id=self._taken[key])
            if not repeatable and not complete and key in self._left:
                raise _was_repeatable(identity.name)
            return Found(Fate.RUN)
        if before is not None and not complete and self._waits(error):
            return Found(Fate.RUN, record_id=error.record_id)
        if before is not None:
            before = self.told_until(error.record_id, before)
        may_repeat = repeatable or self._did_nothing(error)
        again = complete or not may_repeat or self.handled(key, error.record_id, before=before, beside=beside)
        return Found(Fate.RAISE if again else Fate.RUN, record_id=error.record_id)

    def was_begun(self, key: CallKey) -> bool:
        """Return whether this very call was begun before: then running it is no divergence."""
        return key in self._begun

    def error(self, record_id: int) -> tuple[Exception, str | None]:
        """Return the exception that a call raised, read from its record, and what the agent was told with it."""
        stored = self._store.reader().record(record_id)
        check_against_leaf(self._store, stored)
        return _exception(stored.record), nudge_of(stored.record)

    def handled(self, key: CallKey, record_id: int, *, before: int | None = None, beside: bool = False) -> bool:
        """Return whether the agent went on from this record: it began another call later in its scope.

        `before`: only calls begun before this record count. `beside`: see `Later.than`.
        """
        if self._later is None:
            self._later = Later()
            self._read_later()
        return self._later.than(key, record_id, before=before, beside=beside)

    def told_until(self, record_id: int, before: int | None = None) -> int | None:
        """Return the start of the attempt after the one that was told of this record, where it is before another one.

        What is begun from there on came of another answer, or of another call in its place.
        """
        if self._row is None:
            return before
        starts = self._store.reader().records(self._row.row_id, kinds=(RecordKind.START,), after_record_id=record_id)
        later = [before] if before is not None else []
        return min((*later, *(one.record_id for one in islice(starts, 1))), default=None)

    def note_result(self, record: Record, record_id: int, after: int) -> None:
        """Note a result of this attempt, where a later call of it can ask for it: in the body of a call, or by key."""
        key = key_of_call(record)
        if record.scope:
            self._live.setdefault(enclosing_call(record.scope), {})[key] = _found_by(record, record_id)
        self._note_later(key, record_id, after)

    def note_begun(self, key: CallKey, after: int) -> None:
        """Note a value or a child of this attempt: the agent went on from what came before it."""
        with self.lock:
            self._note_later(key, 0, after)

    def note_error(self, key: CallKey, record_id: int, kind: RecordKind, after: int) -> None:
        """Note an error of this attempt."""
        self._begun.add(key)
        self._errors[key] = _Error(record_id, kind)
        self._note_later(key, record_id, after)

    def note_abandoned(self, key: CallKey, record_id: int, *, unknown: bool, after: int) -> None:
        """Note a call of this attempt that nobody will conclude."""
        self._begun.add(key)
        self._errors.pop(key, None)
        if unknown:
            self._unknown[key] = _Unknown(record_id)
        self._note_later(key, record_id, after)

    def forget_within(self, scope: bytes) -> None:
        """Let go of what was noted within the body of a call that is now recorded itself."""
        for inner in [one for one in self._live if one.startswith(scope)] if scope else ():
            del self._live[inner]

    # -- reading ----------------------------------------------------------------------------------------------

    def _read(self, row: RunRow) -> None:
        reader = self._store.reader()
        kinds = (RecordKind.ERROR, RecordKind.RESCUED, RecordKind.ABANDONED, RecordKind.DECISION)
        referenced = map(reader.record, () if self._prefix is None else sorted(self._prefix.others))
        for stored in chain(referenced, reader.records(row.row_id, kinds=kinds)):
            record = stored.record
            if stored.erased or (record.kind is RecordKind.ABANDONED and not record.fingerprint):  # or its mark was
                self._gone[record.scope, record.name, record.occurrence] = stored
                continue
            if record.kind is RecordKind.DECISION:
                if record.name == RESOLVE:
                    self._read_resolution(stored)
                continue
            key = key_of_call(record)
            self._begun.add(key)
            if record.kind is not RecordKind.ABANDONED:
                self._errors[key] = _Error(stored.record_id, record.kind)
                self._left.discard(key)
                continue
            self._errors.pop(key, None)  # it was tried again since
            self._taken.pop(key, None)
            if record.value_sha256:
                self._taken[key] = stored.record_id
            if not is_unknown(record):
                self._left.add(key)
            else:
                check_against_leaf(self._store, stored)
                self._unknown[key] = _Unknown(stored.record_id)

    def _read_resolution(self, stored: StoredRecord) -> None:
        check_against_leaf(self._store, stored)
        content = codecs.unpack(stored.record.encoding, stored.record.payload)
        said = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
        for unknown in self._unknown.values():
            if unknown.record_id == said.get("record"):
                unknown.resolved_at = stored.record_id

    def _read_later(self) -> None:
        if self._row is None:
            return
        kinds = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED, RecordKind.ABANDONED)
        reader = self._store.reader()
        prefix = self._prefix
        if prefix is not None:  # the call at which the run was forked came after what it refers to
            self._note_later((prefix.scope, "", b"", 0), 0, prefix.after)
        referenced = map(reader.record, () if prefix is None else sorted((*prefix.calls, *prefix.others)))
        for stored in chain(referenced, reader.records(self._row.row_id, kinds=kinds)):
            record = stored.record
            self._note_later(key_of_call(record), stored.record_id, after_of(record))
        for child in reader.children_of(self._row.row_id):
            if child.start_record_id is not None:
                start = reader.record(child.start_record_id)
                if not start.erased:
                    self._note_child(start)

    def _note_child(self, start: StoredRecord) -> None:
        content = codecs.unpack_without(start.record.encoding, start.record.payload, "kept_inputs")[0]
        dynamic = cast("dict[str, Any]", content).get("dynamic") if isinstance(content, dict) else None
        if isinstance(dynamic, dict):
            said = cast("dict[str, Any]", dynamic)
            scope = bytes.fromhex(str(said.get("parent_scope", "")))
            self._note_later((scope, "", start.record.run_uid, 0), start.record_id, int(said.get("parent_after", 0)))

    def _note_later(self, key: CallKey, record_id: int, after: int) -> None:
        if self._later is not None and after:
            self._later.note(key, after)

    # -- judging ----------------------------------------------------------------------------------------------

    def _result(self, identity: CallIdentity, code: bytes, *, shared: bool) -> RecordKey | None:
        key = identity.key
        live = self._live.get(enclosing_call(key[0]), {}).get(key) if key[0] else None
        if live is not None:
            return live
        if shared and key in self._keyed:
            return self._keyed[key]
        hit = self.recorded.look_up(identity, code)
        if hit is not None and key[0]:
            self._live.setdefault(enclosing_call(key[0]), {})[key] = hit  # a body that is tried again asks again
        if hit is not None and shared:
            self._keyed[key] = hit
        return hit

    def _waits(self, error: _Error) -> bool:
        """Return whether the error of a call says that it waits: what it waits for may have come since."""
        return error.kind is RecordKind.ERROR and isinstance(self.error(error.record_id)[0], Pending)

    def _did_nothing(self, error: _Error) -> bool:
        """Return whether the error of a call says that nothing happened: ours of these two kinds say so.

        Not one that says that an effect is in doubt, or that somebody else is at it. Not where the body had called
        steps: then it may be an error of theirs, and the body may have done something.
        """
        if error.kind is not RecordKind.ERROR or detail_of(self._store.reader().record(error.record_id).record).get(
            CALLED
        ):
            return False
        said = self.error(error.record_id)[0]
        if isinstance(said, EffectPending):
            return isinstance(said, ApprovalPending)
        return isinstance(said, Pending | Unavailable)


def _was_repeatable(name: str) -> Refused:
    return Refused(
        f"a call of {name!r} was begun as one that may run twice, and now it is declared as one that may not: nobody "
        "knows how it ended",
        code="was_repeatable",
        hint="declare it as it was (safe=True, or as an effect), or look what became of it and use a new run",
    )


def _exception(record: Record) -> Exception:
    if record.kind is RecordKind.RESCUED:
        return Unstorable(
            f"step {record.name!r} returned what has no exact stored form; what is readable of it was kept",
            path="$",
            type_name="",
        )
    value = codecs.unpack(record.encoding, record.payload) if record.value_sha256 else None
    if isinstance(value, Exception):
        return value
    return RuntimeError(f"step {record.name!r} raised an exception that has no stored form")


def _found_by(record: Record, record_id: int) -> RecordKey:
    """Return what a RESULT record is found by."""
    return RecordKey(
        record_id=record_id,
        scope=record.scope,
        name=record.name,
        fingerprint=record.fingerprint,
        occurrence=record.occurrence,
        attempt=record.attempt,
        code=record.code,
        value_sha256=record.value_sha256,
    )
