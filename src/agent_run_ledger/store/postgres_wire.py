"""Several statements and their answers in one round trip, at a tenth of what the driver's cursors cost for each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from agent_run_ledger.store.postgres_failures import unsendable
from agent_run_ledger.store.rows import Row

MOST_PREPARED: Final = 300
"""How many statements a session keeps. One more than these is parsed each time."""

Waiting = Generator[Wait, Ready, None]
Key = tuple[str, tuple[int, ...]]
"""A statement and the types of its values, which together have one plan."""


class Answer:
    """What the server says to one statement. Only after its batch was sent has it anything to tell."""

    __slots__ = ("_load", "_result")

    def __init__(self, load: Callable[[PGresult], list[Row]]) -> None:
        self._load = load
        self._result: PGresult | None = None

    @property
    def rowcount(self) -> int:
        """How many rows the statement gave or changed; -1 where it has no rows."""
        number = self.result.command_tuples
        return -1 if number is None else number

    @property
    def statusmessage(self) -> str | None:
        """What the server calls that which it did."""
        said = self.result.command_status
        return None if said is None else said.decode()

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        return self._load(self.result)

    @property
    def result(self) -> PGresult:
        """The answer as it came. psycopg.InterfaceError before it did."""
        if self._result is None:
            raise psycopg.InterfaceError("the statement was not sent, or it has no answer")
        return self._result

    def take(self, result: PGresult) -> None:
        """Note the answer."""
        self._result = result


class _Parsed:
    """The answer to having a statement parsed: with it the session knows the statement."""

    __slots__ = ("_key", "_name", "_prepared")

    def __init__(self, prepared: dict[Key, bytes], key: Key, name: bytes) -> None:
        self._prepared, self._key, self._name = prepared, key, name

    def take(self, result: PGresult) -> None:
        """See Answer.take."""
        self._prepared[self._key] = self._name


class Session:
    """What one connection keeps between batches: the statements that its server has parsed, by text and types."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.pgconn: PGconn = connection.pgconn
        self.prepared: dict[Key, bytes] = {}
        self._forms = Transformer(connection)

    @property
    def is_clean(self) -> bool:
        """Whether no batch was left in the middle: what comes next would be taken for an answer to something else."""
        return self.pgconn.pipeline_status == PipelineStatus.OFF

    def dumped(self, values: Row) -> _Dumped:
        """Return values as they are sent, with their types and formats. psycopg.DataError for what cannot be."""
        forms = self._forms
        try:
            dumped = forms.dump_sequence(values, [PyFormat.AUTO] * len(values))
        except (UnicodeEncodeError, OverflowError, struct.error) as error:  # the driver lets through what Python says
            raise unsendable(error) from error
        return dumped, forms.types or (), forms.formats or ()

    def load(self, result: PGresult) -> list[Row]:
        """Return the rows of an answer."""
        forms = self._forms
        forms.set_pgresult(result)
        return forms.load_rows(0, result.ntuples, tuple)


class Batch:
    """Statements of one connection that are sent together, in the order in which they were added.

    Guarantees: nothing is sent before `send`, and all of it then, in one message; every statement's answer has come
    when it returns. By an error of the server's all that comes after it in the batch is skipped, COMMIT among it.
    A batch that was not sent is forgotten without a word; one that was sent is empty again.
    """

    def __init__(self, session: Session, wait: Callable[[Waiting], None]) -> None:
        self._session = session
        self._wait = wait
        self._added: list[_Added] = []

    def __len__(self) -> int:
        return len(self._added)

    def add(self, query: str, params: Row = (), *, prepare: bool = True) -> Answer:
        """Add a statement, and return where its answer will be. psycopg.DataError for values that cannot be sent."""
        answer = Answer(self._session.load)
        self._added.append((query, self._session.dumped(params) if params else _NOTHING, answer, prepare))
        return answer

    def send(self) -> None:
        """Send what was added and wait for the answers. Raises the first error: the server's, or of the connection."""
        added, self._added = self._added, []
        if not added:
            return
        if not self._session.is_clean:
            self._session.pgconn.finish()
            raise psycopg.OperationalError("the connection was left in the middle of an answer, and is given up")
        self._wait(self._exchanged(added))

    def ask(self, query: str, params: Row = (), *, prepare: bool = True) -> Answer:
        """Add a statement, send the batch, and return its answer."""
        answer = self.add(query, params, prepare=prepare)
        self.send()
        return answer

    def _exchanged(self, added: Sequence[_Added]) -> Waiting:
        pgconn = self._session.pgconn
        pgconn.enter_pipeline_mode()
        takers = self._queued(added)
        pgconn.pipeline_sync()
        failed: psycopg.Error | None = None
        try:
            yield from _flushed(pgconn)
            for taker in takers:
                result = yield from _answered(pgconn)
                if result.status == ExecStatus.FATAL_ERROR:
                    failed = failed or error_from_result(result)
                elif result.status != ExecStatus.PIPELINE_ABORTED:
                    taker.take(result)
            yield from _synced(pgconn)
            pgconn.exit_pipeline_mode()
        except psycopg.OperationalError as lost:
            raise failed or lost from lost  # a server that ends a session says why first
        if failed is not None:
            raise failed

    def _queued(self, added: Sequence[_Added]) -> list[Answer | _Parsed]:
        """Hand the statements to the driver, and return who takes each answer, in order."""
        pgconn, prepared = self._session.pgconn, self._session.prepared
        takers: list[Answer | _Parsed] = []
        coming: dict[Key, bytes] = {}
        for query, (values, types, formats), answer, prepare in added:
            key = (query, types)
            name = prepared.get(key) or coming.get(key)
            if name is None and prepare and len(prepared) + len(coming) < MOST_PREPARED:
                name = coming[key] = b"arl_%d" % (len(prepared) + len(coming))
                pgconn.send_prepare(name, numbered(query), types)
                takers.append(_Parsed(prepared, key, name))
            if name is None:
                pgconn.send_query_params(numbered(query), values, types, formats, Format.BINARY)
            else:
                pgconn.send_query_prepared(name, values, formats, Format.BINARY)
            takers.append(answer)
        return takers


_Dumped = tuple[Sequence[Buffer | None], tuple[int, ...], Sequence[Format]]
_Added = tuple[str, _Dumped, Answer, bool]
_NOTHING: Final[_Dumped] = ((), (), ())


@cache
def numbered(query: str) -> bytes:
    """Return a statement with its places numbered, as the server wants them."""
    first, *others = query.split("%s")
    return (first + "".join(f"${number}{piece}" for number, piece in enumerate(others, 1))).encode()


def _flushed(pgconn: PGconn) -> Waiting:
    """Send all. What comes meanwhile is taken: a server whose answers nobody takes reads no further."""
    while pgconn.flush():
        ready = yield Wait.RW
        if ready & Ready.R:
            pgconn.consume_input()


def _answered(pgconn: PGconn) -> Generator[Wait, Ready, PGresult]:
    """Return the answer to one statement."""
    answer: PGresult | None = None
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            if answer is None:
                raise psycopg.OperationalError("the connection was lost")
            return answer
        answer = result


def _synced(pgconn: PGconn) -> Waiting:
    """Return when the server has said that it is at the end of the batch."""
    while pgconn.is_busy():
        yield Wait.R
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is None or result.status != ExecStatus.PIPELINE_SYNC:
        raise psycopg.OperationalError("the connection was lost")
