"""What a run has recorded: found by call key, and compared with when a call is not found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.digests import short_digest
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.scopes import enclosing_call
from agent_run_ledger.ports import RecordKey, Store
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.differences import deep_difference
from agent_run_ledger.runs.erased_check import check_erasures
from agent_run_ledger.runs.leaf_check import check_against_leaf, erased, load_value

log = logging.getLogger("agent_run_ledger")

Sources = Mapping[str, tuple[str, Callable[[], Any]]]
"""Per parameter that takes a result: the name of the step it comes from, and how to read its value now."""


class Recorded:
    """The RESULT records of a run and of its prefix. Each one is consumed at most once per attempt.

    An erased one stands for every call of its step at its place: nobody can say any more which of them it was.
    """

    def __init__(self, store: Store, keys: Sequence[RecordKey], *, quiet: bool = False) -> None:
        self._store = store
        self._quiet = quiet
        self._by_key = {(key.scope, key.name, key.fingerprint, key.occurrence): key for key in keys}
        self._erased = {(key.scope, key.name, key.occurrence): key for key in keys if key.erased}
        self._erasures_are_checked = False
        self._by_name: dict[str, list[RecordKey]] = {}
        self._unconsumed: dict[tuple[bytes, str], dict[int, None]] = {}
        for key in keys:
            self._by_name.setdefault(key.name, []).append(key)
            self._unconsumed.setdefault((key.scope, key.name), {})[key.record_id] = None
        self._unchecked = {key.record_id: None for key in keys if not key.erased}
        self._checking = threading.Lock()
        self.code_changed: list[str] = []

    def take(self, identity: CallIdentity, code: bytes) -> RecordKey | None:
        """Return the record of this call and consume it, or None. Changed code is noted and warned of; reuse stays.

        None only when no record was made unfindable: then Tampered, for a body would run again that was recorded.
        Refused("erased") for a call that an erased record may have been of.
        """
        hit = self.look_up(identity, code)
        if hit is None:
            self.check_the_others()
        return hit

    def look_up(self, identity: CallIdentity, code: bytes) -> RecordKey | None:
        """Do as `take` without its look at the others: `check_the_others` is to be called before a body runs."""
        hit = self._by_key.get(identity.key)
        if hit is None or hit.erased:
            gone = self.erased(identity.scope, identity.name, identity.occurrence)
            if gone is not None:
                raise erased(self._store, self._store.reader().record(gone.record_id))
            return None
        self._unconsumed[hit.scope, hit.name].pop(hit.record_id, None)
        self._unchecked.pop(hit.record_id, None)
        if hit.code and code and hit.code != code:
            self.code_changed.append(hit.name)
            if not self._quiet:
                log.warning("step %r: its code changed since it was recorded; the record is used", hit.name)
        return hit

    def erased(self, scope: bytes, name: str, occurrence: int) -> RecordKey | None:
        """Return the erased record that a call of this step at this place may have been of, or None."""
        return self._erased.get((scope, name, occurrence))

    def unconsumed(self, scope: bytes, name: str) -> list[int]:
        """Return the ids of the results of a step in a scope that no call has asked for yet, oldest first."""
        return list(self._unconsumed.get((scope, name), ()))

    def pass_over(self, scope: bytes, name: str, record_id: int) -> None:
        """Consume a result that a caller went on from without asking for it."""
        self._unconsumed[scope, name].pop(record_id, None)

    def left_over(self, scope: bytes) -> int:
        """Return how many results no call has asked for of those in the body that `scope` is of, calls in it aside."""
        return sum(len(ids) for (place, _), ids in self._unconsumed.items() if enclosing_call(place) == scope)

    def why_not(self, identity: CallIdentity, sources: Sources) -> list[str] | None:
        """Return the paths in which this call differs from the latest unconsumed record of its step; None without one.

        `sources` tells for an argument that takes a result whose it is and how to read it now: then the path goes
        into the value, as in `arguments.report.year`.
        """
        earlier = self._unconsumed.get((identity.scope, identity.name))
        if not earlier:
            return None
        record = self._store.reader().record(max(earlier)).record
        paths = identity.differences(record.inputs, record.salt)
        return [self._deepened(path, record, sources) for path in paths]

    def check_the_others(self) -> None:
        """Raise Tampered where a record that no call has asked for is not what was recorded. Each is read once."""
        with self._checking:
            while self._unchecked:
                check_against_leaf(self._store, self._store.reader().record(self._unchecked.popitem()[0]))
            if self._erased and not self._erasures_are_checked:
                reader = self._store.reader()
                for run_row_id in {reader.record(key.record_id).run_row_id for key in self._erased.values()}:
                    check_erasures(self._store, run_row_id)
                self._erasures_are_checked = True

    def _deepened(self, path: str, record: Record, sources: Sources) -> str:
        parameter = path.removeprefix("arguments.")
        if parameter == path or parameter not in sources:
            return path
        producer, read_now = sources[parameter]
        tag = orjson.loads(record.inputs)["a"].get(parameter)
        for key in self._by_name.get(producer, ()):
            if short_digest(record.salt, f"a.{parameter}", key.value_sha256) == tag:
                try:
                    before = load_value(self._store, "", key.record_id)
                    deeper = deep_difference(before, read_now())
                except LedgerError:  # a value that cannot be read any more: the argument's name has to do
                    return path
                return path + (deeper or "")
        return path


class Begun:
    """The calls that earlier attempts of a run began and never concluded, read when first asked for."""

    def __init__(self, store: Store, run_row_id: int) -> None:
        self._store = store
        self._run_row_id = run_row_id
        self._fingerprints: dict[tuple[bytes, str], bytes] | None = None

    def differs(self, identity: CallIdentity) -> bool:
        """Return whether the last such call of this step had another fingerprint than this one."""
        if self._fingerprints is None:
            abandoned = self._store.reader().records(self._run_row_id, kinds=[RecordKind.ABANDONED])
            self._fingerprints = {
                (r.record.scope, r.record.name): r.record.fingerprint
                for r in abandoned
                if not r.erased and r.record.fingerprint  # a start mark may have been erased before it was abandoned
            }
        begun = self._fingerprints.get((identity.scope, identity.name))
        return begun is not None and begun != identity.fingerprint
