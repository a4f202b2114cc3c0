"""Fixtures for suites that run against a real store."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import RunLedger
from agent_run_ledger.testing import check_ledger
from tests.contract.engine_kit import new_place
from tests.contract.store_kit import quick_folder


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Return the path, or the URL, of a store that does not exist yet."""
    if request.param == "sqlite":
        yield tmp_path / "runs.db"
        return
    cluster = request.getfixturevalue("postgres")
    name = cluster.new_database()
    yield cluster.url(name)
    cluster.drop(name)


@pytest.fixture
def place(engine: None) -> Iterator[Any]:
    """Return where a store is to be that the engine's kit names; it is checked at the end."""
    with quick_folder() as folder:
        where = new_place(folder, "runs.db")
        yield where
        check_ledger(where)


@pytest.fixture
def new_ledger(db: pathlib.Path) -> Iterator[Callable[..., RunLedger]]:
    """Return a maker of ledgers on one store; all of them are closed at the end."""
    made: list[RunLedger] = []

    def make(run_id: str = "r1", **settings: Any) -> RunLedger:
        ledger = RunLedger(run_id=run_id, db_path=db, **settings)
        made.append(ledger)
        return ledger

    yield make
    for ledger in made:
        ledger.close()
