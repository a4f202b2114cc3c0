"""Which calls of a body began after a record: whether an agent went on from it."""

from __future__ import annotations

from agent_run_ledger.kernel.record import Record
from agent_run_ledger.kernel.scopes import ELEMENT_BYTES, ScopeKind, enclosing_call

CallKey = tuple[bytes, str, bytes, int]


def key_of_call(record: Record) -> CallKey:
    """Return what the call of a record is found by."""
    return (record.scope, record.name, record.fingerprint, record.occurrence)


class Later:
    """Guarantees: a question costs as many steps as the scope has elements, however many calls there are. One that
    has a `before` looks at every call of the body: only what people resolved asks so.
    """

    def __init__(self) -> None:
        self._bodies: dict[bytes, _Body] = {}

    def note(self, key: CallKey, after: int) -> None:
        """Note a call that began after this record. One that runs again comes where it came first."""
        self._bodies.setdefault(enclosing_call(key[0]), _Body()).note(key, after)

    def than(self, key: CallKey, record_id: int, *, before: int | None = None, beside: bool = False) -> bool:
        """Return whether another call of this call's body began after this record, and no sibling branch made it.

        `before`: only calls begun before this record count. `beside`: the call has a key, and other calls with keys
        are its siblings: only those count that stand in the scope around it without one.
        """
        body = self._bodies.get(enclosing_call(key[0]))
        if body is None:
            return False
        if beside:
            return body.any_around(key, record_id, before)
        if before is None:
            return body.latest_beside(key) >= record_id
        return body.any_beside(key, record_id, before)


class _Best:
    """The highest number, whose it is, and the highest one of all others; 0 for none."""

    __slots__ = ("_first", "_label", "_second")

    def __init__(self) -> None:
        self._first = self._second = 0
        self._label: object = None

    def note(self, label: object, number: int) -> None:
        if label == self._label:
            self._first = max(self._first, number)
        elif number > self._first:
            self._second, self._first, self._label = self._first, number, label
        else:
            self._second = max(self._second, number)

    def beside(self, label: object) -> int:
        """Return the highest number that is not of this label."""
        return self._second if label == self._label else self._first


class _Body:
    """The calls of one body: in each scope the latest ones of its own, and of each group of branches and key in it."""

    def __init__(self) -> None:
        self._after: dict[CallKey, int] = {}
        self._within: dict[bytes, _Best] = {}
        self._own: dict[bytes, _Best] = {}
        self._stale = False

    def note(self, key: CallKey, after: int) -> None:
        known = self._after.get(key)
        if known is None:
            self._after[key] = after
            self._index(key, after)
        elif after < known:
            self._after[key] = after
            self._stale = True

    def latest_beside(self, key: CallKey) -> int:
        """Return the highest of the records that other calls began after, those of sibling branches aside."""
        if self._stale:
            self._stale = False
            self._within, self._own = {}, {}
            for one, after in self._after.items():
                self._index(one, after)
        found = self._own[key[0]].beside(key) if key[0] in self._own else 0
        for scope, label in _places(key[0]):
            best = self._within.get(scope)
            found = max(found, best.beside(label) if best is not None else 0)
        return found

    def any_beside(self, key: CallKey, record_id: int, before: int) -> bool:
        return any(
            record_id <= after < before and other != key and not are_siblings(key[0], other[0])
            for other, after in self._after.items()
        )

    def any_around(self, key: CallKey, record_id: int, before: int | None) -> bool:
        around = key[0][:-ELEMENT_BYTES]
        return any(
            record_id <= after and (before is None or after < before) and other[0] == around
            for other, after in self._after.items()
        )

    def _index(self, key: CallKey, after: int) -> None:
        self._own.setdefault(key[0], _Best()).note(key, after)
        for scope, label in _places(key[0]):
            self._within.setdefault(scope, _Best()).note(label, after)


def _places(scope: bytes) -> list[tuple[bytes, bytes]]:
    """Return each scope from that of the body to this one, and in what of it this one lies: a group of branches, a
    call with a key, or (for the last, b"") in none."""
    first = len(enclosing_call(scope))
    places = [(scope[:at], _group(scope[at : at + ELEMENT_BYTES])) for at in range(first, len(scope), ELEMENT_BYTES)]
    return [*places, (scope, b"")]


def _group(element: bytes) -> bytes:
    """Return what a branch's element has in common with those of its siblings, else the element."""
    return element[:6] if element[:1] == bytes((ScopeKind.BRANCH,)) else element


def is_branched(scope: bytes) -> bool:
    """Return whether a scope lies in a branch: one that does not has no siblings."""
    return ScopeKind.BRANCH in scope[::ELEMENT_BYTES]


def are_siblings(one: bytes, other: bytes) -> bool:
    """Return whether two scopes of one body part ways in branches of one group: neither comes after the other."""
    at = 0
    while at < min(len(one), len(other)) and one[at : at + ELEMENT_BYTES] == other[at : at + ELEMENT_BYTES]:
        at += ELEMENT_BYTES
    here, there = one[at : at + ELEMENT_BYTES], other[at : at + ELEMENT_BYTES]
    return bool(here) and bool(there) and _group(here) == _group(there)
