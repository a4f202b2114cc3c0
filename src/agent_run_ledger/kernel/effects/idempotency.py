"""The key under which a receiver remembers one dispatch of an action (format: idempotency v1)."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.effects.permit import Permit

IDEMPOTENCY_DOMAIN: Final = b"arl/idempotency/v1\n"


def idempotency_key(ledger_id: bytes, action_key: str, generation: int) -> str:
    """Return 64 hex digits that follow from ledger, key and generation alone: nobody ever draws a fresh one.

    SHA-256 over IDEMPOTENCY_DOMAIN and the canonical object of the three. It does not change with the epoch, so an
    admission makes no new key of an old dispatch. ValueError for a generation below 1.
    """
    if generation < 1:
        raise ValueError(f"a dispatch has a generation of at least 1, not {generation}")
    named = {"action_key": action_key, "generation": generation, "ledger_id": ledger_id.hex()}
    return sha256(IDEMPOTENCY_DOMAIN + canonical(named)).hexdigest()


def idempotency_key_of(permit: Permit) -> str:
    """Return the key of a permit's dispatch."""
    return idempotency_key(bytes.fromhex(permit.iss), permit.act, permit.gen)
