"""Domain-separated SHA-256: digests of values, the fingerprint of a call, short digests of paths (fingerprint v1)."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, cast

from agent_run_ledger.kernel.canonical import Json, NotCanonical, canonical, canonical_of_ascii

VALUE_DOMAIN: Final = b"agent-run-ledger/value/v1\n"
LIST_DOMAIN: Final = b"agent-run-ledger/list/v1\n"
FINGERPRINT_DOMAIN: Final = b"agent-run-ledger/fingerprint/v1\n"
FINGERPRINT_VERSION: Final = 1
TAG_CHARACTERS: Final = 4

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def value_sha256(tree: object) -> bytes:
    """Return the 32-byte digest of a JSON tree; raises NotCanonical with the path.

    A list at the top is a chain of element digests, so that a growing list is hashed once per element and not once
    per call; a list below the top is part of its element's bytes. No tree of one kind has the digest of the other.
    """
    if type(tree) is list:
        return list_sha256(element_sha256s(cast("list[object]", tree)))
    return sha256(VALUE_DOMAIN + canonical(tree)).digest()


def element_sha256s(elements: Iterable[object]) -> list[bytes]:
    """Return one 32-byte digest per element, in order; raises NotCanonical with a path that names the element.

    An element that is itself a list is digested as a value, not as a chain.
    """
    digests: list[bytes] = []
    for element in elements:
        try:
            digests.append(sha256(VALUE_DOMAIN + canonical(element)).digest())
        except NotCanonical as error:
            raise error.below(f"$[{len(digests)}]") from None
    return digests


def list_sha256(elements: Iterable[bytes]) -> bytes:
    """Return the digest of the list whose elements have these digests (32 bytes each, in order)."""
    return sha256(LIST_DOMAIN + b"".join(elements)).digest()


def fingerprint(*, name: str, version: str, inputs: Mapping[str, bytes], environment: Mapping[str, bytes]) -> bytes:
    """Return the 32-byte fingerprint of a call: equal exactly when name, version and all digests are equal.

    `inputs` has one digest per bound parameter, `environment` one per declared key. The order of both does not count.
    """
    statement: Json = {
        "environment": {key: digest.hex() for key, digest in environment.items()},
        "inputs": {parameter: digest.hex() for parameter, digest in inputs.items()},
        "name": name,
        "v": FINGERPRINT_VERSION,
        "version": version,
    }
    for text in (*inputs, *environment, name, version):
        if type(text) is not str or not text.isascii():
            return sha256(FINGERPRINT_DOMAIN + canonical(statement)).digest()
    return sha256(FINGERPRINT_DOMAIN + canonical_of_ascii(statement)).digest()


def short_digest(salt: bytes, path: str, digest: bytes) -> str:
    """Return 11 characters that tell whether the value at `path` changed, and nothing about a guessable value.

    They are the first 8 bytes of SHA-256(salt ‖ path in UTF-8 ‖ 0x00 ‖ digest) in base64url (RFC 4648) without
    padding. Compare only under one salt: the salt goes when its record is erased, and the guessing with it.
    """
    return b2a_base64(_salted(salt, path, digest)[:8], newline=False).translate(_URL_SAFE, b"=").decode("ascii")


def path_tags(salt: bytes, digests: Iterable[tuple[str, bytes]]) -> str:
    """Return the first TAG_CHARACTERS of `short_digest(salt, path, digest)` for each (path, digest), joined.

    24 bits tell with good odds whether a value changed, where something else has to decide whether it did.
    """
    tags = b"".join(_salted(salt, path, digest)[:3] for path, digest in digests)
    return b2a_base64(tags, newline=False).translate(_URL_SAFE).decode("ascii")


def _salted(salt: bytes, path: str, digest: bytes) -> bytes:
    return sha256(b"%b%b\0%b" % (salt, path.encode("utf-8"), digest)).digest()
