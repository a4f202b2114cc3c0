"""The example as a real process: killed in every interesting place, started again, and every body counted."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from agent_run_ledger.testing import check_ledger
from tests.adapters.offline import OFFLINE

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "openai_agents" / "clerk.py"
ADA, GRACE = '{"to": "Ada", "amount": 40}', '{"to": "Grace", "amount": 75}'
ALLOW = ("--decide", "pay-Grace=allowed")
LETTERS = "Dear friend: Ada got 40.\nDear friend: Grace got 75.\n"

pytestmark = pytest.mark.fault


class Clerk:
    def __init__(self, place: Path) -> None:
        self.place = place

    def start(self, *words: str, dies: str = "") -> tuple[int, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "CLERK_", "AGENT_RUN_LEDGER_"))}
        done = subprocess.run(
            [*OFFLINE, str(EXAMPLE), *words],
            cwd=self.place,
            env={**kept, "CLERK_DIES": dies},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (0, 4, -9), done.stderr
        check_ledger(self.place / "agent_run_ledger.db")
        return done.returncode, done.stdout

    def ran(self) -> Counter[str]:
        """What really ran since this was asked last."""
        log = self.place / "calls.log"
        found = Counter(log.read_text().split()) if log.exists() else Counter()
        log.unlink(missing_ok=True)
        return found

    def paid(self) -> list[str]:
        path = self.place / "payments.jsonl"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def clerk(tmp_path: Path) -> Clerk:
    return Clerk(tmp_path)


def test_the_three_commands(clerk: Clerk) -> None:
    code, said = clerk.start()
    assert (code, said) == (4, "the agent waits for approval of pay (pay-Grace)\n")
    assert clerk.ran() == Counter(model=2, list_invoices=1, pay=1, paid=1)
    assert clerk.start()[0] == 4
    assert clerk.ran() == Counter()
    assert clerk.start(*ALLOW) == (0, LETTERS)
    assert clerk.ran() == Counter(model=4, pay=1, paid=1)
    assert clerk.start() == (0, LETTERS)
    assert clerk.ran() == Counter()
    assert clerk.paid() == [ADA, GRACE]


def test_from_the_state_the_gate_is_asked_again(clerk: Clerk) -> None:
    clerk.start()
    clerk.ran()
    assert clerk.start("--from-state")[0] == 4
    assert (clerk.ran(), clerk.paid()) == (Counter(), [ADA])
    assert clerk.start("--from-state", *ALLOW) == (0, LETTERS)
    assert clerk.paid() == [ADA, GRACE]
    assert clerk.start() == (0, LETTERS)
    assert clerk.paid() == [ADA, GRACE]


@pytest.mark.parametrize(
    ("dies", "then"),
    [
        ("model", Counter(model=6, list_invoices=1, pay=2, paid=2)),
        ("list_invoices", Counter(model=5, list_invoices=1, pay=2, paid=2)),
        ("pay", Counter(model=6, list_payments=1, pay=2, paid=2)),
        ("paid", Counter(model=5, list_payments=1, pay=1, paid=1)),
    ],
)
def test_killed_it_goes_on_and_pays_once(dies: str, then: Counter[str], clerk: Clerk) -> None:
    assert clerk.start(dies=dies)[0] == -9
    clerk.ran()
    assert clerk.start(*ALLOW) == (0, LETTERS)
    assert clerk.ran() == then
    assert sorted(clerk.paid()) == [ADA, GRACE]
    assert clerk.start() == (0, LETTERS)
    assert clerk.ran() == Counter()
