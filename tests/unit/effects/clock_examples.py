"""One clock correction in values that never change: what its golden file is made of."""

from __future__ import annotations

from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from agent_run_ledger.kernel.effects import LedgerState, Role
from agent_run_ledger.kernel.effects.clock import (
    CorrectClock,
    Correction,
    change_of_correction,
    correction_bytes,
    correction_mac,
)
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.reading import Sample
from tests.unit.effects.format_examples import LEDGER, START_MS

YEARS_MS = 73 * 31_557_600_000
CORRECTION = Correction(
    command=CorrectClock(actor=Actor("olga", frozenset({Role.OFFICER})), people=frozenset({"otto"})),
    ledger=replace(LEDGER, state=LedgerState.TIME_UNTRUSTED, officers_needed=2),
    old=Sample(wall_ms=START_MS + YEARS_MS, uptime_ms=12_000, boot="3f0e8c1a-5b7d-4a92-8e64-d1c2b3a49586"),
    new=Sample(wall_ms=START_MS + 5_000, uptime_ms=17_000, boot="3f0e8c1a-5b7d-4a92-8e64-d1c2b3a49586"),
)
"""A machine that started with its clock in 2099, set right, and two officers who say so."""


def written() -> list[dict[str, Any]]:
    """What this version writes, for `clock.json`."""
    salt, payload = sha256(b"salt of the clock").digest(), correction_bytes(CORRECTION)
    line = asdict(change_of_correction(CORRECTION, correction_mac(salt, payload)))
    change = {name: value.hex() if isinstance(value, bytes) else value for name, value in line.items()}
    return [{"salt_hex": salt.hex(), "payload": payload.decode(), "change": change}]
