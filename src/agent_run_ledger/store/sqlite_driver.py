"""The part of the SQLite driver that the store uses, with exact types: the driver's own stubs leave some unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import apsw

from agent_run_ledger.store.rows import Row

Bindings = Sequence[int | float | str | bytes | None]
Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]


class Cursor(Protocol):
    """See apsw.Cursor."""

    @property
    def connection(self) -> Connection: ...  # noqa: D102

    def execute(self, statements: str, bindings: Bindings | None = None, *, can_cache: bool = True) -> Cursor: ...  # noqa: D102

    def executemany(self, statements: str, sequenceofbindings: Iterable[Bindings]) -> Cursor: ...  # noqa: D102

    def fetchall(self) -> list[Row]: ...  # noqa: D102

    def __iter__(self) -> Iterator[Row]: ...

    def get_description(self) -> tuple[tuple[str, str], ...]: ...  # noqa: D102

    def set_exec_trace(self, callable: Callable[[Cursor, str, object], bool] | None) -> None: ...  # noqa: D102

    def close(self, force: bool = False) -> None: ...  # noqa: D102


class Backup(Protocol):
    """See apsw.Backup."""

    @property
    def page_count(self) -> int: ...  # noqa: D102

    @property
    def remaining(self) -> int: ...  # noqa: D102

    def step(self, npages: int = -1) -> bool: ...  # noqa: D102

    def finish(self) -> None: ...  # noqa: D102

    def close(self, force: bool = False) -> None: ...  # noqa: D102


class Connection(Protocol):
    """See apsw.Connection."""

    @property
    def in_transaction(self) -> bool: ...  # noqa: D102

    def execute(self, statements: str, bindings: Bindings | None = None) -> Cursor: ...  # noqa: D102

    def cursor(self) -> Cursor: ...  # noqa: D102

    def pragma(self, name: str, value: int | str | None = None) -> Any: ...  # noqa: D102

    def readonly(self, name: str) -> bool: ...  # noqa: D102

    def changes(self) -> int: ...  # noqa: D102

    def last_insert_rowid(self) -> int: ...  # noqa: D102

    def config(self, op: int, *args: int) -> int: ...  # noqa: D102

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None: ...  # noqa: D102

    def set_authorizer(self, callable: Authorizer | None) -> None: ...  # noqa: D102

    def wal_autocheckpoint(self, n: int) -> None: ...  # noqa: D102

    def backup(self, databasename: str, sourceconnection: Connection, sourcedatabasename: str) -> Backup: ...  # noqa: D102

    def close(self, force: bool = False) -> None: ...  # noqa: D102


def connect(file_name: str, flags: int) -> Connection:
    """Return a new connection. Raises apsw.Error."""
    return cast(Connection, apsw.Connection(file_name, flags=flags))


def extended_code(error: apsw.Error) -> int:
    """Return SQLite's extended result code, 0 where the driver itself raised."""
    return cast(int, getattr(error, "extendedresult", 0))
