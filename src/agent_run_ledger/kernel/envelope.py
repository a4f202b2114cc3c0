"""Envelopes: the one JSON object per committed transaction that becomes a leaf of the log (format: envelope v1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

ENVELOPE_VERSION = 1


@dataclass(slots=True, kw_only=True)
class Change:
    """One transition: an object (16-byte pseudonymous id) went from `old` to `new` under a generation.

    `type` is "run", "step", "action" or "store". `mac` is that of the record written with it (`record_mac`, of an
    action `transition_mac`), or None.
    """

    type: str
    id: bytes
    old: str
    new: str
    generation: int
    mac: bytes | None = None


def envelope_bytes(*, log_id: bytes, op_id: bytes, epoch: int, time_ms: int, changes: Sequence[Change]) -> bytes:
    """Return the envelope as RFC 8785 bytes.

    Every key is ASCII, every string ASCII and every number an integer below 2**53, so sorted-key JSON without
    spaces is exactly the RFC 8785 form (a test compares the two).
    """
    listed: list[dict[str, object]] = []
    for change in changes:
        item: dict[str, object] = {
            "generation": change.generation,
            "id": change.id.hex(),
            "new": change.new,
            "old": change.old,
            "type": change.type,
        }
        if change.mac is not None:
            item["mac"] = change.mac.hex()
        listed.append(item)
    envelope = {
        "changes": listed,
        "epoch": epoch,
        "log_id": log_id.hex(),
        "op_id": op_id.hex(),
        "time_ms": time_ms,
        "v": ENVELOPE_VERSION,
    }
    return orjson.dumps(envelope, option=orjson.OPT_SORT_KEYS)
