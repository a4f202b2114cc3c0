"""The numbers: what a step costs, always as a ratio to a bare floor measured in the same run."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the benchmark with these command-line arguments and return the exit code. See benchmark.command.run."""
    from agent_run_ledger.benchmark.command import run  # children start here too, and must not pay for it

    return run(argv)
