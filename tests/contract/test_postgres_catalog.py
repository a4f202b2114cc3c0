"""What somebody changed of the tables at a server is seen at the next opening, also where every name is the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_run_ledger.errors import LedgerError, Tampered
from agent_run_ledger.store.postgres import connect
from agent_run_ledger.store.postgres_driver import Connection
from agent_run_ledger.store.postgres_schema import recognise
from tests.contract.store_kit import postgres_backend
from tests.services.postgres import Cluster

OTHER = "CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"

CHANGES = {
    "rule events.r": "CREATE RULE r AS ON DELETE TO events DO INSTEAD NOTHING",
    "table tiles": "ALTER TABLE tiles SET UNLOGGED",
    "table events": "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
    "heir public.more": "CREATE TABLE public.more () INHERITS (events)",
    "trigger events.events_no_update": f"""
        {OTHER.format(name="nop")};
        DROP TRIGGER events_no_update ON events;
        CREATE TRIGGER events_no_update BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION public.nop()""",
    "trigger events.events_no_delete": f"""
        {OTHER.format(name="refuse")};
        DROP TRIGGER events_no_delete ON events;
        CREATE TRIGGER events_no_delete BEFORE DELETE ON events FOR EACH ROW
            EXECUTE FUNCTION public.refuse('events are history')""",
    "trigger actions.actions_arrows": """
        DROP TRIGGER actions_arrows ON actions;
        CREATE TRIGGER actions_arrows BEFORE UPDATE ON actions
            FOR EACH ROW WHEN (false) EXECUTE FUNCTION refuse('no arrow leads there')""",
    "trigger actions.actions_no_delete": """
        DROP TRIGGER actions_no_delete ON actions;
        CREATE TRIGGER actions_no_delete BEFORE DELETE ON actions
            FOR EACH ROW WHEN (OLD.epoch > 9) EXECUTE FUNCTION refuse('actions are history')""",
    "trigger budgets.budgets_run_row_id_fkey": "ALTER TABLE budgets DISABLE TRIGGER ALL",
    "constraint head.head_size_check": """
        ALTER TABLE head DROP CONSTRAINT head_size_check, ADD CONSTRAINT head_size_check CHECK (true)""",
    "constraint budgets.budgets_run_row_id_fkey": """
        ALTER TABLE budgets DROP CONSTRAINT budgets_run_row_id_fkey,
            ADD CONSTRAINT budgets_run_row_id_fkey FOREIGN KEY (run_row_id) REFERENCES runs ON DELETE CASCADE""",
    "index records_result": """
        DROP INDEX records_result; CREATE UNIQUE INDEX records_result ON records (record_id)""",
    "index records_usage": """
        DROP INDEX records_usage;
        CREATE INDEX records_usage ON records (run_row_id, record_id) WHERE usage IS NULL""",
    "column runs.holder": 'ALTER TABLE runs ALTER holder TYPE TEXT COLLATE "POSIX"',
    "column in_flight.repeatable": "ALTER TABLE in_flight ALTER repeatable SET DEFAULT 0",
    "column runs.row_id": "ALTER TABLE runs ALTER row_id DROP IDENTITY",
    "function refuse": "ALTER FUNCTION refuse() SET search_path = public",
    "function check_open": "CREATE ROLE another; ALTER FUNCTION check_open() OWNER TO another",
    "table meta": "CREATE ROLE another; ALTER TABLE meta OWNER TO another",
}
"""By what of the store each of them changes."""


@pytest.fixture(scope="module")
def connection(postgres: Cluster) -> Iterator[Connection]:
    """A connection to a new store."""
    with postgres_backend(postgres) as backend:
        opened = connect(backend.open()._shared.place)  # type: ignore[arg-type]
        yield opened
        opened.close()


def changed(connection: Connection, statements: str) -> LedgerError:
    """What is said of a store after a change, which is undone."""
    recognise(connection, "here")

    def open_changed() -> None:
        with connection.transaction():
            connection.execute(statements)
            recognise(connection, "here")

    with pytest.raises(Tampered) as caught:
        open_changed()
    assert caught.value.code == "schema_changed"
    return caught.value


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_under_its_old_name_is_seen(connection: Connection, what: str) -> None:
    assert f"here: {what} " in changed(connection, CHANGES[what]).message


def test_a_schema_that_another_user_owns_than_its_tables_is_seen(connection: Connection) -> None:
    changed(connection, "CREATE ROLE another; ALTER SCHEMA agent_run_ledger OWNER TO another")
