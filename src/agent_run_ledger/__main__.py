"""`python -m agent_run_ledger`: the command line."""

from __future__ import annotations

from agent_run_ledger.cli.main import run

run()
