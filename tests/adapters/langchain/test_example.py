"""The example as a real process: it waits for its approval, is killed in each place, and orders once."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from agent_run_ledger.testing import check_ledger
from tests.adapters.offline import OFFLINE

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "langchain" / "agent.py"
ANSWER = "There was no ink, so 3 were ordered. There is enough paper."

pytestmark = pytest.mark.fault


def _run(place: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENT_", "LANGSMITH_", "LANGCHAIN_"))}
    done = subprocess.run(
        [*OFFLINE, str(EXAMPLE)],
        cwd=place,
        env={**kept, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    check_ledger(place / "agent_run_ledger.db")
    return done


def _ran(place: Path) -> Counter[str]:
    return Counter(line.split(" ", 1)[1] for line in (place / "calls.log").read_text().splitlines())


def _answered(done: subprocess.CompletedProcess[str], asked: int) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(ANSWER)
    assert f"[the model was asked {asked} times in this process" in done.stdout


def test_it_waits_goes_on_and_gives_its_answer_again(tmp_path: Path) -> None:
    for _ in range(2):
        waiting = _run(tmp_path)
        assert (waiting.returncode, waiting.stdout.startswith("waiting: ")) == (4, True), waiting.stderr
        assert _ran(tmp_path) == Counter(model=2, count=2)
    (tmp_path / "approved.txt").write_text("order-ink\n")
    _answered(_run(tmp_path), asked=1)
    ran = _ran(tmp_path)
    assert ran == Counter({"model": 3, "count": 2, "order": 1, "order done": 1})
    _answered(_run(tmp_path), asked=0)
    assert _ran(tmp_path) == ran
    assert (tmp_path / "orders.txt").read_text() == "3 ink\n"


@pytest.mark.parametrize(
    ("dies", "asked", "again"),
    [
        ("model", 3, Counter({"model": 3, "count": 2, "order": 1, "order done": 1})),
        ("count", 2, None),
        ("order", 3, Counter({"model": 3, "list_orders": 1, "order": 1, "order done": 1})),
        ("order done", 2, Counter({"model": 2, "list_orders": 1})),
    ],
)
def test_killed_anywhere_it_orders_once(tmp_path: Path, dies: str, asked: int, again: Counter[str] | None) -> None:
    (tmp_path / "approved.txt").write_text("order-ink order-again\n")
    assert _run(tmp_path, AGENT_DIES=dies).returncode == -9
    first = _ran(tmp_path)
    _answered(_run(tmp_path), asked=asked)
    assert (tmp_path / "orders.txt").read_text() == "3 ink\n"
    second = _ran(tmp_path) - first
    if again is None:  # two were counted at once: one of them may have been recorded before the other one died
        assert second["count"] in (1, 2)
        assert second["order"] == 1
    else:
        assert second == again
