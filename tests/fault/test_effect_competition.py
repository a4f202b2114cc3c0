"""Processes that compete for the same actions: each action is claimed exactly once, and nobody meets a locked file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import ActionState, Actor, Intent, Role, TargetClass, VerifiedApproval, statement_sha256
from agent_run_ledger.store import open_sqlite
from tests.contract.effect_kit import check_kept

pytestmark = pytest.mark.fault

ANN, BOB = Actor("ann", frozenset({Role.REQUESTER})), Actor("bob", frozenset({Role.APPROVER}))
WORKER = Path(__file__).with_name("effect_workers.py")


def _approved(path: Path, number: int) -> list[bytes]:
    """Make a ledger with that many actions that anybody may claim."""
    open_sqlite(path, create=True, authority=True).close()
    now_ms, made = time.time_ns() // 1_000_000, []
    with EffectLedger(path) as ledger:
        for key in range(number):
            intent = Intent(
                request=b"{}",
                executor="exe",
                audience="pay",
                target_class=TargetClass.N,
                not_before_ms=now_ms - 60_000,
                dispatch_before_ms=now_ms + 3_600_000,
                policy_sha256=bytes(32),
                display_sha256=bytes(32),
            )
            view = ledger.propose(ANN, f"k{key}", intent)
            statement = ledger.statement(view.action_id, approver="bob", nonce=b"the only nonce  ")
            approval = VerifiedApproval(
                approval_id=view.action_id,
                statement=statement,
                signed_sha256=statement_sha256(statement),
                principal="bob",
            )
            made.append(ledger.approve(BOB, view.action_id, approval).action_id)
    return made


def _compete(path: Path, ids: list[bytes], processes: int, *, whole: bool) -> list[dict[str, Any]]:
    """Let the processes begin together; what each says of itself."""
    listed = path.with_suffix(".txt")
    listed.write_text("\n".join(action_id.hex() for action_id in ids), encoding="ascii")
    command = [sys.executable, str(WORKER), str(path), str(listed)]
    started = [
        subprocess.Popen(
            [*command, str(name), "whole" if whole else ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in range(processes)
    ]
    try:
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in started:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        return [json.loads(one.communicate()[0]) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_ten_processes_claim_each_of_a_thousand_actions_exactly_once(tmp_path: Path) -> None:
    number = 1_000
    path = tmp_path / "effects.db"
    ids = _approved(path, number)
    said = _compete(path, ids, 10, whole=False)
    assert [one["errors"] for one in said] == [[]] * 10
    granted = [action_id for one in said for action_id in one["granted"]]
    assert sorted(granted) == sorted(action_id.hex() for action_id in ids)
    assert sum(one["refused"] for one in said) == 9 * number
    assert check_kept(path) == 3 * number
    with EffectLedger(path) as ledger:
        assert ledger.status().counts == {ActionState.CLAIMED: number}
        workers = {view.action_id.hex(): view.worker for view in ledger.inbox(limit=number)}
    assert workers == {action_id: str(name) for name, one in enumerate(said) for action_id in one["granted"]}


def test_eight_processes_bring_each_action_to_its_hand_out_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "effects.db"
    ids = _approved(path, 100)
    said = _compete(path, ids, 8, whole=True)
    assert [one["errors"] for one in said] == [[]] * 8
    granted = [action_id for one in said for action_id in one["granted"]]
    assert sorted(granted) == sorted(action_id.hex() for action_id in ids)
    with EffectLedger(path) as ledger:
        assert all(view.handed_out for view in ledger.inbox(limit=100))
    assert check_kept(path) == 5 * 100
