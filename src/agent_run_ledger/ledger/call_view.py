"""The read model of a dynamic run: its calls in scopes, what became of each, and the runs started within them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, cast

from agent_run_ledger.errors import ApprovalPending, EffectInDoubt, EffectPending
from agent_run_ledger.kernel.record import DYNAMIC_KEY, Record, RecordKind
from agent_run_ledger.kernel.scopes import ELEMENT_BYTES, KEY_BYTES, Branch, ScopeKind, call_scope, elements
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.stored_words import text_of
from agent_run_ledger.ledger.views import RecordView, content_of, is_live, record_content, stored_json
from agent_run_ledger.ports import InFlight, Reader, RunRow, Store, StoredRecord
from agent_run_ledger.runs.abandoned import MARK, RESOLVE

OWN: Final = "run."
"""What the names of the run's own values begin with: run.now, run.random, run.uuid4, run.NAME."""

NOW: Final = "run.now"
_NEVER = 1 << 63
CallKey = tuple[bytes, str, bytes, int]


class CallStanding(StrEnum):
    """What became of a call. UNCERTAIN: it was left and may run again. UNKNOWN: it may not, and nobody says.

    WAITS: it is of an effect, and told its caller that it waits for people, for evidence, or for who is at it.
    """

    RECORDED = "recorded"
    FAILED = "failed"
    RESCUED = "rescued"
    UNCERTAIN = "uncertain"
    UNKNOWN = "outcome unknown"
    RUNNING = "running"
    WAITS = "waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionView:
    """What a person found out about a call; `call` is the record that said that its outcome is unknown."""

    call: int
    decision_id: int
    outcome: str
    reason: str
    actor: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One call: its records in their order, its start mark if it is in flight, and what people found out about it.

    `value` is the value of one of the run's own (`is_own`), in words. `inner` is the scope within its body, None where
    the run's scope key is erased.
    """

    scope: bytes
    name: str
    fingerprint: bytes
    occurrence: int
    standing: CallStanding
    records: tuple[RecordView, ...]
    mark: InFlight | None = None
    resolutions: tuple[ResolutionView, ...] = ()
    value: str = ""
    inner: bytes | None = None

    @property
    def key(self) -> CallKey:
        """What identifies the call in its run."""
        return (self.scope, self.name, self.fingerprint, self.occurrence)

    @property
    def is_own(self) -> bool:
        """Whether it is one of the run's own values."""
        return self.name.startswith(OWN)

    @property
    def current(self) -> RecordView | None:
        """The record that stands last; None where nothing is recorded yet."""
        return self.records[-1] if self.records else None

    @property
    def effect(self) -> str:
        """The action (32 hex digits) that the call was about, "" for a call of no effect, or none that says so yet."""
        return next((one.effect for one in reversed(self.records) if one.effect), "")

    @property
    def is_keyed(self) -> bool:
        """Whether the program gave the call a key."""
        return self.scope[-ELEMENT_BYTES : -ELEMENT_BYTES + 1] == bytes((ScopeKind.KEYED,))

    @property
    def ident(self) -> str:
        """What names the call to `arl runs resolve`: the record that says that its outcome is unknown, else its mark.

        Empty where there is neither.
        """
        if self.unknown_id is not None:
            return str(self.unknown_id)
        return "" if self.mark is None else f"{MARK}{self.mark.lane}"

    @property
    def unknown_id(self) -> int | None:
        """The run's own record that says that the outcome is unknown, where nobody has resolved it."""
        done = {resolution.call for resolution in self.resolutions}
        own = [one.record_id for one in self.records if one.unknown and one.origin is None]
        return next((record_id for record_id in own if record_id not in done), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """A run that was started within this one. `scope` is where; None where its START is erased."""

    run_id: str
    state: RunState
    live: bool | None
    results: int
    start_record_id: int
    scope: bytes | None


@dataclass(slots=True, kw_only=True)
class Place:
    """A place in the tree of a run: a call, a child run, a branch, or (none of them) a call that is not known here."""

    call: CallView | None = None
    child: ChildView | None = None
    branch: Branch | None = None
    inside: list[Place] = field(default_factory=list["Place"])
    order: int = _NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsView:
    """All calls of a dynamic run, in the order in which something of them was recorded first; those in flight last."""

    calls: tuple[CallView, ...]
    has_key: bool

    @property
    def unknown(self) -> tuple[CallView, ...]:
        """The calls whose outcome is unknown and not resolved."""
        return tuple(call for call in self.calls if call.standing is CallStanding.UNKNOWN)


class CallsTold:
    """What the records of a run say of its calls, gathered in one pass."""

    def __init__(self, row: RunRow) -> None:
        self._row = row
        self._records: dict[CallKey, list[RecordView]] = {}
        self._values: dict[CallKey, str] = {}
        self._resolutions: list[ResolutionView] = []
        self._scope_key: bytes | None = None
        self.is_dynamic = False

    def add(self, stored: StoredRecord, view: RecordView | None) -> None:
        """Take in one record of any kind, with its view where it is of a call."""
        record = stored.record
        if record.kind is RecordKind.START:
            self._read_start(stored)
        elif record.kind is RecordKind.DECISION:
            if record.name == RESOLVE:
                self._resolutions.append(_resolution(stored))
        elif view is not None:
            self.is_dynamic |= bool(record.scope) or record.occurrence > 0
            key = (record.scope, record.name, record.fingerprint, record.occurrence)
            self._records.setdefault(key, []).append(view)
            if record.name.startswith(OWN) and not stored.erased:
                self._values[key] = _value_words(record)

    def view(self, marks: Sequence[InFlight], *, running: bool) -> CallsView:
        """Return the calls; `running` says whether the attempt that the marks are of is alive."""
        in_flight = {(one.scope, one.name, one.fingerprint, one.occurrence): one for one in marks}
        keys = [*self._records, *(key for key in in_flight if key not in self._records)]
        calls = [self._call(key, in_flight.get(key), running=running) for key in keys]
        return CallsView(calls=tuple(calls), has_key=self._scope_key is not None)

    def _call(self, key: CallKey, mark: InFlight | None, *, running: bool) -> CallView:
        scope, name, fingerprint, occurrence = key
        records = tuple(self._records.get(key, ()))
        ids = {record.record_id for record in records}
        resolutions = tuple(one for one in self._resolutions if one.call in ids)
        inner = None if self._scope_key is None else call_scope(self._scope_key, *key)
        return CallView(
            scope=scope,
            name=name,
            fingerprint=fingerprint,
            occurrence=occurrence,
            standing=_standing(records, mark, {one.call for one in resolutions}, running=running),
            records=records,
            mark=mark,
            resolutions=resolutions,
            value=self._values.get(key, ""),
            inner=inner,
        )

    def _read_start(self, stored: StoredRecord) -> None:
        """The first START says how the scopes of all attempts are keyed."""
        dynamic = record_content(stored.record).get(DYNAMIC_KEY)
        if not isinstance(dynamic, dict):
            return
        self.is_dynamic = True
        if stored.record_id == self._row.start_record_id:
            key = _hex(cast("dict[str, object]", dynamic).get("scope_key"))
            self._scope_key = key if key is not None and len(key) == KEY_BYTES else None


def children_of(store: Store, row: RunRow) -> tuple[ChildView, ...]:
    """Return the runs that were started within this one, oldest first."""
    reader = store.reader()
    return tuple(_child(store, reader, child) for child in reader.children_of(row.row_id))


def _child(store: Store, reader: Reader, row: RunRow) -> ChildView:
    dynamic = content_of(reader, row.start_record_id).get(DYNAMIC_KEY)
    said = cast("dict[str, object]", dynamic).get("parent_scope") if isinstance(dynamic, dict) else None
    return ChildView(
        run_id=row.run_id,
        state=row.state,
        live=is_live(store, row),
        results=reader.count_results(row.row_id),
        start_record_id=row.start_record_id or 0,
        scope=_hex(said),
    )


def placed(view: CallsView, children: Iterable[ChildView] = ()) -> list[Place]:
    """Return the tree: nested calls in their call, branches in their order, child runs where they were started.

    What is within a call that is not known (erased, or with an unreadable scope) stands in a place of its own.
    """
    root = Place()
    places: dict[bytes, Place] = {b"": root}
    waiting: list[tuple[bytes, Place]] = []
    for call in view.calls:
        place = Place(call=call, order=call.records[0].record_id if call.records else _NEVER)
        waiting.append((call.scope, place))
        if call.inner is not None:
            places.setdefault(call.inner, place)
    waiting += [(child.scope or b"", Place(child=child, order=child.start_record_id)) for child in children]
    for scope, place in waiting:
        _container(places, scope).inside.append(place)
    _sort(root)
    return root.inside


def _container(places: dict[bytes, Place], scope: bytes) -> Place:
    """Return the place that a scope is the inside of, made with those around it where nobody has been there yet."""
    place = places[b""]
    for stop in range(ELEMENT_BYTES, len(scope) + ELEMENT_BYTES, ELEMENT_BYTES):
        prefix = scope[:stop]
        known = places.get(prefix)
        if known is None and scope[stop - ELEMENT_BYTES] == ScopeKind.KEYED and len(prefix) == stop:
            known = places[prefix] = place  # a call with a key stands beside the others
        if known is None:
            known = places[prefix] = Place(branch=_branch(scope[stop - ELEMENT_BYTES : stop]))
            place.inside.append(known)
        place = known
    return place


def _branch(element: bytes) -> Branch | None:
    try:
        return elements(element)[0][1]
    except ValueError:
        return None


def _sort(root: Place) -> None:
    """Bring every place's inside in order; without recursion, since scopes can be deeper than Python's stack."""
    places = [root]
    for place in places:
        places += place.inside
    for place in reversed(places):
        groups: dict[int, int] = {}
        for one in place.inside:
            if one.order == _NEVER and one.call is None and one.child is None:
                one.order = min((inner.order for inner in one.inside), default=_NEVER)
            if one.branch is not None:
                groups[one.branch.group] = min(one.order, groups.get(one.branch.group, _NEVER))
        place.inside.sort(key=lambda one: _rank(one, groups))


def _rank(place: Place, groups: Mapping[int, int]) -> tuple[int, int, int]:
    branch = place.branch
    return (place.order, 0, 0) if branch is None else (groups[branch.group], branch.group, branch.number)


def _standing(
    records: Sequence[RecordView], mark: InFlight | None, resolved: set[int], *, running: bool
) -> CallStanding:
    if mark is not None:
        if running:
            return CallStanding.RUNNING
        return CallStanding.UNCERTAIN if mark.repeatable else CallStanding.UNKNOWN
    last = records[-1]
    if last.unknown:
        return CallStanding.UNCERTAIN if last.record_id in resolved else CallStanding.UNKNOWN
    if last.kind is RecordKind.ERROR and last.error.partition(":")[0] in _WAITS:
        return CallStanding.WAITS
    return _FROM_KIND.get(last.kind, CallStanding.UNCERTAIN)


_WAITS: Final = frozenset(one.__name__ for one in (EffectPending, ApprovalPending, EffectInDoubt))

_FROM_KIND = {
    RecordKind.RESULT: CallStanding.RECORDED,
    RecordKind.ERROR: CallStanding.FAILED,
    RecordKind.RESCUED: CallStanding.RESCUED,
}


def _resolution(stored: StoredRecord) -> ResolutionView:
    said = record_content(stored.record)
    call = said.get("record")
    return ResolutionView(
        call=call if type(call) is int else -1,
        decision_id=stored.record_id,
        outcome=str(said.get("outcome", "")),
        reason=str(said.get("reason", "")),
        actor=str(said.get("actor", "")),
        at_ms=stored.record.ended_at_ms,
    )


def _value_words(record: Record) -> str:
    stored = stored_json(record)
    if record.name == NOW and isinstance(stored, dict):
        return f"{cast('dict[str, object]', stored).get('v', '?')}Z"
    return text_of(stored)


def _hex(said: object) -> bytes | None:
    try:
        return bytes.fromhex(said) if isinstance(said, str) else None
    except ValueError:
        return None
