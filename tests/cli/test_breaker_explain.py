"""`arl breaker explain`: each call of a tool with its verdict, judged once more from the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger import LoopDetected, RunLedger
from tests.cli.conftest import Arl


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A store whose run "loops" was stopped at its fourth call; "fine" was not judged."""
    path = tmp_path / "ledger.db"
    with RunLedger("loops", path) as ledger:
        read = ledger.tool(name="read", safe=True)(lambda path: "error: too large")
        with pytest.raises(LoopDetected):
            _loop(ledger, read)
    with RunLedger("fine", path, policy=None) as ledger:
        look = ledger.tool(name="look", safe=True)(lambda: "seen")
        with ledger.run():
            look()
    return path


def _loop(ledger: RunLedger, read: object) -> None:
    assert callable(read)
    with ledger.run():
        for _ in range(9):
            read("/big")


def test_each_call_has_its_verdict_and_the_last_one_is_explained(arl: Arl, stopped: Path) -> None:
    said = arl("breaker", "explain", "--db", str(stopped), "loops")
    assert said.code == 0
    rows = [line.split() for line in said.out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[3] for row in rows] == ["ok", "warn", "nudge", "quarantine"]
    assert "call 3: the same error repeated" in said.out
    assert "New would have been" in said.out


def test_as_json_it_names_the_records_that_a_verdict_rests_on(arl: Arl, stopped: Path) -> None:
    said = arl("breaker", "explain", "--db", str(stopped), "loops", "--json").json
    assert (said["run_id"], said["state"]) == ("loops", "quarantined")
    calls = said["calls"]
    assert [call["level"] for call in calls] == ["ok", "warn", "nudge", "quarantine"]
    assert all(call["agrees"] for call in calls)
    earlier = {call["record_id"] for call in calls[:-1]}
    assert set(calls[-1]["rests_on"]) <= earlier
    assert (calls[-1]["count"], calls[-1]["limit"], calls[-1]["similarity"]) == (3, 3, 1.0)


def test_of_a_run_without_a_breaker_it_says_so(arl: Arl, stopped: Path) -> None:
    said = arl("breaker", "explain", "--db", str(stopped), "fine")
    assert said.code == 0
    assert "no call of a tool was judged" in said.err


def test_a_run_that_is_not_there_is_refused(arl: Arl, stopped: Path) -> None:
    said = arl("breaker", "explain", "--db", str(stopped), "nowhere")
    assert said.code == 1
    assert "nowhere" in said.err


def test_what_to_do_about_a_stopped_run_can_be_typed(arl: Arl, stopped: Path) -> None:
    shown = arl("runs", "show", "--db", str(stopped), "loops")
    assert "loop: the same error repeated" in shown.out
    assert arl("runs", "release", "--db", str(stopped), "--reason", "looked", "loops").code == 0
