"""The rights that the guide names are enough to work, and not enough to make a retired store live."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from agent_run_ledger.store import open_store
from tests.contract.move_kit import pipeline
from tests.services.postgres import Cluster

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "postgresql.md"


def test_the_rights_of_the_guide_are_enough_to_work(postgres: Cluster) -> None:
    database = postgres.new_database()
    open_store(postgres.url(database), create=True).close()
    granted = re.search(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert granted is not None
    postgres.run("CREATE ROLE app LOGIN PASSWORD 'word'")
    try:
        postgres.run(granted[1], database)
        url = postgres.url(database, user="app", password="word")
        pipeline(url, "r1")
        with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE agent_run_ledger.meta SET value = '0' WHERE key = 'move'")
    finally:
        postgres.drop(database)
        postgres.run("DROP ROLE app")
