"""The part of the PostgreSQL driver that the store uses, with exact types: the driver's own take only literal SQL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, cast

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from agent_run_ledger.store.rows import Row

_MOST_PREPARED = 300


class Cursor(Protocol):
    """See psycopg.Cursor."""

    @property
    def rowcount(self) -> int: ...  # noqa: D102

    @property
    def statusmessage(self) -> str | None: ...  # noqa: D102

    def fetchall(self) -> list[Row]: ...  # noqa: D102


class Pipeline(Protocol):
    """See psycopg.Pipeline."""

    def sync(self) -> None: ...  # noqa: D102


class Session(Protocol):
    """See psycopg.ConnectionInfo."""

    @property
    def backend_pid(self) -> int: ...  # noqa: D102

    @property
    def transaction_status(self) -> TransactionStatus: ...  # noqa: D102


class Connection(Protocol):
    """See psycopg.Connection."""

    @property
    def closed(self) -> bool: ...  # noqa: D102

    @property
    def info(self) -> Session: ...  # noqa: D102

    def execute(  # noqa: D102
        self, query: str, params: Row | None = None, *, prepare: bool | None = None, binary: bool = False
    ) -> Cursor: ...

    def pipeline(self) -> AbstractContextManager[Pipeline]: ...  # noqa: D102

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

    @contextmanager
    def pipeline(self) -> Generator[psycopg.Pipeline]:
        """See psycopg.Connection.pipeline. What a block raises is all that is heard of it.

        What was sent after a refused statement is answered with an error too. The driver would log that one, on the
        stderr of a program that has no logging: not where it is told that the block ended well.
        """
        failed: BaseException | None = None
        try:
            with super().pipeline() as pipeline:
                try:
                    yield pipeline
                except BaseException as error:
                    failed = error
        except Exception:
            if failed is None:
                raise
        try:
            if failed is not None:
                raise failed
        finally:
            del failed  # its frames hold this one: what they hold must not wait for a collection

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
    """Return a new connection that commits by itself and sends every number as a BIGINT. Raises psycopg.Error."""
    connection = _Bounded.connect(make_conninfo(**parameters), autocommit=True, prepare_threshold=0)
    connection.limit_s = limit_s
    connection.prepared_max = _MOST_PREPARED
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(bool, _BoolDumper)
    return cast(Connection, connection)
