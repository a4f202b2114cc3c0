"""The wheel holds what it needs and nothing else, and runs in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without network from the backend that the lock file pins."""
    place = tmp_path_factory.mktemp("wheel")
    tree = place / "tree"
    tree.mkdir()
    shutil.copytree(root / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tree)
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-index",
            "--no-build-isolation",
            "--no-deps",
            "-w",
            str(place),
            str(tree),
        ]
    )
    (built,) = place.glob("*.whl")
    return built


def _run(command: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_wheel_holds_every_source_file_and_nothing_else(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(root / "src").as_posix()
        for path in (root / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    assert packed == sources
    assert "agent_run_ledger/py.typed" in packed
    assert "agent_run_ledger/store/sql/sqlite_schema.sql" in packed
    assert not any("test_" in name or name.startswith("tests/") for name in packed)


def test_the_wheel_says_what_the_project_says(root: Path, wheel: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(archive.read(name).decode("utf-8"))
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert (said["Name"], said["Version"]) == ("agent-run-ledger", project["version"])
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Requires-Python"] == ">=3.11"
    assert len(licences) == 1
    core = [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.split(">=")[0] for line in core} == {"apsw", "cryptography", "orjson", "rfc8785", "rich", "typer"}


def test_a_clean_environment_runs_the_wheel_with_the_runtime_lock_alone(
    root: Path, wheel: Path, tmp_path: Path
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    _run([sys.executable, "-m", "venv", str(tmp_path / "venv")], env=environment)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-input"]
    locked = subprocess.run(
        [*install, "--require-hashes", "--only-binary", ":all:", "-r", str(root / "requirements" / "core.txt")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if locked.returncode != 0 and "Retrying (" in locked.stderr:
        pytest.skip("no package registry can be reached")
    assert locked.returncode == 0, locked.stderr
    _run([*install, "--no-index", "--no-deps", str(wheel)], env=environment)
    _run([python, "-m", "pip", "check"], env=environment)
    program = "import agent_run_ledger; print(agent_run_ledger.__file__)"
    found = _run([python, "-c", program], env=environment, cwd=tmp_path).stdout.strip()
    assert Path(found).is_relative_to(tmp_path / "venv"), "the package came from elsewhere"
    assert "demo" in _run([str(tmp_path / "venv" / "bin" / "arl"), "--help"], env=environment, cwd=tmp_path).stdout
