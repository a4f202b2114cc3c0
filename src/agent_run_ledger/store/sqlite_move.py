"""A SQLite store as one of the two of a move: made without a leaf, filled in whole transactions, read, discarded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import apsw

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.ports import Entropy, Head
from agent_run_ledger.store.move_sides import FillingSide, Side, Spot, row_of_head
from agent_run_ledger.store.moves import MOVER, Move, Mover, is_filled_by, lines_of
from agent_run_ledger.store.naming import SIDE_NAMES, check_free
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.sqlite import (
    Durability,
    Place,
    close_reader,
    connect_reader,
    connect_writer,
    create_file,
    identify,
    make_ready,
    no_store,
)
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_failures import translated
from agent_run_ledger.store.sqlite_migrations import QUERIES_FILE
from agent_run_ledger.store.sqlite_store import (
    SqliteStore,
    check_filesystem,
    locate_new,
    open_sqlite,
    stored_durability,
)
from agent_run_ledger.store.statements import statements

MOVE_FILE: Final = "sqlite_move.sql"


class SqliteSide(Side):
    """See Side."""

    def __init__(self, place: Place, connection: Connection | None = None) -> None:
        super().__init__(place.location, statements(QUERIES_FILE, MOVE_FILE))
        self._connection = connect_reader(place) if connection is None else connection

    def fetch(self, name: str, bindings: Row = ()) -> list[Row]:
        """See Side.fetch."""
        try:
            return self._connection.execute(self._q[name], bindings).fetchall()
        except apsw.Error as error:
            raise translated(error, self.location) from error

    def close(self) -> None:
        """See Side.close."""
        close_reader(self._connection)


class SqliteFilling(SqliteSide, FillingSide):
    """See Filling. Triggers are off: a row that comes is in whatever state it has come to."""

    def __init__(self, place: Place, mover: Mover) -> None:
        connection = connect_writer(place, create=False)
        make_ready(connection, place, _refuse_to_fill, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        super().__init__(place, connection)
        self.mover = mover

    def take_over(self) -> None:
        """See FillingSide.take_over."""
        line = MOVER, self.mover.token
        self._whole(lambda: self._connection.execute(self._q["put_meta"], line), taken=False)

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """See Filling.put."""
        self._whole(lambda: self._connection.cursor().executemany(self._q[f"fill_{table}"], rows))

    def put_head(self, head: Head) -> None:
        """See Filling.put_head."""
        self._whole(lambda: self._connection.execute(self._q["put_head"], row_of_head(head)))

    def _whole(self, act: Callable[[], object], *, taken: bool = True) -> None:
        connection, q = self._connection, self._q
        try:
            connection.execute(q["begin"])
            self.check(dict(self.fetch("select_meta")), taken=taken)
            act()
            connection.execute(q["commit"])
        except apsw.Error as error:
            raise translated(error, self.location) from error
        finally:
            if connection.in_transaction:
                connection.execute(q["rollback"])


class SqliteSpot(Spot):
    """See Spot."""

    def __init__(self, path: str | os.PathLike[str], *, wait_s: float, entropy: Entropy) -> None:
        self._path = path
        self._wait_s = wait_s
        self._entropy = entropy
        self.location = locate_new(path)

    def meta(self) -> dict[str, Any] | None:
        """See Spot.meta. An empty file that a dead process left is none."""
        if identify(self.location) is None or not os.path.getsize(self.location):
            return None
        with closing(self.reading()) as side:
            return dict(side.fetch("select_meta"))

    def make(self, meta: Mapping[str, Any], move: Move) -> None:
        """See Spot.make. Refused: destination_exists, side_file, network_filesystem (for a ledger with effects)."""
        if identify(self.location) is None:
            check_free(self.location, "")
            check_filesystem(self.location, authority=bool(meta["authority"]))
            create_file(self.location)
        place, now_ms = self._place(), SystemClock().now_ms()

        def fill(connection: Connection) -> None:
            q = statements(QUERIES_FILE)
            kept = [(key, meta[key]) for key in ("log_id", "created_at_ms", "authority", "is_copy")]
            for line in (*kept, *lines_of(move)):
                connection.execute(q["insert_meta"], line)
            connection.execute(q["insert_head"], (now_ms,))

        connection = connect_writer(place, create=True)
        make_ready(connection, place, fill, now_ms)
        connection.close()

    def discard(self, mover: Mover) -> bool:
        """See Spot.discard."""
        meta = self.meta()
        if meta is None or not is_filled_by(meta, mover, self.location):
            return False
        with closing(connect_writer(self._place(), create=False)) as connection:
            connection.pragma("wal_checkpoint", "TRUNCATE")
        # It is known by its main file until nothing else of it is left: whoever dies here is gone on after.
        for path in (*(self.location + side for side in SIDE_NAMES), self.location):
            with suppress(FileNotFoundError):
                os.unlink(path)
        return True

    def reading(self) -> SqliteSide:
        """See Spot.reading."""
        return SqliteSide(self._place())

    def filling(self, mover: Mover) -> SqliteFilling:
        """See Spot.filling."""
        return SqliteFilling(self._place(), mover)

    def open(self) -> SqliteStore:
        """See Spot.open."""
        durability = stored_durability(self._path, wait_s=self._wait_s)
        return open_sqlite(
            self._path, create=False, durability=durability, wait_s=self._wait_s, entropy=self._entropy, moving=True
        )

    def _place(self) -> Place:
        identity = identify(self.location)
        if identity is None:
            raise no_store(self.location)
        durability = Durability.FULL
        if os.path.getsize(self.location):
            durability = Durability(stored_durability(self.location, wait_s=self._wait_s))
        return Place(
            location=self.location,
            identity=identity,
            durability=durability,
            wait_s=self._wait_s,
            entropy=self._entropy,
        )


def _refuse_to_fill(_: Connection) -> None:
    raise no_store("the store that was to be filled")
