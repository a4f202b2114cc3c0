"""Fixtures for suites that run against a real store."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import RunLedger


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
