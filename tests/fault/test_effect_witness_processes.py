"""Several processes show one honest witness the heads of one log, in whatever order: none of them is called old."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import LedgerState
from tests.contract.effect_kit import check_kept
from tests.fault.effect_witness_worker import FileWitness
from tests.fault.test_effect_competition import _approved

pytestmark = pytest.mark.fault

WORKER = Path(__file__).with_name("effect_witness_worker.py")
PROCESSES, EACH = 4, 12


def test_no_honest_process_is_driven_into_recovery_and_an_older_copy_is(tmp_path: Path) -> None:
    path, witness, older = tmp_path / "effects.db", tmp_path / "witness", tmp_path / "older.db"
    ids = _approved(path, PROCESSES * EACH)
    older.write_bytes(path.read_bytes())
    started = []
    for name in range(PROCESSES):
        listed = tmp_path / f"worker {name}"
        listed.write_text("\n".join(one.hex() for one in ids[name::PROCESSES]), encoding="ascii")
        command = [sys.executable, str(WORKER), str(path), str(witness), str(listed)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in started:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        said = [one.communicate()[0] for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    handed = [json.loads(each)[0] for each in said]
    assert handed == [EACH] * PROCESSES
    assert "recovery" not in {json.loads(each)[1] for each in said}
    assert check_kept(path) == PROCESSES * EACH * 5
    with EffectLedger(path, witness=FileWitness(witness)) as again:
        assert again.status().state is LedgerState.OPEN
    with EffectLedger(older, witness=FileWitness(witness)) as copy:
        assert copy.status().state is LedgerState.RECOVERY
