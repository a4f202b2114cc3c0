"""The signers' side: an approver with the bytes and the display in hand, and those who decide how a doubt ends."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TypeAlias

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import Signature, envelope_bytes
from agent_run_ledger.kernel.effects.approval import APPROVAL_TYPE, Statement, statement_bytes
from agent_run_ledger.kernel.effects.decided import DECISION_TYPE
from agent_run_ledger.keys import SigningKey, seal

Sign: TypeAlias = Callable[[bytes], tuple[Signature, ...]]
"""Returns the signatures of those who decide, over the bytes of their decision (docs/formats/approval.md)."""


def sign_approval(statement: Statement, key: SigningKey, *, request: bytes, display: bytes) -> bytes:
    """Return the signed approval as an envelope in JSON.

    `request` are the bytes to be sent, `display` is what the approver was shown: Refused("other_request") or
    Refused("other_display") where the statement is about others, and then nothing is signed.
    """
    if sha256(request).digest() != statement.request_sha256:
        raise Refused("the statement is about other bytes than these", code="other_request")
    if sha256(display).digest() != statement.display_sha256:
        raise Refused("the statement is about another display than the one that was shown", code="other_display")
    return envelope_bytes(seal(APPROVAL_TYPE, statement_bytes(statement), [key]))


def signing(*keys: SigningKey) -> Sign:
    """Return what signs a decision with these keys, one for each who decides; they stay in this process.

    Refused("signed_already") for a key twice.
    """
    return lambda decision: seal(DECISION_TYPE, decision, keys).signatures
