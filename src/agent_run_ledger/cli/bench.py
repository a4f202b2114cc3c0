"""`arl bench`: hands everything to the benchmark, which measures ratios to a bare floor."""

from __future__ import annotations

import typer


def bench(context: typer.Context) -> None:
    """Measure what a step costs, as ratios to a bare SQLite floor (quick by default; `arl bench --help` has more)."""
    from agent_run_ledger.benchmark import main

    raise typer.Exit(main(context.args))
