"""An MCP client with a script instead of a model: it books rooms, and prints what each call came to."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters

HERE = Path(__file__).resolve().parent
RUN = os.environ.get("BOOKING_RUN", "booking-1")

SCRIPT: tuple[tuple[str, dict[str, str]], ...] = (
    ("free_rooms", {"day": "monday"}),
    ("book_room", {"room": "blue", "day": "monday"}),
    ("book_room", {"room": "green", "day": "monday"}),
    ("bookings", {}),
)
"""What a model would decide: which tool, with which arguments."""


def proxy() -> StdioServerParameters:
    """The server's own command stands behind `--`; what stands before it is all that the ledger needs."""
    server = [sys.executable, str(HERE / "rooms.py")]
    options = ["--run", RUN, "--policy", str(HERE / "policy.toml")]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "agent_run_ledger", "proxy", "mcp", *options, "--", *server],
        env=dict(os.environ),
    )


async def main() -> None:
    """Go through the script."""
    async with Client(proxy()) as client:
        for tool, arguments in SCRIPT:
            result = await client.call_tool(tool, arguments)
            text = " ".join(getattr(part, "text", "") for part in result.content)
            print(f"{tool} {' '.join(arguments.values())}: {text}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
