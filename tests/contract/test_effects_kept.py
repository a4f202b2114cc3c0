"""What else a store does leaves its effects alone: copies, erasures, compaction; and a copy of it grants nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger import RunLedger, Step
from agent_run_ledger.errors import NotAdmitted
from agent_run_ledger.kernel.effects import LedgerState, Role
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from agent_run_ledger.testing.integrity import integrity_problems
from tests.contract.effect_stories import ANN, BOB, EXEC, RECON, Stories, edit, intent

LIFTED = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


@pytest.fixture
def stories(tmp_path: Path) -> Iterator[Stories]:
    made = Stories(tmp_path / "origin.db")
    made.all_of_them()
    yield made
    made.ledger.close()


def _everything(path: Path) -> list[object]:
    """All rows of effects, with their records and requests."""
    store = open_sqlite(path, create=False)
    effects = store.reader().effects
    keys = list(effects.keys())
    rows = [row for key in keys for row in effects.members(key)]
    ids = [row.action.action_id for row in rows]
    found = [rows, [effects.transitions(one) for one in ids], [effects.request(one) for one in ids]]
    store.close()
    return list(found)


@pytest.fixture
def copy(stories: Stories, tmp_path: Path) -> Path:
    store = open_sqlite(tmp_path / "origin.db", create=False)
    store.backup(tmp_path / "copy.db")
    store.close()
    return tmp_path / "copy.db"


def test_a_backup_holds_all_effects(copy: Path) -> None:
    assert _everything(copy) == _everything(copy.with_name("origin.db"))
    check_ledger(copy)


def test_a_copy_opens_in_recovery_and_can_be_read(stories: Stories, copy: Path) -> None:
    with stories.reopened(copy) as ledger:
        assert ledger.status().state is LedgerState.RECOVERY
        for state in ledger.status().counts:
            (*_, view) = ledger.inbox(state)
            assert ledger.get(view.action_id) == view == ledger.inspect(view.action_key)[-1] or view.replaces is None
            assert ledger.request(view.action_id) if view.action_key != "rebuilt" else True


def test_a_copy_takes_down_what_was_seen_and_nothing_else(stories: Stories, copy: Path) -> None:
    def by_key(key: str) -> bytes:
        return stories.ledger.inspect(key)[-1].action_id

    new, proposed, available = intent(b"new"), by_key("proposed"), by_key("available")
    claimed, prepared, doubted = by_key("claimed"), stories.ledger.inspect("prepared")[-1], by_key("unresolved")
    claim_id = prepared.claim_id
    assert claim_id is not None
    asked: list[Callable[[EffectLedger], object]] = [
        lambda ledger: ledger.propose(ANN, "new", new),
        lambda ledger: ledger.edit(ANN, proposed, new),
        lambda ledger: ledger.reject(BOB, proposed),
        lambda ledger: ledger.successor(ANN, by_key("rejected"), new),
        lambda ledger: ledger.revoke(BOB, available),
        lambda ledger: ledger.expire(EXEC, available),
        lambda ledger: ledger.claim(EXEC, available, worker="w2", request_sha256=bytes(32)),
        lambda ledger: ledger.prepare(EXEC, claimed, claim_id=claim_id, worker="w1"),
        lambda ledger: ledger.hand_out(EXEC, prepared.action_id, claim_id=claim_id, worker="w1"),
        lambda ledger: ledger.outcome(EXEC, prepared.action_id, stories.receipt(prepared)),
        lambda ledger: ledger.reconcile_success(RECON, prepared.action_id, stories.receipt(prepared)),
        lambda ledger: ledger.reconcile_not_executed(RECON, doubted),
        lambda ledger: ledger.write_off(RECON, doubted, nobody_can_observe=True, people=frozenset({"olga"})),
        lambda ledger: ledger.close_unprepared(RECON, claimed),
        lambda ledger: ledger.correct_clock(Actor("olga", frozenset({Role.OFFICER}))),
    ]
    before = _everything(copy)
    with stories.reopened(copy) as ledger:
        for ask in asked:
            with pytest.raises(NotAdmitted):
                ask(ledger)
        assert _everything(copy) == before
        seen = ledger.observe(RECON, doubted, stories.look(stories.ledger.get(doubted)))
    assert len(seen.evidence) == 1
    check_ledger(copy)


def test_an_erasure_of_runs_and_a_compaction_leave_effects_alone(stories: Stories, tmp_path: Path) -> None:
    path = tmp_path / "origin.db"
    with RunLedger(run_id="r1", db_path=path) as ledger:
        ledger.add(Step(lambda: "x" * 10_000, name="one"))
        ledger.execute()
        before = _everything(path)
        context = ledger._opened.context()
        act = Act(event="erase", reason="asked to", actor="ann")
        assert erase_run(context, "r1", Selection(), act).plan.records > 0
    stories.ledger.close()
    store = open_sqlite(path, create=False)
    store.compact()
    store.close()
    assert _everything(path) == before
    check_ledger(path)


def test_a_row_that_refers_to_nothing_is_named(stories: Stories, tmp_path: Path) -> None:
    path = tmp_path / "origin.db"
    stories.ledger.close()
    edit(path, "INSERT INTO requests (action_row_id, body) VALUES (999, x'00')")
    assert integrity_problems(path) == ["row 999 of requests refers to a row of actions that is not there"]
    edit(path, "INSERT INTO requests (action_row_id, body) VALUES (998, x'00')")
    assert len(integrity_problems(path)) == 2
    with pytest.raises(LedgerBroken, match="row 999 of requests refers to a row of actions"):
        check_ledger(path)


@pytest.mark.parametrize("table", ["actions", "approvals", "requests", "action_records"])
def test_history_of_effects_cannot_be_deleted_by_hand(stories: Stories, tmp_path: Path, table: str) -> None:
    stories.ledger.close()
    path = tmp_path / "origin.db"
    done = subprocess.run(
        [sys.executable, "-c", LIFTED, path, f"DELETE FROM {table}"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "IntegrityError" in done.stderr
    check_ledger(path)
