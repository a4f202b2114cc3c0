"""The list of mutants can be applied as it stands, and the runner tells the noticed from the unnoticed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.mutants import Mutant, read_mutants
from tests.house.run_mutants import verdict
from tests.house.tree import missing_test

LIST = Path(__file__).with_name("mutants.toml")

ENTRY = """
[[mutant]]
file = "src/agent_run_ledger/kernel/states.py"
before = '(_R.FAILED, RunEvent.START): _R.RUNNING,'
after = '{after}'
test = "{test}"
why = "a failed run could not go on"
"""


def test_every_listed_mutant_can_be_applied_and_names_a_test_that_exists(root: Path) -> None:
    mutants = read_mutants(LIST)
    flaws = [flaw for mutant in mutants for flaw in (mutant.flaw(root), missing_test(mutant.test)) if flaw]
    assert flaws == []
    assert len({(mutant.file, mutant.before, mutant.after) for mutant in mutants}) == len(mutants)


def test_an_entry_without_a_reason_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text(re.sub("why = .*\n", "", ENTRY), encoding="utf-8")
    with pytest.raises(ValueError, match="exactly the fields"):
        read_mutants(listed)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("src/none.py", "a", "b"),
        ("tests/conftest.py", "a", "b"),
        ("src/one.py", "a", "b"),
        ("src/one.py", "x = 1", "x = 1"),
    ],
)
def test_a_mutant_that_changes_nothing_or_too_much_has_a_flaw(
    tmp_path: Path, file: str, before: str, after: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text("a = a\nx = 1\n", encoding="utf-8")
    assert Mutant(file=file, before=before, after=after, test="", why="").flaw(tmp_path)
    assert Mutant(file="src/one.py", before="x = 1", after="x = 2", test="", why="").flaw(tmp_path) is None


@pytest.mark.parametrize(("run", "noticed"), [(1, True), (0, False), (2, False), (4, False), (5, False), (None, False)])
def test_only_a_failed_test_notices(run: int | None, noticed: bool) -> None:
    mutant = Mutant(file="f", before="a", after="b", test="t", why="w")
    assert (verdict(mutant, run) is None) is noticed


@pytest.mark.parametrize(
    "node",
    ["tests/house/test_nowhere.py::test_a", "tests/house/test_mutants.py", "tests/house/test_mutants.py::test_none"],
)
def test_a_test_that_does_not_exist_is_missing(node: str) -> None:
    assert missing_test(node)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "code", "said"),
    [("", 1, "SURVIVED"), ("(_R.FAILED, RunEvent.START): _R.FAILED, #", 0, "noticed"), ("(", 1, "NO VERDICT")],
)
def test_the_runner_runs_the_changed_sources(tmp_path: Path, after: str, code: int, said: str) -> None:
    # The test that the entry names fails only for the second change, so the runner must tell all three apart.
    test = tmp_path / "test_state.py"
    test.write_text(
        "from agent_run_ledger.kernel.states import RunEvent, RunState, next_run_state\n"
        "def test_a():\n    assert next_run_state(RunState.FAILED, RunEvent.START) in (RunState.RUNNING, None)\n",
        encoding="utf-8",
    )
    listed = tmp_path / "list.toml"
    listed.write_text(ENTRY.format(after=after, test=f"{test.as_posix()}::test_a"), encoding="utf-8")
    runner = Path(__file__).with_name("run_mutants.py")
    done = subprocess.run(
        [sys.executable, str(runner), "--list", str(listed)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
