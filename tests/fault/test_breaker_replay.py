"""The recorded agent runs, played through a ledger: its verdicts are those of the bare rule, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.breaker_lives import KILLED

pytestmark = pytest.mark.fault


def test_the_recorded_runs_get_the_same_verdicts_through_a_ledger_and_over_kills(root: Path, shared: Path) -> None:
    command = [sys.executable, "-m", "tests.fault.breaker_lives", str(shared / "loops" / "corpus")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert said["runs"] == 1807
    assert said["kills"] == KILLED
    assert said["stopped"] > 300
    assert said["different_quiet"] == []
    assert said["different_killed"] == []
