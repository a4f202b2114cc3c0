"""What a PostgreSQL store says of itself, line by line: bytes and numbers as the text that the table holds."""

from __future__ import annotations

from collections.abc import Sequence

from agent_run_ledger.store.rows import Row

META_KEYS = ("log_id", "created_at_ms", "authority", "is_copy")
"""The lines that every store has."""

_BYTES = "hex:"


def text_of_meta(value: bytes | int) -> str:
    """Return the text of a value: `hex:…` for bytes, decimal digits for a number."""
    return f"{_BYTES}{value.hex()}" if isinstance(value, bytes) else str(value)


def meta_from(rows: Sequence[Row]) -> dict[str, bytes | int]:
    """Return the lines that rows of (key, value) hold. ValueError for a text that is neither."""
    return {key: bytes.fromhex(text[len(_BYTES) :]) if text.startswith(_BYTES) else int(text) for key, text in rows}
