"""`arl demo effect`: what it tells is what the service's own book, the processes and the log say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.testing import check_ledger

ARL = [sys.executable, "-m", "agent_run_ledger"]


def _book(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "refunds.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The story, told once as JSON, and the folder that it is in."""
    folder = tmp_path_factory.mktemp("demo") / "story"
    done = subprocess.run([*ARL, "demo", "effect", "--json", "--output", folder], capture_output=True, check=True)
    return folder, json.loads(done.stdout)


def test_one_refund_is_paid_with_the_ledger_and_two_without(told: tuple[Path, dict[str, Any]]) -> None:
    folder, said = told
    assert [one["order"] for one in _book(folder / "service")] == [17]
    assert [one["order"] for one in _book(folder / "service-without")] == [17, 17]
    assert (said["refunds_with_ledger"], said["refunds_without"]) == (1, 2)


def test_the_agent_waited_was_killed_and_found_out(told: tuple[Path, dict[str, Any]]) -> None:
    _, said = told
    first, second, third = said["lives"]
    assert [one["signal"] for one in said["lives"]] == [0, signal.SIGKILL, 0]
    assert (first["events"][-1]["event"], first["events"][-1]["code"]) == ("waits", "approval_pending")
    assert [one["event"] for one in second["events"]] == []
    assert [one["event"] for one in third["events"]] == ["looked", "thought", "completed"]
    assert (said["model_calls_with_ledger"], said["model_calls_without"]) == (2, 3)
    assert [one["signal"] for one in said["lives_without"]] == [signal.SIGKILL, 0]


def test_what_was_signed_is_what_was_paid_and_the_log_verifies(told: tuple[Path, dict[str, Any]]) -> None:
    folder, said = told
    assert "POST /refunds" in said["shown"]
    assert '"cents": 3000' in said["shown"]
    assert _book(folder / "service")[0]["cents"] == 3_000
    assert (said["status"], said["evidence"]) == ("succeeded", 1)
    check_ledger(folder / "refund.db")


def test_what_it_names_next_works(told: tuple[Path, dict[str, Any]]) -> None:
    folder, said = told
    assert len(said["next"]) == 3
    for command in said["next"]:
        words = command.split()[1:]
        done = subprocess.run([*ARL, *words], capture_output=True, text=True, check=True, cwd=folder)
        assert done.stdout
    shown = subprocess.run(
        [*ARL, "runs", "show", "ticket-17", "--db", folder / "refund.db"], capture_output=True, check=True
    )
    assert b"effect refund:17" in shown.stdout


def test_for_people_it_is_a_story_with_a_table(tmp_path: Path) -> None:
    done = subprocess.run([*ARL, "demo", "effect"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "You sign exactly these bytes" in done.stdout
    assert "refunds in the service's book" in done.stdout
    assert "Not protected here: plain target" in done.stdout
    assert (tmp_path / "arl-demo-effect" / "refund.db").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    done = subprocess.run([*ARL, "demo", "effect", "--output", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
