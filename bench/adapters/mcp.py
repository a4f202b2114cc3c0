"""Measures what the MCP proxy adds to a call of a tool, beside the same server without it, call by call in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    text = str(asked["params"]["arguments"])
    result = {"content": [{"type": "text", "text": text}], "isError": False}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + chr(10))
    sys.stdout.flush()
"""


class Client:
    """One process at whose pipes tools are called, one call at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number = 0

    def call(self, **more: Any) -> float:
        """Call the tool and return the milliseconds until its answer."""
        self._number += 1
        params = {"name": "echo", "arguments": {"number": self._number}, **more}
        line = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("no pipes")
        before = time.perf_counter()
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        after = time.perf_counter()
        if json.loads(answer)["result"]["isError"] is not False:
            raise RuntimeError(answer.decode())
        return (after - before) * 1000

    def end(self) -> None:
        """Let the process end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)


def measure(folder: Path, calls: int) -> dict[str, object]:
    """Return medians in milliseconds: of the server alone, and of what the proxy adds to live and restored calls."""
    server = [sys.executable, "-u", "-c", SERVER]
    proxy = [sys.executable, "-m", "agent_run_ledger", "proxy", "mcp", "--db", str(folder / "runs.db"), "--run", "r"]
    alone = Client(server)
    floor, live, named, restored = [], [], [], []
    through = Client([*proxy, "--", *server])
    for _ in range(calls):
        floor.append(alone.call())
        live.append(through.call())
        named.append(through.call(_meta={"agent-run-ledger/call-id": os.urandom(8).hex()}))
    through.end()
    again = Client([*proxy, "--", *server])
    for _ in range(calls):
        restored.append(again.call())
    again.end()
    alone.end()
    below = statistics.median(floor)
    return {
        "name": "mcp",
        "overhead_ms_median": round(statistics.median(live) - below, 3),
        "overhead_with_call_id_ms_median": round(statistics.median(named) - below, 3),
        "overhead_restored_ms_median": round(statistics.median(restored) - below, 3),
        "floor_ms_median": round(below, 3),
        "calls": calls,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="where the store lies [default: a temporary folder]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        sys.stdout.write(json.dumps(measure(Path(folder), given.calls)) + "\n")


if __name__ == "__main__":
    main()
