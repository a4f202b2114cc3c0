"""A script that does the least that a restart can do: open a bare file and read back every row."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import apsw


def main() -> None:
    """Print when all rows were read and decoded as JSON: PATH SQL."""
    started_ns = time.monotonic_ns()
    connection: Any = apsw.Connection(sys.argv[1])  # its own annotations are not complete
    rows = connection.execute(sys.argv[2]).fetchall()
    values = [json.loads(row[1]) for row in rows]
    now_ns = time.monotonic_ns()
    print(json.dumps({"step": len(values), "entered_ns": now_ns, "execute_s": (now_ns - started_ns) / 1e9}))


if __name__ == "__main__":
    main()
