"""A trust file that comes into use: what is on record of it, and the leaf's line of it (format: trust change v1)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from agent_run_ledger.kernel.effects.action import Now
from agent_run_ledger.kernel.effects.plain import from_plain, to_plain
from agent_run_ledger.kernel.envelope import Change

TRUST_CHANGE_DOMAIN: Final = b"agent-run-ledger/trust/v1\n"
TRUST_CHANGE_VERSION: Final = 1
UNTRUSTED, TRUSTED = "untrusted", "trusted"
"""The states in the change of a trust file: before the first one, and from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustOnRecord:
    """Which trust file a ledger is under: its digest (32 bytes) and its serial."""

    sha256: bytes
    serial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChange:
    """One trust file that came into use: which one, after which, when, by which officers, as they signed it.

    `before_sha256`: that of the one before, None for the first. `signed`: its envelope, JSON in UTF-8, by which
    anybody can verify later that it counted at `now`. `epoch`: in which it came.
    """

    ledger_id: bytes
    epoch: int
    now: Now
    sha256: bytes
    serial: int
    officers: frozenset[str]
    signed: str
    before_sha256: bytes | None = None


def trust_change_bytes(change: TrustChange) -> bytes:
    """Return a change as sorted JSON: {"v", "change"} (docs/formats/approval.md)."""
    return _sorted_json({"v": TRUST_CHANGE_VERSION, "change": to_plain(change)})


def trust_change_from(payload: bytes) -> TrustChange:
    """Return what `trust_change_bytes` wrote. ValueError for any other bytes."""
    read = orjson.loads(payload)
    tree = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if tree.get("v") != TRUST_CHANGE_VERSION or tree.keys() != {"v", "change"} or _sorted_json(tree) != payload:
        raise ValueError("this is no record of a trust file, version 1")
    change: TrustChange = from_plain(TrustChange, tree["change"])
    return change


def trust_change_mac(salt: bytes, payload: bytes) -> bytes:
    """Return HMAC-SHA256(salt, TRUST_CHANGE_DOMAIN ‖ payload), 32 bytes: what the leaf holds of it."""
    return hmac.digest(salt, TRUST_CHANGE_DOMAIN + payload, "sha256")


def line_of_trust(change: TrustChange, mac: bytes) -> Change:
    """Return the leaf's line of a change. Its generation is the serial."""
    old = UNTRUSTED if change.before_sha256 is None else TRUSTED
    return Change(type="store", id=change.ledger_id, old=old, new=TRUSTED, generation=change.serial, mac=mac)


def is_trust_change(change: Mapping[str, Any]) -> bool:
    """Return whether a line of a leaf says that a trust file came into use."""
    return (change["type"], change["new"]) == ("store", TRUSTED)


def _sorted_json(tree: Any) -> bytes:
    return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)
