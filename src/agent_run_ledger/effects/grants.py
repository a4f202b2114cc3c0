"""What a worker gets: its claim, and what it may send."""

from __future__ import annotations

from dataclasses import dataclass

from agent_run_ledger.effects.views import ActionView
from agent_run_ledger.kernel.effects.permit import Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A claim. `granted_now`: this call made it; else it was on record already, and nothing was granted again."""

    view: ActionView
    claim_id: bytes
    granted_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """What a worker may send: `request`, byte for byte as approved, with its permit.

    `handed_now`: this call handed it out. Else it is told again, only where the receiver takes it for one effect.
    """

    view: ActionView
    permit: Permit
    request: bytes
    handed_now: bool
