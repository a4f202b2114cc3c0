"""The floor: one committed row per step through the same driver, and nothing else."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Protocol, cast

import apsw

from agent_run_ledger.benchmark.work import Result

WAIT_S = 60.0
_MARKER = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@cache
def statements(file_name: str = "floor.sql") -> Mapping[str, str]:
    """Return the statements of one of this package's files by name."""
    from importlib.resources import files

    pieces = _MARKER.split(files("agent_run_ledger.benchmark").joinpath(file_name).read_text(encoding="utf-8"))
    return {name: text.strip().removesuffix(";") for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


class Connection(Protocol):
    """The part of apsw.Connection that the floor uses; its own annotations are not complete."""

    def execute(self, sql: str, values: tuple[object, ...] = (), /) -> Iterator[tuple[object, ...]]:
        """Run one statement and return its rows."""
        ...

    def cursor(self) -> Connection:
        """Return a cursor."""
        ...

    def pragma(self, name: str, /) -> object:
        """Return the value of a setting of this connection."""
        ...

    def set_busy_handler(self, handler: Callable[[int], bool], /) -> None:
        """Set who decides about waiting for a lock."""
        ...

    def close(self) -> None:
        """Close."""
        ...


class Floor:
    """A SQLite file with synchronous=FULL, one table and one connection. Not thread-safe.

    `journal`: "wal", or "delete" for the rollback journal that SQLite has without being asked.
    """

    def __init__(self, path: str, *, journal: str = "wal") -> None:
        sql = statements()
        self._connection = cast("Connection", apsw.Connection(path))
        self._connection.set_busy_handler(busy_handler())
        for name in (journal, "full", "create"):
            list(self._connection.execute(sql[name]))
        self._begin, self._insert, self._commit = sql["begin"], sql["insert"], sql["commit"]
        self._select, self._select_all = sql["select"], sql["select_all"]

    def put_all(self, count: int, step: Callable[[int], Result], *, first_key: int = 0) -> None:
        """Call `step(i)` for i in 0..count-1 and commit each result as JSON, each durable before the next begins."""
        execute = self._connection.cursor().execute
        for i in range(count):
            value = step(i)
            execute(self._begin)
            execute(self._insert, (first_key + i, json.dumps(value)))
            execute(self._commit)

    def put_together(self, count: int, step: Callable[[int], str]) -> None:
        """Write `count` texts in one transaction: for what is only read afterwards."""
        execute = self._connection.cursor().execute
        execute(self._begin)
        for i in range(count):
            execute(self._insert, (i, step(i)))
        execute(self._commit)

    def text(self, key: int) -> str:
        """Return the text of one row; KeyError where there is none."""
        for (text,) in self._connection.execute(self._select, (key,)):
            return str(text)
        raise KeyError(key)

    def texts(self) -> Iterator[str]:
        """Yield all texts in order of their keys, read row by row."""
        for _, text in self._connection.execute(self._select_all):
            yield str(text)

    def settings(self) -> dict[str, object]:
        """Return what this connection says of its durability, and SQLite's version."""
        asked = {name: self._connection.pragma(name) for name in ("journal_mode", "synchronous")}
        return {**asked, "sqlite": apsw.sqlite_lib_version()}

    def close(self) -> None:
        """Close the connection, which folds the WAL into the file."""
        self._connection.close()


def busy_handler() -> Callable[[int], bool]:
    """Return a busy handler that waits 0.2 to 2 ms at random between two tries and gives up after 60 s."""
    since = 0.0

    def wait(tries: int) -> bool:
        nonlocal since
        now = time.monotonic()
        if tries == 0:
            since = now
        if now - since > WAIT_S:
            return False
        time.sleep(random.uniform(0.0002, 0.002))
        return True

    return wait
