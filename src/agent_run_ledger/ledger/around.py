"""What a log says up to a leaf: the ground on which the auditor compares records with each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the log said up to a leaf, the leaf itself included: whose it is, its epoch, authority, whether a copy."""

    log_id_hex: str | None
    epoch: int
    authority: bool
    is_copy: bool
