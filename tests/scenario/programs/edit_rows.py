"""Changes rows of a ledger behind its back: `edit_rows.py LEDGER STATEMENT`, always in a process of its own."""

from __future__ import annotations

import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1])
changed = connection.execute(sys.argv[2]).rowcount
connection.commit()
connection.close()
sys.exit(0 if changed > 0 else 3)
