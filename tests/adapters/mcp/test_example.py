"""The example as real processes: run, run again, killed within a booking, and every call counted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_run_ledger.testing import check_ledger
from tests.adapters.offline import OFFLINE

CLIENT = Path(__file__).resolve().parents[3] / "examples" / "mcp" / "client.py"
CALLS = ["free_rooms", "book_room blue", "book_room green", "bookings"]


def _run(place: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENT_RUN_LEDGER_", "ROOMS_", "BOOKING_"))}
    return subprocess.run(
        [*OFFLINE, str(CLIENT)],
        cwd=place,
        env={**kept, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _lines(place: Path, name: str) -> list[str]:
    path = place / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_a_second_start_books_nothing_and_asks_nothing(tmp_path: Path) -> None:
    first, second = _run(tmp_path), _run(tmp_path)
    assert first.returncode == 0, first.stderr
    assert second.stdout == first.stdout
    assert _lines(tmp_path, "calls.log") == CALLS
    assert first.stdout.splitlines()[-1] == "bookings : blue monday; green monday"


@pytest.mark.parametrize(
    ("dies", "ran"),
    [
        ("free_rooms", ["free_rooms", *CALLS]),
        ("book_room green", CALLS),
        ("bookings", [*CALLS, "bookings"]),
    ],
)
def test_killed_and_started_again_it_books_each_room_once(tmp_path: Path, dies: str, ran: list[str]) -> None:
    killed = _run(tmp_path, ROOMS_DIES=dies)
    assert killed.returncode != 0
    again = _run(tmp_path)
    assert again.returncode == 0, again.stderr
    assert _lines(tmp_path, "bookings.txt") == ["blue monday", "green monday"]
    assert _lines(tmp_path, "calls.log") == ran
    assert ("outcome of this call of book_room is unknown" in again.stdout) == (dies == "book_room green")
    assert again.stdout.splitlines()[-1] == "bookings : blue monday; green monday"
    check_ledger(tmp_path / "agent_run_ledger.db")
