"""Random agent programs, killed and restarted, against the reference model; and wrong ledgers, which it must notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.twins import RIGHT, TWINS

FIRST_SEED, PROGRAMS = 5_001, 40


def ran(root: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The simulation forks, so it runs in a process of its own, in which no test has opened a store."""
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=300)


def test_forty_programs_hold(root: Path, tmp_path: Path) -> None:
    words = ("--programs", str(PROGRAMS), "--first-seed", str(FIRST_SEED), "--dir", str(tmp_path), "--shrink-s", "20")
    done = ran(root, "tests.simulation", *words)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["programs"] == PROGRAMS
    assert figures["failures"] == 0
    assert figures["kills"] >= PROGRAMS // 2
    assert figures["bodies"] > figures["kills"]
    assert min(figures[what] for what in ("restored", "outcomes_unknown")) > 0
    assert list(tmp_path.iterdir()) == [], "a story leaves nothing behind"


@pytest.fixture(scope="module")
def said(root: Path) -> dict[str, list[str]]:
    done = ran(root, "tests.simulation.twins")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", TWINS)
def test_a_wrong_ledger_is_noticed(name: str, said: dict[str, list[str]]) -> None:
    as_it_is, with_twin = said[name]
    assert as_it_is == "", "its story holds with the library as it is"
    assert TWINS[name].noticed in with_twin
    assert with_twin


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_noticed_of_a_ledger_that_is_only_slow(name: str, said: dict[str, list[str]]) -> None:
    assert said[name] == ["", ""]


def test_a_failure_names_its_seed_and_shows_a_smaller_program(root: Path, tmp_path: Path) -> None:
    """Seed 5003: with a library that restores nothing it fails, and so does a program of one or two calls."""
    words = ("--seed", "5003", "--twin", "nothing is restored", "--dir", str(tmp_path), "--shrink-s", "10")
    done = ran(root, "tests.simulation", *words)
    assert done.returncode == 1
    assert "seed 5003: life " in done.stderr
    assert "python -m tests.simulation --seed 5003" in done.stderr
    small = done.stderr.partition("the smallest story found")[2]
    assert 0 < calls_in(small) < calls_in(done.stdout)


def calls_in(text: str) -> int:
    """How many lines the agent of a printed program has."""
    return sum(line.startswith("    ") for line in text.partition("\nrun:\n")[2].split("\n"))
