"""What a target says of one dispatch, and the bytes that evidence of it is named after (format: report v1)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.effects.evidence import Found, Receipt

REPORT_DOMAIN: Final = b"arl/report/v1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The target's whole answer, as its adapter saw it. `found`: EXECUTED where it says that it did it, else UNKNOWN.

    An answer that refuses is UNKNOWN too: a refused second request says nothing of the first. `status` is that of
    HTTP, None for a function that returned. `body` is what came, `body_sha256` its digest. Never NOTHING.
    """

    found: Found
    status: int | None
    body_sha256: bytes
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """It was sent, or part of it may have been, and there is no whole answer: `reason` is a stable word.

    `status`: that of an answer which began and did not end. Nothing follows from it. `raised`: the class of an error
    that came out of the target, whose text may hold anything and is left out.
    """

    reason: str
    status: int | None = None
    raised: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """No byte of the request left through this dispatch: `reason` is a stable word.

    That is the executor's own word about its own path, and no evidence that the action was not executed: an older
    copy of the ledger may have sent it. It is told to people, and recorded as a doubt.
    """

    reason: str


Report: TypeAlias = Receipt | Answered | Lost | NotSent
"""A receipt is the receiver's signed word, verified; the others are the adapter's."""


def evidence_id(fresh: bytes, answered: Answered) -> bytes:
    """Return the id of an observation that an answer is: `fresh` (16 bytes, never twice) and the digest of the report.

    Whoever has kept status and digest of the body can show later that these were what was recorded.
    """
    return fresh + report_sha256(answered)


def report_sha256(answered: Answered) -> bytes:
    """Return the digest (32 bytes) of what was found, the status and the digest of the body."""
    return sha256(report_bytes(answered)).digest()


def report_bytes(answered: Answered) -> bytes:
    """Return REPORT_DOMAIN and the canonical object of what was found, the status and the digest of the body."""
    told = {"body_sha256": answered.body_sha256.hex(), "found": str(answered.found), "status": answered.status}
    return REPORT_DOMAIN + canonical(told)
