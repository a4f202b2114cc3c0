"""DBOS as a contender: a workflow of steps, with its system database in a SQLite file or at a PostgreSQL server."""

from __future__ import annotations

import sys
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from protocol import RUN_ID, Life, Result


def main(life: Life) -> None:
    """Run the workflow, or launch DBOS, which recovers the workflow that was interrupted.

    `--option` is the URL of a PostgreSQL database that nobody has used; without it there is a SQLite file.
    """
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": life.option or f"sqlite:///{life.path('dbos.sqlite')}",
        "log_level": "CRITICAL",
        "application_version": "1",
    }
    instance = DBOS(config=config)

    @DBOS.step()
    def step(i: int) -> Result:
        return life.body(i)

    @DBOS.workflow()
    def chain(steps: int) -> Result | None:
        last = None
        for i in range(steps):
            last = step(i)
        return last

    if life.resume:
        life.start()  # the recovery begins inside launch()
        DBOS.launch()
        life.end(DBOS.retrieve_workflow(RUN_ID).get_result())
    DBOS.launch()
    life.uses(**(_server_settings(instance) if life.option else _settings(instance)))
    life.start()
    with SetWorkflowID(RUN_ID):
        life.end(chain(life.steps))


def _settings(instance: DBOS) -> dict[str, Any]:
    """Ask a connection of DBOS's own pool. It has no public way, so that a later version may not answer."""
    try:
        with instance._sys_db.engine.connect() as connection:
            ask = connection.exec_driver_sql
            return {
                "journal_mode": ask("PRAGMA journal_mode").scalar(),
                "synchronous": ask("PRAGMA synchronous").scalar(),
                "sqlite": ask("SELECT sqlite_version()").scalar(),
            }
    except AttributeError:
        return {}


def _server_settings(instance: DBOS) -> dict[str, Any]:
    """Ask the same of a server."""
    try:
        with instance._sys_db.engine.connect() as connection:
            names = ("synchronous_commit", "fsync", "default_transaction_isolation", "server_version")
            return {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names}
    except AttributeError:
        return {}


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
