"""The part of the PostgreSQL driver that the store uses, with exact types: the driver's own take only literal SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from agent_run_ledger.store.postgres_wire import Batch, Session
from agent_run_ledger.store.rows import Row


class Cursor(Protocol):
    """See psycopg.Cursor."""

    @property
    def rowcount(self) -> int: ...  # noqa: D102

    @property
    def statusmessage(self) -> str | None: ...  # noqa: D102

    def fetchall(self) -> list[Row]: ...  # noqa: D102


class Info(Protocol):
    """See psycopg.ConnectionInfo."""

    @property
    def backend_pid(self) -> int: ...  # noqa: D102


class Connection(Protocol):
    """See psycopg.Connection."""

    @property
    def closed(self) -> bool: ...  # noqa: D102

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and no answer is on its way."""
        ...

    @property
    def info(self) -> Info: ...  # noqa: D102

    def batch(self) -> Batch:
        """Return a new batch of statements for this connection, one of which is used at a time."""
        ...

    def ask(self, query: str, params: Row = ()) -> list[Row]:
        """Return the rows of a statement that is prepared at its first use."""
        ...

    def execute(  # noqa: D102
        self, query: str, params: Row | None = None, *, prepare: bool | None = None, binary: bool = False
    ) -> Cursor: ...

    def transaction(self) -> AbstractContextManager[object]: ...  # noqa: D102

    def add_notice_handler(self, callback: Callable[[psycopg.errors.Diagnostic], None], /) -> None: ...  # noqa: D102

    def notifies(  # noqa: D102
        self, *, timeout: float | None = None, stop_after: int | None = None
    ) -> Iterator[object]: ...

    def fileno(self) -> int: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class _BoolDumper(Int8BinaryDumper):
    """The schema has numbers where Python has bool, as SQLite's has."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


class _Bounded(psycopg.Connection[Row]):
    """A connection on which nothing is waited for beyond `limit_s`; it is lost then.

    The server bounds statements and locks itself. But a COMMIT that waits for a standby has no limit there, and a
    server that stands still says nothing at all.
    """

    limit_s = 60.0
    session: Session

    @property
    def is_idle(self) -> bool:
        """See Connection.is_idle."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def batch(self) -> Batch:
        """See Connection.batch."""
        return Batch(self.session, self.wait)

    def ask(self, query: str, params: Row = ()) -> list[Row]:
        """See Connection.ask."""
        return self.batch().ask(query, params).fetchall()

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See psycopg.Connection.wait."""
        try:
            return super().wait(gen, interval, timeout=self.limit_s if timeout is None else timeout)
        except psycopg.Error as error:
            if timeout is not None or type(error).__name__ != "_WaitTimeout":  # who gave a limit expects its end
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server said nothing for {self.limit_s:g} s") from error


def connect_to(parameters: dict[str, Any], *, limit_s: float) -> Connection:
    """Return a new connection that commits by itself and sends every number as a BIGINT. Raises psycopg.Error.

    Its cursors prepare nothing: they would have the server forget all that is prepared, that of batches too.
    """
    connection = _Bounded.connect(make_conninfo(**parameters), autocommit=True, prepare_threshold=None)
    connection.limit_s = limit_s
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(bool, _BoolDumper)
    connection.session = Session(connection)
    return cast(Connection, connection)
