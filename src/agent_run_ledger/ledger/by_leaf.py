"""Records beside the leaves that they belong to, whatever cannot be read among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.tiles import TILE_WIDTH

UNREADABLE = (Tampered, ValueError, TypeError)
"""What a read of a forged or torn row can raise: the store's own verdict, or a field that is not of its type."""

_POSITIONS = 0xFFFF


class Recorded(Protocol):
    """What stands beside a leaf: `record_id` = leaf index << 16 | position of its change."""

    @property
    def record_id(self) -> int: ...  # noqa: D102

    @property
    def leaf_index(self) -> int: ...  # noqa: D102


R = TypeVar("R", bound=Recorded)

Note = Callable[[int | None, str], None]
"""Takes one contradiction: the index of its leaf, None for none, and the words."""


class ByLeaf(Generic[R]):
    """Records in the order of their ids, handed out leaf by leaf; `missing` names those whose leaf is not asked for."""

    def __init__(self, records: Iterator[R], note: Note, missing: str) -> None:
        self._records = records
        self._note = note
        self._missing = missing
        self._next = next(records, None)

    def of(self, index: int) -> dict[int, R]:
        """Return the records of a leaf by position. Ask in the order of leaves."""
        own: dict[int, R] = {}
        while self._next is not None and self._next.leaf_index <= index:
            if self._next.leaf_index == index:
                own[self._next.record_id & _POSITIONS] = self._next
            else:
                self._note(self._next.leaf_index, self._missing)
            self._next = next(self._records, None)
        return own

    def finish(self) -> None:
        """Name those that are left."""
        while self._next is not None:
            self._note(self._next.leaf_index, self._missing)
            self._next = next(self._records, None)


def readable(
    read: Callable[[int, int], Iterator[R]], first: int, stop: int, note: Note, unreadable: str
) -> Iterator[R]:
    """Yield what can be read of the records of leaves first ≤ index < stop; what cannot is noted and skipped."""
    last = -1
    try:
        for stored in read(first, stop):
            yield stored
            last = stored.record_id
    except UNREADABLE as error:
        if stop - first == 1:
            note(first, f"{unreadable} cannot be read: {error}")
            return
        begin = first if last < 0 else last >> 16
        for index in range(begin, min(stop, begin + TILE_WIDTH)):
            again = readable(read, index, index + 1, note, unreadable)
            yield from (stored for stored in again if stored.record_id > last)
