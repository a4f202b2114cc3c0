"""What `import agent_run_ledger` costs, seen in sys.modules and not on a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "asyncio", "concurrent", "cryptography", "email", "http", "httpx", "importlib.metadata", "mcp", "multiprocessing",
    "numpy", "openai", "opentelemetry", "pandas", "prometheus_client", "pydantic", "rich", "sqlite3", "ssl", "tempfile",
    "typer", "urllib.request",
}  # fmt: skip

# No site packages are switched off here: what a start-up file of this environment loads is subtracted instead.
LOADED = "import sys; before = set(sys.modules); import {module}; print('\\n'.join(set(sys.modules) - before))"


def _loaded_by(module: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def _heavy(loaded: set[str]) -> set[str]:
    return {name for name in loaded if any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY)}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _loaded_by("agent_run_ledger")
    assert "agent_run_ledger" in loaded
    assert _heavy(loaded) == set()


def test_a_program_of_runs_without_effects_loads_neither_their_rules_nor_what_only_some_programs_need() -> None:
    loaded = _loaded_by("agent_run_ledger; agent_run_ledger.RunLedger")
    assert "agent_run_ledger.runs.dynamic" in loaded
    rules = ("agent_run_ledger.effects", "agent_run_ledger.kernel.effects.reducer", "agent_run_ledger.ledger.authority")
    assert not any(name.startswith(rules) for name in loaded)
    few = {"asyncio", "cryptography", "psycopg", "rich", "typer"}
    assert not {name.split(".")[0] for name in loaded} & few


@pytest.mark.parametrize("module", ["agent_run_ledger.kernel", "agent_run_ledger.ports", "agent_run_ledger.errors"])
def test_kernel_and_contracts_load_without_a_database(module: str) -> None:
    loaded = _loaded_by(module)
    assert module in loaded
    assert _heavy(loaded) == set()
    assert not any(name == "apsw" or name.startswith("agent_run_ledger.store") for name in loaded)


def test_the_observers_load_their_libraries_when_they_are_made() -> None:
    loaded = _loaded_by("agent_run_ledger.telemetry")
    assert "agent_run_ledger.telemetry.prometheus" in loaded
    assert not any(name.split(".")[0] in ("opentelemetry", "prometheus_client", "apsw") for name in loaded)


def test_the_look_at_the_modules_sees_a_heavy_one() -> None:
    assert {"asyncio", "email"} <= _heavy(_loaded_by("asyncio, email.message"))
