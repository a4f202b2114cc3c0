"""Each import contract is broken once on purpose, in a copy of the tree, and must be seen to break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

LAYERS = "layers"
ONE_OPENER = "one opener"
ONE_CONNECTOR = "one connector"
ONE_SQLITE = "one SQLite"
FRAMEWORKS = "frameworks stay outside"
MONITORING = "monitoring stays in telemetry"

# (contract, module to write into, the import that breaks it)
BREAKS = [
    (LAYERS, "errors.py", "from agent_run_ledger.kernel import states"),
    (LAYERS, "kernel/states.py", "import agent_run_ledger.ports"),
    (LAYERS, "ports.py", "import agent_run_ledger.store"),
    (LAYERS, "store/__init__.py", "import agent_run_ledger.codecs"),
    (LAYERS, "codecs/__init__.py", "import agent_run_ledger.runs"),
    (LAYERS, "runs/__init__.py", "def later():\n    import agent_run_ledger.ledger"),
    (LAYERS, "ledger/__init__.py", "import agent_run_ledger.testing"),
    (LAYERS, "testing/__init__.py", "import agent_run_ledger.demo"),
    (LAYERS, "ledger/__init__.py", "def later():\n    from agent_run_ledger.lab import approval"),
    (LAYERS, "demo/__init__.py", "import agent_run_ledger.cli"),
    (LAYERS, "newcomer.py", "x = 1"),  # a top-level module that has no place in the layers
    (ONE_OPENER, "runs/__init__.py", "import apsw"),
    (ONE_OPENER, "cli/__init__.py", "def later():\n    import apsw"),
    (ONE_CONNECTOR, "runs/__init__.py", "import psycopg"),
    (ONE_CONNECTOR, "cli/__init__.py", "def later():\n    from psycopg import sql"),
    (ONE_SQLITE, "store/__init__.py", "import sqlite3"),
    (FRAMEWORKS, "codecs/__init__.py", "import pydantic"),
    (FRAMEWORKS, "runs/__init__.py", "def later():\n    import openai"),
    (FRAMEWORKS, "ledger/__init__.py", "from mcp import client"),
    (FRAMEWORKS, "cli/__init__.py", "import httpx"),
    (LAYERS, "telemetry/__init__.py", "import agent_run_ledger.store"),
    (MONITORING, "runs/__init__.py", "def later():\n    from opentelemetry import trace"),
    (MONITORING, "cli/__init__.py", "import prometheus_client"),
]


def _copy(root: Path, target: Path) -> Path:
    shutil.copytree(root / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", target)
    return target / "src" / "agent_run_ledger"


def _verdicts(tree: Path) -> str:
    """What import-linter says about the package in `tree/src`, which must be the one that it reads."""
    command = "import sys; from importlinter.cli import lint_imports_command as run; run(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_every_contract_is_broken_by_a_case(root: Path) -> None:
    configured = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    broken = {contract for contract, _, _ in BREAKS}
    assert len(configured) == len(broken)
    assert all(any(contract["name"].startswith(prefix) for prefix in broken) for contract in configured)


def test_the_tree_as_it_is_keeps_every_contract(root: Path, tmp_path: Path) -> None:
    _copy(root, tmp_path)
    verdicts = _verdicts(tmp_path)
    assert "6 kept, 0 broken" in verdicts, verdicts


@pytest.mark.parametrize(("contract", "module", "line"), BREAKS)
def test_a_broken_contract_is_caught(root: Path, tmp_path: Path, contract: str, module: str, line: str) -> None:
    package = _copy(root, tmp_path)
    with (package / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    verdicts = _verdicts(tmp_path)
    assert any(said.startswith(contract) and "BROKEN" in said for said in verdicts.splitlines()), verdicts
