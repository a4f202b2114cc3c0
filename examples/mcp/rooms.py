"""An MCP server that books rooms: every booking is a line in a file, and one that is made twice stands there twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mcp.server.mcpserver import MCPServer

BOOKINGS = Path("bookings.txt")
CALLS = Path("calls.log")
ROOMS = ("blue", "green", "red")

server = MCPServer("rooms")


def note(call: str) -> None:
    """Note that a tool really ran. ROOMS_DIES="book_room green" kills the proxy there, as `kill -9` would."""
    with CALLS.open("a", encoding="utf-8") as log:
        log.write(call + "\n")
    if os.environ.get("ROOMS_DIES") == call:
        os.kill(os.getppid(), signal.SIGKILL)


def booked() -> list[str]:
    """Return the bookings."""
    return BOOKINGS.read_text(encoding="utf-8").splitlines() if BOOKINGS.exists() else []


@server.tool()
def free_rooms(day: str) -> str:
    """Tell which rooms are free on a day."""
    note("free_rooms")
    return ", ".join(room for room in ROOMS if f"{room} {day}" not in booked())


@server.tool()
def book_room(room: str, day: str) -> str:
    """Book a room."""
    with BOOKINGS.open("a", encoding="utf-8") as file:
        file.write(f"{room} {day}\n")
    note(f"book_room {room}")
    return f"booked as number {len(booked())}"


@server.tool()
def bookings() -> str:
    """Tell what is booked."""
    note("bookings")
    return "; ".join(booked()) or "nothing"


if __name__ == "__main__":
    server.run("stdio")
