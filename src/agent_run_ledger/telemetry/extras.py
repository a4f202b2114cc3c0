"""What a missing library of an extra is answered with."""

from __future__ import annotations

from agent_run_ledger.errors import Misuse


def missing_extra(what: str, extra: str, error: ImportError) -> Misuse:
    """Return the refusal of `what`, which needs the packages of an extra; its hint says how to install them."""
    return Misuse(
        f"{what} needs a package that is not installed: {error.name or error}",
        code="extra_missing",
        hint=f'pip install "agent-run-ledger[{extra}]"',
    )
