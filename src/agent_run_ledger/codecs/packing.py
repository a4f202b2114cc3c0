"""Packs a result for its record: encoded, proven to survive the round trip, digested, compressed, within the limit."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, cast

import orjson

from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.plain import TAG, has_whole_float, is_plain
from agent_run_ledger.codecs.refusal import type_name
from agent_run_ledger.codecs.tagging import STRICT, Writer, plain_bytes, tagged_bytes, tree, write
from agent_run_ledger.codecs.untagging import decode
from agent_run_ledger.errors import Tampered, Unstorable
from agent_run_ledger.kernel.canonical import MAX_INT, Json, NotCanonical
from agent_run_ledger.kernel.digests import VALUE_DOMAIN, element_sha256s, value_sha256

RAW: Final = 0
ZLIB: Final = 1
MAX_PAYLOAD_BYTES: Final = 256 * 1024 * 1024
"""No encoded value is larger, whatever limit a ledger is given: what `unpack` will not open must not be packed."""

_COMPRESS_FROM_BYTES: Final = 4096
_KEEP_BELOW: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A value ready for its record.

    `payload` is the stored bytes, `encoding` how they are packed (0 raw, 1 zlib), `value_sha256` the 32-byte digest of
    the value. `decoded` was read from the payload: a live consumer sees exactly what a restored one will see.
    `finite` is False when the value holds NaN or an infinity, which `value_digest` refuses in an input.
    """

    payload: bytes
    encoding: int
    value_sha256: bytes
    decoded: object
    finite: bool = True


def pack(value: object, *, limit_bytes: int) -> Packed:
    """Return `value` packed, after its round trip was shown to keep value and type of every part.

    Raises Unstorable with the path of what has no exact stored form, or with code "too_large" when the encoded form
    has more than `limit_bytes` before compression.
    """
    limit = min(limit_bytes, MAX_PAYLOAD_BYTES)
    encoded = plain_bytes(value, max_nodes=limit)
    if encoded is not None:
        _check_size(value, encoded, limit)
        decoded = orjson.loads(encoded)
        # Equal bytes of equal values show equal types: orjson writes no two plain values of different type alike.
        if decoded == value and orjson.dumps(decoded, option=STRICT) == encoded:
            return _packed(encoded, decoded, _plain_sha256(decoded, limit), finite=True)
    encoded = tagged_bytes(value, max_nodes=limit)
    _check_size(value, encoded, limit)
    decoded = _proven_copy(value, encoded)
    writer = Writer(digest=True, max_nodes=limit)
    digest = value_sha256(write(decoded, writer))
    return _packed(encoded, decoded, digest, finite=not writer.non_finite)


def unpack(encoding: int, payload: bytes, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> object:
    """Return the value of a record's payload.

    Opens at most `limit_bytes`. Raises Tampered for bytes that are no packed value, and what `decode` raises.
    """
    return decode(_opened(encoding, payload, limit_bytes))


def unpack_without(encoding: int, payload: bytes, member: str) -> tuple[object, bytes | None]:
    """Return the value of a packed dict without one member, and that member's own stored form; None where it has none.

    So what a program keeps in the dict can be read where a class in that member is gone. Raises what `unpack` raises.
    """
    opened = _opened(encoding, payload, MAX_PAYLOAD_BYTES)
    if orjson.dumps(member) not in opened:
        return decode(opened), None
    try:
        loaded: object = orjson.loads(opened)
    except ValueError as error:
        raise Tampered(f"a stored value is no JSON: {error}", code="damaged_value") from error
    members = cast("dict[str, object]", loaded) if type(loaded) is dict else {}
    if TAG in members or member not in members:
        return decode(opened), None
    kept = orjson.dumps(members.pop(member))
    return decode(orjson.dumps(members)), kept


def _opened(encoding: int, payload: bytes, limit_bytes: int) -> bytes:
    if encoding == RAW:
        return payload
    if encoding != ZLIB:
        raise Tampered(f"a stored value has the unknown encoding {encoding}", code="damaged_value")
    inflater = zlib.decompressobj()
    try:
        encoded = inflater.decompress(payload, limit_bytes + 1)
    except zlib.error as error:
        raise Tampered(f"a stored value does not decompress: {error}", code="damaged_value") from error
    if len(encoded) > limit_bytes:
        raise Tampered(f"a stored value opens to more than {limit_bytes:,} bytes", code="too_large")
    if not inflater.eof or inflater.unused_data:
        raise Tampered("a stored value is cut short or has bytes after its end", code="damaged_value")
    return encoded


def value_digest(value: object) -> bytes:
    """Return the 32-byte digest of a value: the same for the value and for what its stored form restores.

    Values that differ in type anywhere have different digests: 1, 1.0, True and "1" are four inputs. The order of a
    dict's or set's members is no part of it.

    Raises NotFinite with the path of a NaN or an infinity, and Unstorable as `encode` does.
    """
    kind = type(value)
    if kind is str or (kind is int and -MAX_INT <= cast("int", value) <= MAX_INT):
        try:
            return sha256(VALUE_DOMAIN + orjson.dumps(value)).digest()  # what canonical() writes for any of these
        except TypeError:  # a lone surrogate
            return value_sha256(tree(value))
    if is_plain(value, for_digest=True):
        try:
            return value_sha256(value)
        except NotCanonical:  # a lone surrogate, which the tree tags
            pass
    return value_sha256(tree(value))


def element_digest(value: object) -> bytes:
    """Return the 32-byte digest that `value` has as an element: `value_digest` of a list is the chain of these.

    A list within a list is no chain of its own. Raises what `value_digest` raises, with paths that begin at `$[0]`.
    """
    if type(value) is str or type(value) is int:
        return value_digest(value)
    alone: list[object] = [value]
    if is_plain(alone, for_digest=True):
        try:
            return element_sha256s(cast("list[object]", alone))[0]
        except NotCanonical:  # a lone surrogate, which the tree tags
            pass
    return element_sha256s(cast("list[Json]", tree(alone)))[0]


def _plain_sha256(value: Json, max_nodes: int) -> bytes:
    """Return the digest of a value that is its own stored form, and mostly its own digest tree as well."""
    if has_whole_float(value):
        return value_sha256(write(value, Writer(digest=True, max_nodes=max_nodes)))
    return value_sha256(value)


def _proven_copy(value: object, encoded: bytes) -> object:
    """Return the decoded value; raise Unstorable where it is not the value."""
    kind = type_name(type(value))
    try:
        decoded = decode(encoded)
        path = difference(value, decoded)
    except Exception as error:  # parts of a user's class may raise anything while they are compared
        raise Unstorable(f"$: not restored from its own stored form: {error}", path="$", type_name=kind) from error
    if path is not None:
        raise Unstorable(f"{path}: changed by a round trip through its stored form", path=path, type_name=kind)
    return decoded


def _check_size(value: object, encoded: bytes, limit: int) -> None:
    if len(encoded) > limit:
        message = f"$: the encoded value has {len(encoded):,} bytes, the limit is {limit:,}"
        hint = "return a reference to a file or a smaller value"
        raise Unstorable(message, path="$", type_name=type_name(type(value)), code="too_large", hint=hint)


def _packed(encoded: bytes, decoded: object, digest: bytes, *, finite: bool) -> Packed:
    payload, encoding = encoded, RAW
    if len(encoded) >= _COMPRESS_FROM_BYTES:
        squeezed = zlib.compress(encoded, 1)
        if len(squeezed) <= _KEEP_BELOW * len(encoded):
            payload, encoding = squeezed, ZLIB
    return Packed(payload=payload, encoding=encoding, value_sha256=digest, decoded=decoded, finite=finite)
