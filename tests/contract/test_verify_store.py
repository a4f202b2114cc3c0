"""The auditor's check on a real store: what its rows say beside what its records say."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.store import open_sqlite
from tests.contract.run_kit import in_a_file

EDIT = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


@in_a_file
def test_a_run_that_was_renamed_in_its_row_is_a_problem(db: pathlib.Path) -> None:
    ledger = RunLedger(run_id="r1", db_path=db)
    ledger.add(Step(lambda: 1, name="one"))
    ledger.execute()
    ledger.close()
    store = open_sqlite(db, create=False)
    assert verify_log(store.reader()).ok
    store.close()
    subprocess.run([sys.executable, "-c", EDIT, str(db), "UPDATE runs SET run_id = 'r2'"], check=True)
    store = open_sqlite(db, create=False)
    report = verify_log(store.reader())
    store.close()
    assert [problem.text for problem in report.problems] == ["the row of run 'r2' says run_id 'r2', the log 'r1'"]
