"""A real PgBouncer between a program and its server is refused in every mode, and nothing is made behind it."""

from __future__ import annotations

import pytest

from agent_run_ledger.errors import Refused
from agent_run_ledger.store.postgres_store import open_postgres
from tests.services.pgbouncer import bouncing
from tests.services.postgres import Cluster

_DROPPED = {"ignoring": "options,extra_float_digits"}
_LIKE_OURS = {**_DROPPED, "first": "SET search_path = agent_run_ledger, pg_temp; SET synchronous_commit = on"}


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("how", [{}, _DROPPED, _LIKE_OURS])
def test_a_pooler_is_refused_in_each_mode(postgres: Cluster, mode: str, how: dict[str, str]) -> None:
    """As it comes, dropping what a session of ours begins with, and with sessions that look like ours.

    Its sessions are its own also in session mode: they outlive the program, with the locks of its runs.
    """
    database = postgres.new_database()
    with bouncing(postgres.port, mode, **how) as port:
        url = postgres.url(database).replace(f":{postgres.port}/", f":{port}/")
        with pytest.raises(Refused) as caught:
            open_postgres(url, create=True, wait_s=2.0)
    assert caught.value.code == "pooled_connection"
    assert "name the server itself" in caught.value.hint
    assert postgres.run("SELECT 1 FROM pg_namespace WHERE nspname = 'agent_run_ledger'", database) == []
    postgres.drop(database)
