"""What a move asks of the two stores that it is between, whatever their engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.ports import Head, Store
from agent_run_ledger.store.moves import Move, Mover, is_arriving, is_filled_by, move_of, move_over
from agent_run_ledger.store.rows import Row, head_from

T = TypeVar("T")

TABLES: Final = (
    "events",
    "tiles",
    "runs",
    "records",
    "in_flight",
    "budgets",
    "actions",
    "approvals",
    "requests",
    "answers",
    "action_records",
    "effect_time",
    "clock_corrections",
    "trust_changes",
)
"""All tables that a ledger consists of beside its head, in an order in which none refers to a later one.

`meta` is a store's own. `migrations` says how an engine's tables came to be.
"""

LOG_TABLES: Final = ("events", "tiles")

BIG: Final = frozenset({"events", "records", "requests", "answers", "action_records"})
"""Those whose rows may be large, so that a page has a bound of bytes too."""

PAGE_ROWS: Final = 1_000
PAGE_BYTES: Final = 4 << 20

_BEFORE_ALL = -(1 << 63)


class Side(ABC):
    """What is read of a store while its ledger moves. Close it."""

    def __init__(self, location: str, q: Mapping[str, str]) -> None:
        self.location = location
        self._q = q

    @abstractmethod
    def fetch(self, name: str, bindings: Row = ()) -> list[Row]:
        """Return the rows of a named statement."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def pages(self, table: str, *, after: int | None = None) -> Iterator[list[Row]]:
        """Yield the rows of a table behind a key, in order: at most PAGE_ROWS, and few above PAGE_BYTES, at once."""
        key = _BEFORE_ALL if after is None else after
        bounds = (PAGE_ROWS, PAGE_BYTES) if table in BIG else (PAGE_ROWS,)
        while rows := self.fetch(f"page_{table}", (key, *bounds)):
            yield rows
            key = int(rows[-1][0])

    def last(self, table: str) -> int | None:
        """Return the last key of a table, None where it has no row."""
        found: int | None = self.fetch(f"last_{table}")[0][0]
        return found

    def count(self) -> int:
        """Return how many rows all tables have."""
        return int(self.fetch("count_rows")[0][0])

    def running(self) -> list[str]:
        """Return the ids of the runs that say that an attempt is at work."""
        return [str(row[0]) for row in self.fetch("select_running")]

    def head(self) -> Head:
        """Return the head of the log. Tampered("corrupt") without one."""
        return head_from(self.fetch("select_head"), self.location)


class FillingSide(Side):
    """A side that is filled, too, by the one process that took it over last.

    Each transaction locks the head of the log first, and looks then at whose store it is: Refused("move_over") where
    another process took it over, or where it is being filled no more. A lock that was lost shows itself too late.
    """

    mover: Mover

    @abstractmethod
    def take_over(self) -> None:
        """Have this process, and none before it, fill the store, which must be arriving by its move."""

    @abstractmethod
    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows with the keys that they have, all or none, and return when they are durable."""

    @abstractmethod
    def put_head(self, head: Head) -> None:
        """Say what the log is now, let new rows get keys behind those that came, and return when all is durable.

        Uncertain("commit_unconfirmed") where a standby did not confirm.
        """

    def check_mine(self) -> None:
        """Refused("move_over") unless this process fills the store."""
        self.put(LOG_TABLES[0], ())

    def check(self, meta: Mapping[str, Any], *, taken: bool = True) -> None:
        """Refused("move_over") unless the store that says this is filled by this process; or may be, if not `taken`."""
        arriving = is_arriving(move_of(meta, self.location), self.mover.move_id)
        if not (is_filled_by(meta, self.mover, self.location) if taken else arriving):
            raise move_over(self.location)


class Spot(ABC):
    """One of the two places of a move: what lies there, and what can be made of it."""

    location: str
    """The name of the store, without a password."""

    @abstractmethod
    def meta(self) -> dict[str, Any] | None:
        """Return what the store there says of itself; None where there is none. Raises for what is no store of ours."""

    @abstractmethod
    def make(self, meta: Mapping[str, Any], move: Move) -> None:
        """Make a store for the ledger that this `meta` is of: it says `move` of itself, and has no leaf.

        Refused where something lies there.
        """

    @abstractmethod
    def discard(self, mover: Mover) -> bool:
        """Take away what `make` made, unless another process fills it by now, or it is live; return whether it did."""

    @abstractmethod
    def reading(self) -> Side:
        """Open the store to read its tables."""

    @abstractmethod
    def filling(self, mover: Mover) -> FillingSide:
        """Open the store to fill its tables."""

    @abstractmethod
    def open(self) -> MovingStore:
        """Open the store as the move may use it, wherever it stands."""


class MovingTx(Protocol):
    """What a transaction of a move can do."""

    @property
    def size(self) -> int:
        """How many leaves the log has before that of this transaction."""
        ...

    def metas(self) -> Mapping[str, Any]:
        """Return all lines of meta as the transaction sees them."""
        ...

    def put_meta(self, key: str, value: bytes | int) -> None:
        """Write one line of meta."""
        ...

    def add_change(self, change: Change) -> None:
        """See ports.Tx.add_change."""
        ...


class MovingStore(Store, Protocol):
    """What a move asks of a store beside `ports.Store`."""

    def transact_moving(self, op_id: bytes, fn: Callable[[MovingTx], T]) -> T:
        """Run one transaction of the move, which alone may write while the store moves."""
        ...


def row_of_head(head: Head) -> Row:
    """Return what `put_head` binds."""
    return head.size, b"".join(head.frontier), head.epoch, head.time_ms


def same_rows(one: Side, other: Side, table: str) -> Any | None:
    """Return the first key at which a table differs between two sides, None where it does not."""
    ours, theirs = _each(one, table), _each(other, table)
    for row in ours:
        found = next(theirs, None)
        if found != row:
            return row[0]
    extra = next(theirs, None)
    return None if extra is None else extra[0]


def _each(side: Side, table: str) -> Iterator[Row]:
    for page in side.pages(table):
        for row in page:
            yield tuple(row)
