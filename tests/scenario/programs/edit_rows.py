"""Changes rows of a ledger behind its back, in its own process: `edit_rows.py LEDGER STATEMENTS` prints how many."""

from __future__ import annotations

import sys

import apsw

connection = apsw.Connection(sys.argv[1])
# The triggers are lifted for the statements and put back as they were.
with connection:
    guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
    lifted = guards.fetchall()
    for name, _ in lifted:
        connection.execute(f"DROP TRIGGER {name}")
    before = connection.total_changes()
    connection.execute(sys.argv[2]).fetchall()
    changed = connection.total_changes() - before
    for _, text in lifted:
        connection.execute(text)
connection.close()
print(changed)
