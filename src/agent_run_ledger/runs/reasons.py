"""How the reason of a QUARANTINE says that the breaker decided it."""

from __future__ import annotations

from typing import Final

BREAKER: Final = "breaker"
"""The actor of a quarantine for a loop, and where its DECISION keeps the verdict."""

LOOP: Final = "loop: "
"""How the reason of such a quarantine begins."""


def is_for_loop(reason: str) -> bool:
    """Return whether a run with this reason was stopped by the breaker."""
    return reason.startswith(LOOP)
