"""A place of its own for each test, whose ledger must fit together when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.store import is_url
from agent_run_ledger.testing import check_ledger
from tests.adapters.mcp.sessions import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    if is_url(made.db) or made.db.exists():
        check_ledger(made.db)
