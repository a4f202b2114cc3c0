"""A process that moves a ledger loses its lock and goes on: another one has ended the move, and that stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import probes
from agent_run_ledger.errors import LedgerError, Refused
from agent_run_ledger.ledger.migrate import migrate
from agent_run_ledger.ledger.verify import verify_extends
from agent_run_ledger.store import open_store
from agent_run_ledger.store.postgres_store import open_postgres
from agent_run_ledger.testing import check_ledger, run_scenario
from agent_run_ledger.testing.harness import Exit
from tests.contract.move_kit import live, pipeline, tables_of
from tests.contract.store_kit import begin_in, op
from tests.contract.test_migrate import Place, folder, place
from tests.fault.test_migrate_kills import SCENARIO
from tests.services.postgres import Cluster

__all__ = ["folder", "place"]

pytestmark = pytest.mark.fault


@contextmanager
def at(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Do something, once, where a move of this process reaches a point."""

    def reach(reached: str) -> None:
        if reached == point:
            probes.install(before)
            act()

    before = probes.install(reach)
    try:
        yield
    finally:
        probes.install(before)


def lose_lock(postgres: Cluster, source: str) -> None:
    """End every session that has a lock of that kind in the source's database.

    It is idle for the whole move: a limit of the server, an administrator or a network can end it.
    """
    ended = postgres.run(
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database "
        f"WHERE l.locktype = 'advisory' AND d.datname = '{source.rsplit('/', 1)[1]}'"
    )
    assert ended


def checked(named: Any) -> None:
    """The ledger is in order, and its log as long as it says."""
    check_ledger(named)
    store = open_store(named, create=False, readonly=True)
    head = store.reader().head()
    assert sum(1 for _ in store.reader().events(first=0, stop=1 << 40)) == head.size
    store.close()


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("server", "migrate.chunk"),
        ("server", "migrate.copied"),
        ("server", "migrate.verified"),
        ("file", "migrate.retired"),
    ],
)
def test_a_mover_that_lost_its_lock_takes_nothing_back(
    place: Place, postgres: Cluster, folder: Path, kind: str, point: str
) -> None:
    source, target = place("server"), place(kind)
    pipeline(source, "r1")
    sizes: list[int] = []

    def another_ends_it() -> None:
        lose_lock(postgres, source)
        env = {"MOVE_SOURCE": str(source), "MOVE_TARGET": str(target)}
        other = run_scenario(SCENARIO, folder, env=env)
        assert other.exit is Exit.OK, other.describe()
        pipeline(target, "since")
        sizes.extend(len(tables_of(named, postgres)["events"]) for named in (source, target))

    with at(point, another_ends_it), pytest.raises(Refused) as caught:
        migrate(source, target)
    assert caught.value.code == "move_over"
    assert [len(tables_of(named, postgres)["events"]) for named in (source, target)] == sizes
    checked(source)
    checked(target)
    assert live(target)
    assert not live(source)
    ended = migrate(source, target)
    assert ended.already
    store = open_store(target, create=False, readonly=True)
    assert verify_extends(store.reader(), ended.size, ended.root), "the source's whole log is the beginning of it"
    store.close()


def test_a_leaf_whose_place_is_taken_is_no_operation_that_is_on_record(postgres: Cluster) -> None:
    """Where the head was set back, the next leaf breaks a rule too, and its operation is not in the log."""
    database = postgres.new_database()
    open_postgres(postgres.url(database), create=True).close()
    postgres.run("UPDATE agent_run_ledger.head SET size = 0, frontier = ''", database)
    store = open_postgres(postgres.url(database), create=False)
    with pytest.raises(LedgerError) as caught:
        store.transact(op(), lambda tx: begin_in(tx, "one"))
    store.close()
    assert caught.value.code == "constraint"
    postgres.drop(database)
