"""Erasures that are forged or cut short: no call is run again for it, and the auditor sees what is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import LedgerError, Refused, Tampered, codecs
from agent_run_ledger.clock import SystemClock
from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.kernel.erasure import kept_digest, kept_sha256
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.runs.attempt import Context
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.prune import old_runs, prune
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import BodyCounter, LedgerBroken, check_ledger
from tests.fault.test_pipeline_tampering import ONE, _completed, _edit, _go_on, _interrupted
from tests.scenario.programs import held

pytestmark = pytest.mark.fault

ROOT = Path(__file__).resolve().parents[2]
ACT = Act(event="erase", reason="asked to", actor="ann")


def _context(db: Path) -> Context:
    store = open_sqlite(db, create=False)
    return Context(store=store, clock=SystemClock(), entropy=SystemEntropy(), limit_bytes=1 << 20)


def _erase(db: Path, *steps: str) -> None:
    context = _context(db)
    erase_run(context, held.RUN_ID, Selection(steps=steps or None), ACT)
    context.store.close()


NULLED_BY_HAND = {
    "the salt": (f"UPDATE records SET salt = NULL {ONE}", Refused),
    "salt and payload": (f"UPDATE records SET salt = NULL, payload = NULL {ONE}", Refused),
    "all that an erasure takes": (
        "UPDATE records SET salt = NULL, payload = NULL, inputs = x'', code = x'', value_sha256 = x'', "
        f"fingerprint = x'0000000000010000' {ONE}",
        Refused,
    ),
    "the salt of the start": ("UPDATE records SET salt = NULL WHERE kind = 1", Refused),
    "the salt, and another name": (f"UPDATE records SET salt = NULL, name = 'worst' {ONE}", Tampered),
    "the salt, and another occurrence": (f"UPDATE records SET salt = NULL, occurrence = 1 {ONE}", Tampered),
}


@pytest.mark.parametrize("edit", list(NULLED_BY_HAND))
def test_what_was_erased_by_hand_is_refused_never_run_again_and_found(edit: str, tmp_path: Path) -> None:
    db = _interrupted(tmp_path)
    statement, error = NULLED_BY_HAND[edit]
    _edit(db, statement)
    with pytest.raises(error) as caught:
        _go_on(tmp_path)
    assert caught.value.code == ("erased" if error is Refused else "tampered")
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1}
    with pytest.raises(LedgerBroken) as broken:
        check_ledger(db)
    assert any("no decision says so" in problem for problem in broken.value.problems)


@pytest.mark.parametrize("step", ["first", "third"])
def test_a_completed_run_whose_record_was_erased_by_hand_is_found(step: str, tmp_path: Path) -> None:
    db = _completed(tmp_path)
    _edit(db, f"UPDATE records SET salt = NULL WHERE kind = 2 AND name = '{step}'")
    if step == "third":
        with pytest.raises(Refused, match="step 'third'"):
            _go_on(tmp_path)
    else:
        assert _go_on(tmp_path) == "result 4"
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1, "third": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


FORGED_AFTER_AN_ERASURE = {
    "another name": "UPDATE records SET name = 'worst' WHERE kind = 2 AND name = 'first'",
    "another place": "UPDATE records SET occurrence = 1 WHERE kind = 2 AND name = 'first'",
    "no decision": "UPDATE records SET name = 'worst', salt = NULL WHERE kind = 7 OR (kind = 2 AND name = 'first')",
}


@pytest.mark.parametrize("edit", list(FORGED_AFTER_AN_ERASURE))
def test_an_erased_record_that_was_changed_is_no_reason_to_run_its_call_again(edit: str, tmp_path: Path) -> None:
    db = _interrupted(tmp_path)
    _erase(db, "first")
    check_ledger(db)
    _edit(db, FORGED_AFTER_AN_ERASURE[edit])
    with pytest.raises(LedgerError) as caught:
        _go_on(tmp_path)
    assert caught.value.code in ("tampered", "erased")
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


def test_a_forged_decision_explains_nothing_to_a_resume(tmp_path: Path) -> None:
    """The erased record has another name, and the decision was written anew to say so: only its MAC tells."""
    db = _interrupted(tmp_path)
    _erase(db, "first")
    context = _context(db)
    reader = context.store.reader()
    row = reader.find_run(held.RUN_ID)
    assert row is not None
    (erased,) = (s for s in reader.records(row.row_id, kinds=[RecordKind.RESULT]) if s.record.name == "first")
    (decision,) = (
        s.record for s in reader.records(row.row_id, kinds=[RecordKind.DECISION]) if s.record.name == "erase"
    )
    said: Any = codecs.unpack(decision.encoding, decision.payload)
    said["kept_sha256"] = kept_sha256([kept_digest(replace(erased.record, name="worst"))]).hex()
    payload = codecs.pack(said, limit_bytes=1 << 20).payload.hex()
    context.store.close()
    _edit(db, f"UPDATE records SET name = 'worst' WHERE record_id = {erased.record_id}; "
              f"UPDATE records SET payload = x'{payload}' WHERE kind = 7")  # fmt: skip
    with pytest.raises(Tampered, match="does not match its leaf"):
        _go_on(tmp_path)
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


def test_a_record_that_was_put_back_is_found(tmp_path: Path) -> None:
    """From a copy that somebody made before: salt, payload and digests are right again, and the erasure is not."""
    db = _completed(tmp_path)
    shutil.copy(db, tmp_path / "copy.db")
    _erase(db)
    columns = ("fingerprint", "inputs", "code", "value_sha256", "salt", "payload")
    back = ", ".join(
        f"{one} = (SELECT {one} FROM was.records AS w WHERE w.record_id = records.record_id)" for one in columns
    )
    copy = subprocess.run(
        [sys.executable, "-c", _PUTS_BACK, str(db), str(tmp_path / "copy.db"), back],
        capture_output=True,
        text=True,
        check=False,
    )
    assert copy.returncode == 0, copy.stderr
    with pytest.raises(LedgerBroken) as broken:
        check_ledger(db)
    assert any("it erased 4 records, and 3 of them are erased" in problem for problem in broken.value.problems)


def test_a_prune_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    db = tmp_path / "ledger.db"
    program = [sys.executable, "-c", _PRUNES_AND_DIES, str(db)]
    done = subprocess.run([*program, "make"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    deaths = 0
    for _ in range(40):
        done = subprocess.run([*program, "prune"], cwd=ROOT, check=False, capture_output=True, text=True)
        check_ledger(db)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    assert deaths >= 4
    report = check_ledger(db)
    assert (report.erased, report.runs) == (4 * 7, 4)
    context = _context(db)
    assert not old_runs(context.store, before_ms=1 << 60)
    context.store.close()


def test_a_lost_process_leaves_an_erasure_whole_or_not_there(tmp_path: Path) -> None:
    """Killed at the commit of a batch, before and after: rows and decision agree in both."""
    for point in ("commit.before", "commit.after"):
        workdir = tmp_path / point
        workdir.mkdir()
        db = _completed(workdir)
        done = subprocess.run(
            [sys.executable, "-c", _DIES_AT, str(db), point, held.RUN_ID],
            cwd=ROOT, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert check_ledger(db).erased == (0 if point == "commit.before" else 4)


def test_prune_by_hand_in_one_process_is_the_same(tmp_path: Path) -> None:
    db = _completed(tmp_path)
    context = _context(db)
    report = prune(context, old_runs(context.store, before_ms=1 << 60), Act(event="prune", reason="x", actor="ann"))
    context.store.close()
    assert (report.runs, report.records, check_ledger(db).erased) == (1, 4, 4)
    assert os.path.getsize(db)


_PRUNES_AND_DIES = """
import os, signal, sys
from agent_run_ledger import RunLedger, Step
from agent_run_ledger.runs import erase
from agent_run_ledger.runs.erase import Act
from agent_run_ledger.runs.prune import old_runs, prune
erase.BATCH_RECORDS = 2
steps = [Step(lambda n, k=k: n + k, name=f"s{k}") for k in range(6)]
with RunLedger("r0", sys.argv[1], steps=steps) as ledger:
    if sys.argv[2] == "make":
        for number in range(4):
            ledger.bind(f"r{number}").execute(n=number)
    else:
        context, left = ledger._opened.context(), [3]
        whole = erase._commit
        def commit(*args):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            whole(*args)
        erase._commit = commit
        prune(context, old_runs(context.store, before_ms=1 << 60), Act(event="prune", reason="old", actor="ann"))
"""

_PUTS_BACK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("ATTACH ? AS was", (sys.argv[2],))
guard = connection.execute("SELECT sql FROM main.sqlite_schema WHERE name = 'records_erased_only'").get
connection.execute("DROP TRIGGER main.records_erased_only")
connection.execute(f"UPDATE main.records SET {sys.argv[3]} WHERE kind = 2 AND name = 'second'")
connection.execute(guard)
"""

_DIES_AT = """
import os, signal, sys
from agent_run_ledger import RunLedger, probes
from agent_run_ledger.runs.erase import Act, Selection, erase_run
with RunLedger("x", sys.argv[1]) as ledger:
    context = ledger._opened.context()
    probes.install(lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == sys.argv[2] else None)
    erase_run(context, sys.argv[3], Selection(), Act(event="erase", reason="x", actor="ann"))
"""
