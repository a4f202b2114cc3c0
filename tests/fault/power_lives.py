"""Lives for the power tests: real pipelines that make the journal or WAL go through everything it can."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from agent_run_ledger import RunLedger, Unavailable
from agent_run_ledger.store import sqlite
from agent_run_ledger.store.sqlite_driver import Connection
from agent_run_ledger.store.sqlite_writer import SqliteWriter
from agent_run_ledger.testing import BodyCounter
from tests.fault.store_disk import Hook, layered

Life = Callable[[Path], object]

CHECKPOINT_PAGES = 18
"""So few that the WAL is folded into the file, begun anew and overwritten again and again within one life."""

WAL_BYTES = 40_000
"""So few that a WAL which grew beyond is truncated when it is begun anew."""


@contextmanager
def small_wal() -> Iterator[None]:
    with patch.object(sqlite, "CHECKPOINT_PAGES", CHECKPOINT_PAGES), patch.object(sqlite, "JOURNAL_BYTES", WAL_BYTES):
        yield


@contextmanager
def forced(level: int) -> Iterator[None]:
    """The unsafe twin: every connection of the store stays at this PRAGMA synchronous, whatever the store wants."""
    set_pragmas = sqlite._set_pragmas

    def weakened(connection: Connection, place: sqlite.Place) -> None:
        set_pragmas(connection, place)
        connection.pragma("synchronous", level)

    with (
        patch.object(sqlite, "_set_pragmas", weakened),
        patch.object(SqliteWriter, "_set_sync", lambda _self, _cursor, _sync: None),
    ):
        yield


def short(durability: str) -> Life:
    """Two steps, one process."""

    def life(workdir: Path) -> object:
        bodies = BodyCounter(workdir / "bodies.log")
        with RunLedger("short", durability=durability) as ledger:

            @ledger.step
            def first(n: int) -> int:
                bodies.ran("first", n)
                return n + 1

            @ledger.step(depends_on=["first"])
            def second(first: int) -> str:
                bodies.ran("second", first)
                return "x" * first

            return ledger.execute(n=4)

    return life


def busy(durability: str) -> Life:
    """A run that fails and goes on, the store closed and opened again, and a second run; over a WAL, whose acts are
    fewer, one with branches in parallel."""

    def life(workdir: Path) -> object:
        bodies = BodyCounter(workdir / "bodies.log")
        second_run = _fans_out(bodies) if durability == "full" else short(durability)(workdir)
        return _fails_first(bodies, durability), second_run

    return life


def switching(workdir: Path) -> object:
    """One store that is opened with a WAL, then without one, then with one again."""

    def run(run_id: str, durability: str) -> object:
        bodies = BodyCounter(workdir / "bodies.log")
        with RunLedger(run_id, durability=durability) as ledger:

            @ledger.step(name=run_id)
            def only(n: int) -> int:
                bodies.ran(run_id, n)
                return n + 1

            return ledger.execute(n=4)

    return [run("with", "full"), run("without", "extra"), run("with again", "full")]


def _fails_first(bodies: BodyCounter, durability: str) -> object:
    failures = iter((ConnectionError("no route"),))
    with RunLedger("fails-first", durability=durability) as ledger:

        @ledger.step
        def draft(topic: str) -> str:
            bodies.ran("draft", topic)
            return topic * 1_500  # more than a page: its record has pages of its own

        @ledger.step(depends_on=["draft"])
        def send(draft: str) -> int:
            bodies.ran("send", draft)
            for failure in failures:
                raise failure
            return len(draft)

        try:
            return ledger.execute(topic="river")
        except ConnectionError:
            return ledger.execute(topic="river")


def _fans_out(bodies: BodyCounter) -> object:
    with RunLedger("fans-out", max_parallel=2) as ledger:

        @ledger.step
        def source(size: int) -> list[int]:
            bodies.ran("source", size)
            return list(range(size))

        @ledger.step(depends_on=["source"])
        def total(source: list[int]) -> int:
            bodies.ran("total", source)
            return sum(source)

        @ledger.step(depends_on=["source"])
        def odd(source: list[int]) -> set[int]:
            bodies.ran("odd", source)
            return {number for number in source if number % 2}

        @ledger.step(depends_on=["total", "odd"])
        def join(total: int, odd: set[int]) -> tuple[int, set[int]]:
            bodies.ran("join", total, odd)
            return total, odd

        return ledger.execute(size=6)


def over_a_failing_disk(durability: str, hook: Callable[[], Hook]) -> Life:
    """`short`, on a disk that fails once while the first step is recorded; tried until it ends well."""

    def life(workdir: Path) -> object:
        with layered() as disk, RunLedger("short", durability=durability) as ledger:

            @ledger.step
            def first(n: int) -> int:
                disk.before = hook()
                return n + 1

            @ledger.step(depends_on=["first"])
            def second(first: int) -> str:
                disk.heal()
                return "x" * first

            for _ in range(2):
                try:
                    return ledger.execute(n=4)
                except Unavailable:
                    disk.heal()
            return ledger.execute(n=4)

    return life


def paying(workdir: Path) -> object:
    """A dynamic run: a step, an unsafe tool, another step. What the tool's outcome was makes no difference here."""
    bodies = BodyCounter(workdir / "bodies.log")
    with RunLedger("paying") as ledger:

        @ledger.step
        def look(n: int) -> int:
            bodies.ran("look", n)
            return n + 1

        @ledger.tool
        def pay(cents: int) -> str:
            bodies.ran("pay", cents)
            _synced(bodies.path)
            return "paid"

        @ledger.step
        def tell(n: int) -> int:
            bodies.ran("tell", n)
            return n

        with ledger.run() as run:
            run.random()
            pay(look(4))
            tell(5)
            return "done"


def _synced(path: str) -> None:
    """What the tool did in the world is done, whatever happens to this machine."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
