"""Ed25519 public keys as 32 bytes: the id of one, and which of them anybody could sign for."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_SPKI: Final = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes in a SubjectPublicKeyInfo of Ed25519 (RFC 8410)."""

_FIELD: Final = 2**255 - 19
_ORDER_8: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_SMALL: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})
"""The y of the points whose order divides 8: a signature by one of them proves no secret."""


def key_id_of(public: bytes) -> str:
    """Return the id of a public key: SHA-256 over its SubjectPublicKeyInfo in DER, as lower-case hex.

    `openssl pkey -pubin -outform DER | sha256sum` says the same.
    """
    return sha256(_SPKI + public).hexdigest()


def is_sound(public: bytes) -> bool:
    """Return whether 32 bytes can be somebody's key: a y that is written as RFC 8032 does, of no point of small order.

    Whether a point has that y is not looked at: where none has, nothing verifies.
    """
    if len(public) != PUBLIC_KEY_BYTES:
        return False
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return y < _FIELD and y not in _SMALL
