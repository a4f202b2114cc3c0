"""DSSE v1, the envelope in which statements are signed: what is signed, its JSON, and a strict reader."""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import Error, a2b_base64
from dataclasses import dataclass
from typing import Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.public_keys import SIGNATURE_BYTES
from agent_run_ledger.kernel.strict_json import NotStrict, exactly, list_of, read_strict, shown, text_of

MAX_SIGNATURES: Final = 64

_KEY_ID: Final = re.compile(r"[0-9a-f]{64}")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class BadEnvelope(Refused, ValueError):
    """Bytes that are no envelope, or one of another type."""

    code = "bad_envelope"


@dataclass(frozen=True, slots=True)
class Signature:
    """64 bytes over `pae`, and which key is said to have made them. The id only narrows the choice of keys."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with its type and signatures, none of which is verified by being here."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding, in which no type and payload read as another pair."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope_bytes(envelope: Envelope) -> bytes:
    """Return an envelope as canonical JSON (RFC 8785)."""
    return canonical(
        {
            "payload": b64encode(envelope.payload).decode("ascii"),
            "payloadType": envelope.payload_type,
            "signatures": [
                {"keyid": one.key_id, "sig": b64encode(one.value).decode("ascii")} for one in envelope.signatures
            ],
        }
    )


def read_envelope(data: bytes, *, payload_type: str, limit: int) -> Envelope:
    """Return the envelope that JSON of at most `limit` bytes holds. BadEnvelope for anything but one of this type.

    Stricter than DSSE: there are exactly its keys, each once; every signature names its key by 64 hex digits, and no
    key signs twice; base64 is of either alphabet, and is padded and has no stray bit.
    """
    try:
        tree = exactly(read_strict(data, limit=limit), ("payload", "payloadType", "signatures"), "an envelope")
        if tree["payloadType"] != payload_type:
            raise NotStrict(f"its type is {shown(tree['payloadType'])}, not {payload_type!r}")
        payload = _base64(tree["payload"], "a payload")
        signatures = tuple([_signature(one) for one in list_of(tree["signatures"], "signatures")])
        if not 1 <= len(signatures) <= MAX_SIGNATURES:
            raise NotStrict(f"{len(signatures)} signatures; there are 1 to {MAX_SIGNATURES}")
        if len({one.key_id for one in signatures}) != len(signatures):
            raise NotStrict("a key signs twice")
    except NotStrict as error:
        raise BadEnvelope(f"this is no envelope: {error}") from None
    return Envelope(payload_type, payload, signatures)


def _signature(tree: object) -> Signature:
    held = exactly(tree, ("keyid", "sig"), "a signature")
    key_id, value = text_of(held["keyid"], "a keyid"), _base64(held["sig"], "a signature")
    if not _KEY_ID.fullmatch(key_id):
        raise NotStrict(f"a keyid has 64 hex digits, unlike {shown(key_id)}")
    if len(value) != SIGNATURE_BYTES:
        raise NotStrict(f"a signature has {SIGNATURE_BYTES} bytes, not {len(value)}")
    return Signature(key_id, value)


def _base64(tree: object, what: str) -> bytes:
    text = text_of(tree, what)
    plain = text if "+" in text or "/" in text else text.translate(_URL_SAFE)
    try:
        value = a2b_base64(plain.encode("ascii"))
    except (Error, UnicodeEncodeError):
        raise NotStrict(f"{what} is not base64: {shown(text)}") from None
    if b64encode(value).decode("ascii") != plain:
        raise NotStrict(f"{what} is not base64 as it is written: {shown(text)}")
    return value
