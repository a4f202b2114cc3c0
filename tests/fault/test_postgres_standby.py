"""What becomes of a commit that waits for a standby which never answers: it is not told as done."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from agent_run_ledger.errors import LedgerError, Uncertain
from agent_run_ledger.store.postgres_store import PostgresStore
from tests.contract.run_kit import until
from tests.contract.store_kit import begin, begin_in, op, postgres_backend
from tests.services.postgres import Cluster, running

pytestmark = pytest.mark.fault


class TestStandby:
    """A standby that never answers: every commit waits for it."""

    @pytest.fixture
    def waiting(self) -> Iterator[tuple[Cluster, PostgresStore]]:
        with running() as cluster, postgres_backend(cluster) as backend:
            store: PostgresStore = backend.open(wait_s=1.0)  # type: ignore[assignment]
            begin(store)
            cluster.run("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
            cluster.run("SELECT pg_reload_conf()")
            until(lambda: cluster.run("SHOW synchronous_standby_names") == [("ghost",)])
            yield cluster, store
            cluster.run("ALTER SYSTEM RESET synchronous_standby_names")
            cluster.run("SELECT pg_reload_conf()")

    def test_a_commit_that_returns_with_a_warning_is_uncertain(self, waiting: tuple[Cluster, PostgresStore]) -> None:
        """Somebody cancels the wait: the driver's commit returns as if nothing were wrong."""
        cluster, store = waiting
        operation = op()
        found = self._uncertain(cluster, store, operation, "pg_cancel_backend")
        assert found.code == "commit_unconfirmed"
        assert operation.hex() in found.message
        assert store.reader().find_run("other") is not None, "it is committed here"

    def test_one_that_was_cut_short_while_it_waited_is_not_found_to_be_safe(
        self, waiting: tuple[Cluster, PostgresStore]
    ) -> None:
        """Who looks finds it, and then waits for the standby as it did."""
        cluster, store = waiting
        assert self._uncertain(cluster, store, op(), "pg_terminate_backend").code == "commit_unknown"

    def test_one_for_which_nobody_does_anything_is_uncertain_in_the_end(
        self, waiting: tuple[Cluster, PostgresStore]
    ) -> None:
        _, store = waiting
        with pytest.raises(Uncertain) as caught:
            store.transact(op(), lambda tx: begin_in(tx, "other"))
        assert caught.value.code == "commit_unknown"

    def _uncertain(self, cluster: Cluster, store: PostgresStore, operation: bytes, end: str) -> LedgerError:
        found: list[LedgerError] = []

        def commit() -> None:
            try:
                store.transact(operation, lambda tx: begin_in(tx, "other"))
            except Uncertain as error:
                found.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: bool(cluster.run(waits)))
        cluster.run(f"SELECT {end}(pid) FROM ({waits}) AS one")
        thread.join()
        return found[0]

    def test_what_need_not_be_synced_does_not_wait(self, waiting: tuple[Cluster, PostgresStore]) -> None:
        _, store = waiting
        store.transact(op(), lambda tx: begin_in(tx, "other"), sync=False)
        assert store.reader().find_run("other") is not None
