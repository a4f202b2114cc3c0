"""The first seed as a story: its program runs unchanged, dies while the report is written, and goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_run_ledger.testing import check_ledger, recorded_calls

PROGRAMS = Path(__file__).resolve().parent / "programs"
FETCH, WRITE = "get /companies/acme-corp/financials", "invoke"
STORED_POLICY = {"max_repetitions": 3, "threshold": 0.92, "rule": "outcome"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the program and what it calls."""
    for name in ("seed_program.py", "seed_stand_ins.py"):
        shutil.copy(PROGRAMS / name, tmp_path)
    return tmp_path


def _run(folder: Path, *, dies: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "seed_program.py"],
        cwd=folder,
        env={**os.environ, "SEED_DIES_WHILE_WRITING": "1" if dies else "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def _asked(folder: Path) -> list[str]:
    lines = (folder / "calls.log").read_text(encoding="utf-8").splitlines()
    return [FETCH if line == FETCH else line.split()[0] for line in lines]


def test_it_runs_and_a_second_start_returns_the_recorded_result(folder: Path) -> None:
    first = _run(folder)
    assert first.stdout.startswith("Execution Result: A report of"), first.stderr
    assert _asked(folder) == [FETCH, WRITE]
    again = _run(folder)
    assert (again.stdout, again.returncode) == (first.stdout, 0)
    assert _asked(folder) == [FETCH, WRITE], "a completed run asked somebody again"
    assert check_ledger(folder / "runs.db").results == 2


def test_killed_while_the_report_is_written_it_does_not_fetch_again(folder: Path) -> None:
    untouched = folder / "untouched"
    shutil.copytree(PROGRAMS, untouched)
    expected = _run(untouched)

    killed = _run(folder, dies=True)
    assert killed.returncode == -9
    assert killed.stdout == ""
    assert _asked(folder) == [FETCH, WRITE]

    resumed = _run(folder)
    assert (resumed.stdout, resumed.returncode) == (expected.stdout, 0), resumed.stderr
    assert _asked(folder) == [FETCH, WRITE, WRITE], "the figures were fetched twice"

    report = check_ledger(folder / "runs.db")
    assert (report.runs, report.results, report.abandoned, report.in_flight) == (1, 2, 1, 0)
    told = [(call.name, call.attempt, call.kind.name) for call in recorded_calls(folder / "runs.db")]
    assert told == [
        ("fetch_quarterly_data", 1, "RESULT"),
        ("synthesize_report", 1, "ABANDONED"),
        ("synthesize_report", 2, "RESULT"),
    ]


def test_the_policy_is_stored_with_the_run(folder: Path) -> None:
    from agent_run_ledger import codecs
    from agent_run_ledger.store import open_sqlite

    _run(folder)
    store = open_sqlite(str(folder / "runs.db"), create=False)
    try:
        row = store.reader().find_run("financial-audit-pipeline-2026")
        assert row is not None
        assert row.start_record_id is not None
        start = store.reader().record(row.start_record_id).record
        content = codecs.unpack(start.encoding, start.payload)
        assert isinstance(content, dict)
        assert content["policy"] == STORED_POLICY
    finally:
        store.close()
