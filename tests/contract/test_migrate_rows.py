"""What moves and what does not: every table and column, odd values, and who writes while the source stops."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from agent_run_ledger import LedgerError
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.ledger.migrate import Moved, abandon_migration, migrate
from agent_run_ledger.store import Standing, open_store
from agent_run_ledger.store.move_sides import BIG, TABLES
from agent_run_ledger.store.moves import MOVER, Mover
from agent_run_ledger.store.moving import _at_work, move
from agent_run_ledger.store.statements import sql_text, statements
from tests.contract.move_kit import KEYS, live, pipeline, tables_of
from tests.contract.run_kit import until
from tests.contract.store_kit import op
from tests.contract.test_migrate import PAIRS, Place, folder, interrupted, place, refused, small
from tests.services.postgres import Cluster

__all__ = ["folder", "place", "small"]


@pytest.mark.parametrize("pair", PAIRS[:2], ids="-".join)
def test_rows_of_every_table_move_whatever_they_are(
    small: Path, place: Place, postgres: Cluster, pair: tuple[str, str]
) -> None:
    """Those that the ledgers of these tests have none of, and values that engines could take for others."""
    connection = apsw.Connection(str(small))
    connection.execute(
        "INSERT INTO clock_corrections VALUES (70000, 9007199254740993, zeroblob(32), x'00ff');"
        "INSERT INTO trust_changes VALUES (70001, zeroblob(32), 1, zeroblob(32), x''),"
        " (70002, zeroblob(32), 9223372036854775807, zeroblob(32), x'5c78');"
        "INSERT INTO runs VALUES (9000, zeroblob(16), 'a \\ ''b'' é 漢', 'failed', '', 1, 1, -1, 0, '', NULL, NULL,"
        " NULL, NULL, NULL, 'q');"
        "INSERT INTO budgets VALUES (77, 9000, '', x'');"
    )
    connection.close()
    target: Any = place("server")
    moved: Moved = move(small, target, check=lambda _: None)
    if pair[0] == "server":
        small, target = target, place("file")
        moved = move(small, target, check=lambda _: None)
    after = tables_of(target, postgres)
    assert [row[:2] for row in after["clock_corrections"]] == [(70000, 9007199254740993)]
    assert [row[2] for row in after["trust_changes"]] == [1, 9223372036854775807]
    assert after["runs"][-1][2] == "a \\ 'b' é 漢"
    assert after["budgets"] == [(77, 9000, "", b"")]
    assert moved.rows == sum(map(len, tables_of(small, postgres).values()))
    pipeline(target, "next")
    assert tables_of(target, postgres)["runs"][-1][0] == 9001


def test_what_a_server_cannot_store_stops_the_move_and_can_be_given_up(small: Path, place: Place) -> None:
    connection = apsw.Connection(str(small))
    connection.execute("UPDATE runs SET holder = 'a' || char(0) || 'b'")
    connection.close()
    target = place("server")
    refused(lambda: migrate(small, target), "unstorable")
    abandon_migration(small, target)
    assert live(small)


def test_progress_tells_rows_tables_and_leaves(small: Path, place: Place) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    migrate(small, place("file"), progress=lambda what, done, total: told.setdefault(what, []).append((done, total)))
    assert list(told) == ["rows", "tables compared", "leaves"]
    assert all(steps[-1][0] == steps[-1][1] for steps in told.values())


def test_both_engines_have_the_same_statements_of_a_move() -> None:
    sqlite, postgres = statements("sqlite_move.sql"), statements("postgres_move.sql")
    only_there = {"let_any_begin", "let_none_begin", "discard"} | {name for name in postgres if "advance_" in name}
    assert set(postgres) - set(sqlite) == only_there
    assert set(sqlite) < set(postgres)
    assert {name for name in sqlite if sqlite[name].count("?") != postgres[name].count("%s")} == set()
    assert set(KEYS) == set(TABLES)
    assert {name.removeprefix("page_") for name in sqlite if "bytes_before" in sqlite[name]} == BIG


def test_every_column_moves() -> None:
    file = apsw.Connection(":memory:")
    file.execute(sql_text("sqlite_schema.sql"))
    tables = {str(row[0]) for row in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == set(TABLES) | {"meta", "head", "migrations"}
    q = statements("sqlite_move.sql")
    for table in TABLES:
        columns = [str(row[0]) for row in file.execute(f"SELECT name FROM pragma_table_info('{table}')")]
        for name in (f"page_{table}", f"fill_{table}"):
            words = q[name].replace("(", " ").replace(",", " ").replace(")", " ").split()
            start = words.index("SELECT") + 1 if name.startswith("page") else words.index(table) + 1
            assert words[start : start + len(columns)] == columns, name


def test_who_waits_for_the_lock_while_the_source_stops_is_refused(place: Place, postgres: Cluster) -> None:
    """What a transaction knows of the move it reads behind the lock, and not before it waits."""
    import psycopg

    url = place("server")
    pipeline(url, "r1")
    store = open_store(url, create=False)
    said: list[LedgerError] = []

    def write() -> None:
        try:
            store.transact(op(), lambda tx: tx.budgets(1))
        except LedgerError as error:
            said.append(error)

    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM agent_run_ledger.head FOR UPDATE")
        waiting = threading.Thread(target=write)
        waiting.start()
        until(lambda: bool(postgres.run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")))
        other.execute("INSERT INTO agent_run_ledger.meta VALUES ('move', '1')")
    waiting.join()
    store.close()
    assert [error.code for error in said] == ["moving"]


@pytest.mark.parametrize("kind", ["file", "server"])
def test_a_source_that_retired_has_no_way_back(place: Place, kind: str) -> None:
    """Whoever read before it retired that it moves is refused by what stands there now."""
    source, target = place(kind), place("file")
    pipeline(source, "r1")
    migrate(source, target)
    with _at_work(source, target, 5.0, SystemEntropy()) as work:
        _, here = work._look()
        with closing(work._source.reading()) as side:
            work._size = side.head().size
        before = replace(here, standing=Standing.MOVING)
        back = lambda tx: work._step(tx, before, Standing.LIVE)  # noqa: E731
        refused(lambda: work._store.transact_moving(op(), back), "move_over")
        other = replace(here, move_id=b"o" * 16)
        again = lambda tx: work._step(tx, other, Standing.RETIRED)  # noqa: E731
        refused(lambda: work._store.transact_moving(op(), again), "move_over")
    assert not live(source)
    assert live(target)


@pytest.mark.parametrize("kind", ["file", "server"])
def test_only_what_is_being_filled_is_taken_away(small: Path, place: Place, kind: str) -> None:
    target, path = place(kind), place("file")
    migrate(small, target)
    with _at_work(small, target, 5.0, SystemEntropy()) as work:
        _, here = work._look()
        assert not work._target.discard(Mover(move_id=here.move_id, token=filled_by(target)))
    assert live(target)
    pipeline(path, "r1")
    interrupted(path, other := place(kind), "migrate.chunk")
    with _at_work(path, other, 5.0, SystemEntropy()) as work:
        _, here = work._look()
        token = filled_by(other)
        assert not work._target.discard(Mover(move_id=b"o" * 16, token=token))
        assert not work._target.discard(Mover(move_id=here.move_id, token=b"o" * 16))
        refused(lambda: open_store(other, create=False), "arriving")
        assert work._target.discard(Mover(move_id=here.move_id, token=token))
    refused(lambda: open_store(other, create=False), "no_store")


def filled_by(named: Any) -> bytes:
    store = open_store(named, create=False, moving=True)
    try:
        return bytes(store.reader().meta()[MOVER])  # type: ignore[attr-defined]
    finally:
        store.close()
