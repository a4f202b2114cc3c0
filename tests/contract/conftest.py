"""Fixtures for suites that run against a real store."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_run_ledger import RunLedger


@pytest.fixture
def db(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the path of a store that does not exist yet."""
    return tmp_path / "runs.db"


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
