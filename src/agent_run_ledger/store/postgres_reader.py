"""The read side of a PostgreSQL store: a connection of a pool for each statement or chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_run_ledger.store.postgres import EFFECTS_FILE, QUERIES_FILE, Place
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_meta import meta_from
from agent_run_ledger.store.postgres_pool import ReadingPool
from agent_run_ledger.store.postgres_wire import Answer
from agent_run_ledger.store.row_reader import CHUNK_BYTES, CHUNK_ROWS, RowReader
from agent_run_ledger.store.rows import Row
from agent_run_ledger.store.statements import statements

T = TypeVar("T")


class PostgresReader(RowReader):
    """See RowReader. Each statement sees one state; several of one question run in one read transaction."""

    def __init__(self, place: Place, pool: ReadingPool) -> None:
        super().__init__(place.location, statements(QUERIES_FILE), _with_effects)
        self._pool = pool

    def meta(self) -> dict[str, bytes | int]:
        """Return all lines of meta."""
        return meta_from(self._fetch("select_meta", ()))

    def fetch(self, name: str) -> list[Row]:
        """Return all rows of a named statement without parameters, for what only this kind of store can tell."""
        return self._fetch(name, ())

    def _fetch(self, name: str, bindings: Row) -> list[Row]:
        sql = self._q[name]
        return self._pool.use(lambda connection: connection.ask(sql, bindings))

    def _locked(self, fn: Callable[[Any], T], /) -> T:
        return self._pool.use(lambda connection: fn(_Asked(connection)))

    def _found(self, name: str, ids: Sequence[int]) -> list[Row]:
        """See RowReader._found."""
        return self._fetch(name, (list(ids),))

    def _some_of(self, ids: Sequence[int]) -> list[Row]:
        """See RowReader._some_of."""
        return self._fetch("select_some_records", (list(ids), CHUNK_BYTES))

    def _some_between(self, first: int, stop: int) -> list[Row]:
        """See RowReader._some_between."""
        return self._fetch("select_some_between", (first, stop, CHUNK_ROWS, CHUNK_BYTES))


class _Asked:
    """See effect_reader.Asked."""

    __slots__ = ("_batch",)

    def __init__(self, connection: Connection) -> None:
        self._batch = connection.batch()

    def execute(self, query: str, params: Row = (), /) -> Answer:
        """See effect_reader.Asked."""
        return self._batch.ask(query, params)


def _with_effects() -> Mapping[str, str]:
    return statements(QUERIES_FILE, EFFECTS_FILE)
