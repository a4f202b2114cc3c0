"""Records: what the log keeps a MAC of, and the exact bytes that MAC is taken over (format: record v1)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import IntEnum

RECORD_DOMAIN = b"agent-run-ledger/record/v1\n"
SALT_BYTES = 32
DYNAMIC_KEY = "dynamic"
"""Where a START record's content says that the run is a dynamic one, and how its scopes are keyed."""

KEPT_INPUTS = "kept_inputs"
"""Where a START record's content keeps the inputs' values, if it does."""

SUBMITTED_KEY = "submitted"
"""Where a run's first START record's content says that the run was submitted: its queue and its entry."""


class RecordKind(IntEnum):
    """What a record says. The numbers are part of the stored format."""

    START = 1  # an attempt began: inputs, definition, policy, holder
    RESULT = 2  # a call returned: restored on every later attempt
    ERROR = 3  # a call raised: history, never restored by a pipeline
    ABANDONED = 4  # a call was started and nothing says how it ended: its cost is uncertain
    RESCUED = 5  # a call returned what cannot be stored exactly: readable, never restored
    END = 6  # the run completed or failed: which records made up the result
    DECISION = 7  # an operator's act: quarantine, release, takeover, cancel


@dataclass(slots=True, kw_only=True)
class Record:
    """One immutable record, as stored. Times are Unix milliseconds, digests raw bytes.

    `inputs` is compact JSON: salted short digests per argument and environment key (see docs/formats/record.md).
    `code` is the 8-byte digest of the step's compiled code, empty where there is none. `value_sha256` is the
    digest of the value in `payload`, empty where no value is restored. `encoding` is how `payload` is packed.
    `usage` is compact JSON of what the call used, empty where nobody said; an erasure keeps it.
    """

    kind: RecordKind
    run_uid: bytes
    salt: bytes
    scope: bytes = b""
    name: str = ""
    fingerprint: bytes = b""
    occurrence: int = 0
    attempt: int = 0
    tries: int = 1
    started_at_ms: int = 0
    ended_at_ms: int = 0
    inputs: bytes = b""
    code: bytes = b""
    value_sha256: bytes = b""
    encoding: int = 0
    payload: bytes = b""
    usage: bytes = b""


def record_frame(record: Record) -> bytes:
    """Return the bytes that `record_mac` covers: the domain, then for each field 4 bytes of big-endian length and it.

    Integers are ASCII decimal. The salt is the MAC key and not part of the frame.
    """
    numbers = b"%d,%d,%d,%d,%d,%d,%d" % (
        record.kind,
        record.occurrence,
        record.attempt,
        record.tries,
        record.started_at_ms,
        record.ended_at_ms,
        record.encoding,
    )
    fields: tuple[bytes, ...] = (
        record.run_uid,
        numbers,
        record.scope,
        record.name.encode("utf-8"),
        record.fingerprint,
        record.inputs,
        record.code,
        record.value_sha256,
        record.payload,
    )
    if record.usage:  # a field of its own only where there is one: records of version 1 keep their MAC
        fields = (*fields, record.usage)
    parts = [RECORD_DOMAIN]
    for field in fields:
        parts.append(len(field).to_bytes(4, "big"))
        parts.append(field)
    return b"".join(parts)


def record_mac(record: Record) -> bytes:
    """Return HMAC-SHA256(salt, record_frame(record)), 32 bytes: the only trace of a record in its leaf."""
    return hmac.digest(record.salt, record_frame(record), "sha256")
