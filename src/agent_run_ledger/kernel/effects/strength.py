"""Whether a ledger that is opened asks for less than it did at its latest transition."""

from __future__ import annotations

from typing import Final

from agent_run_ledger.kernel.effects.action import Standing
from agent_run_ledger.kernel.effects.states import WitnessPolicy

_RANK: Final = (WitnessPolicy.NONE, WitnessPolicy.FILE, WitnessPolicy.HTTP)
_NUMBERS: Final = ("bound_ms", "max_permit_ms", "people_for_not_executed", "officers_needed")


def weaker(now: Standing, before: Standing) -> list[str]:
    """Return in words each requirement of `now` that is below that of `before`; more is never weaker.

    A smaller `max_permit_ms` is: it ends the wait for permits that nobody knows of, those of `before` among them.
    """
    found = [
        f"{name} {getattr(now, name)} after {getattr(before, name)}"
        for name in _NUMBERS
        if getattr(now, name) < getattr(before, name)
    ]
    if _RANK.index(now.witness) < _RANK.index(before.witness):
        found.append(f"witness {now.witness} after {before.witness}")
    return found
