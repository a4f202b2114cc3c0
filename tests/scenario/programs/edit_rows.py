"""Changes rows of a ledger behind its back, in its own process: `edit_rows.py LEDGER STATEMENTS` prints how many."""

from __future__ import annotations

import sys

import apsw

connection = apsw.Connection(sys.argv[1])
# The triggers that the statements do not speak of are lifted for them and put back as they were.
with connection:
    guards = connection.execute(
        "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' AND instr(?, name) = 0", (sys.argv[2],)
    )
    lifted = guards.fetchall()
    for name, _, _ in lifted:
        connection.execute(f"DROP TRIGGER {name}")
    before = connection.total_changes()
    connection.execute(sys.argv[2]).fetchall()
    changed = connection.total_changes() - before
    left = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for _, table, text in lifted:
        if table in left:
            connection.execute(text)
connection.close()
print(changed)
