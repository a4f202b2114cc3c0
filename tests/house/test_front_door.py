"""What README, Makefile and .ci/run promise is one and the same."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

TARGETS = {
    "postgres",
    "bench-server",
    "help",
    "demo",
    "test",
    "test-fast",
    "test-adapters",
    "adapters",
    "lint",
    "bench",
    "bench-peers",
    "mutants",
    "campaign",
    "docs",
    "lock",
    "clean",
}


# A make inside `make test` must not be steered by the outer one, least of all into the outer one's environment.
STEERING = {"GATE_RUNS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "VENV", "PYTHON", "UPGRADE"}


def _make(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=root,
        env={key: value for key, value in os.environ.items() if key not in STEERING},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _commands(text: str) -> list[str]:
    """The lines of the shell blocks of a page, without prompts and comments."""
    blocks = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_make_alone_lists_every_target(root: Path) -> None:
    listed = set(re.findall(r"^  ([a-z-]+) ", _make(root), re.MULTILINE))
    assert listed == TARGETS


def test_the_two_commands_of_the_readme_are_the_two_that_ci_runs(root: Path) -> None:
    commands = _commands((root / "README.md").read_text(encoding="utf-8"))
    assert "make demo" in commands
    assert "make test" in commands
    ran = [line.strip() for line in (root / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    assert ran.count("make demo") == 1
    assert ran.count("make test") == 1
    assert ran.index("make demo") < ran.index("make test")


def test_ci_is_a_strict_script_that_can_be_started(root: Path) -> None:
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("lock", ["core.txt", "build.txt", "dev.txt"])
def test_another_lock_file_is_another_environment(root: Path, tmp_path: Path, lock: str) -> None:
    (tmp_path / "requirements").mkdir()
    for path in [root / "Makefile", root / "pyproject.toml", *(root / "requirements").glob("*.txt")]:
        (tmp_path / path.relative_to(root)).write_bytes(path.read_bytes())

    def stamps() -> set[str]:
        return set(re.findall(r"touch (\S+/\.(?:core|dev)-\d+)", _make(tmp_path, "--dry-run", "lint")))

    before = stamps()
    with (tmp_path / "requirements" / lock).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert len(before) == 2
    assert stamps().isdisjoint(before)


def test_another_project_file_is_installed_anew_into_the_same_environment(root: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    for path in [root / "Makefile", root / "pyproject.toml", *(root / "requirements").glob("*.txt")]:
        (tmp_path / path.relative_to(root)).write_bytes(path.read_bytes())
    made = re.findall(r"touch (\S+/\.\S+)", _make(tmp_path, "--dry-run", "demo"))
    (tmp_path / ".venv").mkdir()
    for stamp in made:
        assert stamp.startswith(".venv/")
        (tmp_path / stamp).touch()
    assert "touch" not in _make(tmp_path, "--dry-run", "demo")
    with (tmp_path / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    again = re.findall(r"touch (\S+/\.\S+)", _make(tmp_path, "--dry-run", "demo"))
    assert [Path(stamp).name.split("-")[0] for stamp in again] == [".package"]
