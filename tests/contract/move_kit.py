"""Ledgers that have something of everything, and what their tables hold, read past the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

from agent_run_ledger import Budget, RunLedger
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.store_urls import is_url
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.steps import Step
from agent_run_ledger.store import open_store
from tests.contract.agent_kit import Crash
from tests.contract.effect_stories import Stories
from tests.services.postgres import Cluster

KEYS = {
    "events": "leaf_index", "tiles": "tile_id", "runs": "row_id", "records": "record_id", "in_flight": "place",
    "budgets": "budget_id", "actions": "action_row_id", "approvals": "approval_row_id", "requests": "action_row_id",
    "answers": "answer_row_id", "action_records": "record_id", "effect_time": "id", "clock_corrections": "record_id",
    "trust_changes": "record_id",
}  # fmt: skip
"""Every table that moves, and what it is ordered by."""

ACT = Act(event="erase", reason="asked to", actor="ann")


def pipeline(named: Any, run_id: str, steps: int = 3, queue: str | None = None) -> None:
    """A run of some steps, through to its end."""
    with _ledger(named, run_id) as ledger:
        for number in range(steps):
            ledger.add(Step(lambda: b"v" * 50, name=f"step{number}"))
        ledger.execute()


def make_ledger(path: Path) -> None:
    """Pipelines, an agent that died in a tool, a budget, a fork, an erased run, a queue, actions in every state."""
    stories = Stories(path)
    stories.all_of_them()
    stories.ledger.close()
    for number in range(90):  # beyond the first tile
        pipeline(path, f"r{number}")
    with RunLedger("r1", path) as ledger:
        assert ledger.fork("r1", from_step="step1", new_run_id="fork").run_id == "fork"
    with RunLedger("r2", path) as ledger:
        erase_run(ledger._opened.context(), "r2", Selection(), ACT)
    try:
        with RunLedger("agent", path, budget=Budget(max_calls=9)) as ledger:

            @ledger.tool(safe=False)
            def pay(n: int) -> int:
                raise Crash

            with ledger.run():
                pay(3)
    except Crash:
        pass
    with RunLedger("queued", path) as ledger:

        @ledger.entry
        def job(n: int) -> int:
            return n

        job.submit("queued", n=3)


def tables_of(named: Any, postgres: Cluster) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables that move, with the columns by their names' order."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    if is_url(named):
        database = named.rsplit("/", 1)[1]
        for table, key in KEYS.items():
            names = _columns(table)
            found[table] = postgres.run(f"SELECT {names} FROM agent_run_ledger.{table} ORDER BY {key}", database)
        return found
    connection = apsw.Connection(str(named), flags=apsw.SQLITE_OPEN_READONLY)
    for table, key in KEYS.items():
        rows = connection.execute(f"SELECT {_columns(table)} FROM {table} ORDER BY {key}")
        found[table] = [tuple(row) for row in rows]
    connection.close()
    return found


def live(named: Any) -> bool:
    """Whether a store can be opened for writing and takes a transaction."""
    try:
        pipeline(named, "live?", 1)
    except Refused as error:
        if error.code not in ("moving", "retired", "arriving"):
            raise
        return False
    return True


def store_changes(named: Any) -> list[list[tuple[str, str, str]]]:
    """What the leaves of the log say of the store, one list for each leaf, without those that say nothing of it."""
    store = open_store(named, create=False, readonly=True)
    told = [
        json.loads(event.envelope)["changes"]
        for event in store.reader().events(first=0, stop=store.reader().head().size)
    ]
    store.close()
    leaves = [[(one["type"], one["old"], one["new"]) for one in each if one["type"] == "store"] for each in told]
    return [each for each in leaves if each]


def results(named: Any, run_id: str) -> list[str]:
    """The names of a run's results."""
    from tests.contract.run_kit import records_of

    with _ledger(named, run_id) as ledger:
        return [record.name for record in records_of(ledger, RecordKind.RESULT, run_id=run_id)]


def _ledger(named: Any, run_id: str) -> RunLedger:
    return RunLedger(run_id, url=named) if is_url(named) else RunLedger(run_id, named)


def _columns(table: str) -> str:
    from agent_run_ledger.store.statements import sql_text

    file = apsw.Connection(":memory:")
    file.execute(sql_text("sqlite_schema.sql"))
    return ", ".join(f'"{row[0]}"' for row in file.execute(f"SELECT name FROM pragma_table_info('{table}')"))
