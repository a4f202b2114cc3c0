"""Puts signatures on envelopes, and tells whether somebody's key made one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import Envelope, Signature, pae
from agent_run_ledger.kernel.public_keys import key_id_of
from agent_run_ledger.keys.ed25519 import SigningKey, verify


def seal(payload_type: str, payload: bytes, keys: Sequence[SigningKey]) -> Envelope:
    """Return a payload with one signature of each key. Refused("signed_already") for a key twice."""
    envelope = Envelope(payload_type, payload, ())
    for key in keys:
        envelope = countersign(envelope, key)
    return envelope


def countersign(envelope: Envelope, key: SigningKey) -> Envelope:
    """Return an envelope with one more signature. Refused("signed_already")."""
    if any(one.key_id == key.key_id for one in envelope.signatures):
        raise Refused(f"key {key.key_id} has signed it already", code="signed_already")
    signature = Signature(key.key_id, key.sign(pae(envelope.payload_type, envelope.payload)))
    return replace(envelope, signatures=(*envelope.signatures, signature))


def signed_by(envelope: Envelope, public: bytes) -> bool:
    """Return whether a public key verifies one of the signatures, which must name it."""
    key_id, message = key_id_of(public), pae(envelope.payload_type, envelope.payload)
    return any(one.key_id == key_id and verify(public, one.value, message) for one in envelope.signatures)
