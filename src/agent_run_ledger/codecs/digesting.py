"""Digests of values that come again: a transcript that grows is digested once per message."""

from __future__ import annotations

from hashlib import sha256
from marshal import dumps
from typing import Any, Final, cast

from agent_run_ledger.codecs.packing import element_digest, value_digest
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.digests import list_sha256

LONG_TEXT_BYTES: Final = 256
"""Shorter texts and numbers are digested as fast as they are looked up."""

MAX_BYTES: Final = 4 * 1024 * 1024
"""How much each of the two generations of a cache holds."""

_MARSHAL_VERSION: Final = 2
"""No references and no interned strings: the bytes depend on nothing but the value."""

_HASHED_FROM_BYTES: Final = 16 * 1024
_ENTRY_BYTES: Final = 256
_MAX_ELEMENTS: Final = 2**16
_MAX_LIST_BYTES: Final = 2**24
"""No value has more parts than bytes: below it the limit of `value_digest` on parts is never reached."""

_LEAVES: Final = frozenset((str, int, float, bool, type(None), bytes, complex))


class DigestCache:
    """`value_digest` with a memory: values that are equal, to the last type within them, are digested once.

    Guarantees: every digest and every error is that of `value_digest` (only a list of objects with more than 2**24
    parts in all may have a digest here and none there). A value is found by its bytes as `marshal` writes them, which
    are never read back, so that one changed in place is another one. Those bytes say every type but one: any object
    with a buffer (a bytearray, an array, a subclass of bytes) is written as bytes are, so that a value with bytes in it
    is looked at before it is looked up. Keeps what was digested last, at most 8 MiB, and may be used by several threads
    at once.
    """

    __slots__ = ("_max_bytes", "_old", "_room", "_young")

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}
        self._room = max_bytes

    def digest(self, value: Any) -> bytes:
        """Return `value_digest(value)`; raises what it raises."""
        kind = type(cast("object", value))
        if kind is list:
            return self.list_digest(cast("list[Any]", value))[0]
        if kind is dict or kind is tuple:
            try:
                written = dumps(value, _MARSHAL_VERSION)
            except ValueError:
                return value_digest(value)
            try:
                return self._young.get(written) or self._remembered(written, value)
            except LedgerError:  # its path begins at an element
                pass
        return value_digest(value)

    def list_digest(self, values: list[Any]) -> tuple[bytes, list[bytes] | None]:
        """Return `value_digest` of a list, and its elements' digests where they were needed for it; raises the same."""
        if len(values) > _MAX_ELEMENTS or _is_light(values):
            return value_digest(values), None
        try:
            elements = self._elements(values)
        except LedgerError:  # its path begins at the element
            elements = None
        return (value_digest(values), None) if elements is None else (list_sha256(elements), elements)

    def _elements(self, values: list[Any]) -> list[bytes] | None:
        """Return the digests of a list's elements; None where it may have more parts than a value can have."""
        size = 0
        elements: list[bytes] = []
        for value in values:
            try:
                written = dumps(value, _MARSHAL_VERSION)
            except ValueError:  # a type that it does not know, or nested too deep
                elements.append(element_digest(value))
                continue
            size += len(written)
            elements.append(self._young.get(written) or self._remembered(written, value))
        return elements if size <= _MAX_LIST_BYTES else None

    def _remembered(self, written: bytes, value: Any) -> bytes:
        """Return the digest of a value that was written so, from memory where it may be. It is that of an element."""
        if len(written) < LONG_TEXT_BYTES and type(value) in _LEAVES:
            return element_digest(value)
        octets = octets_in(value)
        if octets is None:
            return element_digest(value)
        key = written
        if octets or len(written) >= _HASHED_FROM_BYTES:  # `marshal` writes nothing that begins so
            key = b"#" + sha256(written).digest()
        digest = self._young.get(key)
        if digest is not None:
            return digest
        digest = self._old.get(key)
        if digest is None:
            digest = element_digest(value)
            if dumps(value, _MARSHAL_VERSION) != written:  # changed by another thread meanwhile
                return digest
        self._keep(key, digest)
        return digest

    def _keep(self, key: bytes, digest: bytes) -> None:
        """Remember a digest. When the young generation is full it becomes the old one, which is forgotten."""
        self._room -= len(key) + _ENTRY_BYTES
        if self._room < 0:
            self._old, self._young, self._room = self._young, {}, self._max_bytes
        self._young[key] = digest


def octets_in(value: object) -> bool | None:
    """Return whether bytes are in a value of exact built-in types; None for a value of any others, or with a set in it.

    The value must have been written: so it is not endless.
    """
    if type(value) is dict:
        for key, part in cast("dict[object, object]", value).items():
            if type(key) is not str or type(part) is not str:
                break
        else:
            return False  # most messages
    found = False
    level: list[object] = [value]
    while level:
        below: list[object] = []
        for part in level:
            kind = type(part)
            if kind is dict:
                for key, child in cast("dict[object, object]", part).items():
                    if type(key) is not str:
                        if type(key) not in _LEAVES:
                            return None
                        found = found or type(key) is bytes
                    if type(child) is not str:
                        below.append(child)
            elif kind is list or kind is tuple:
                below += cast("list[object]", part)
            elif kind not in _LEAVES:
                return None
            elif kind is bytes:
                found = True
        level = below
    return found


def _is_light(values: list[object]) -> bool:
    """Return whether a list has leaves alone, and its strings are short."""
    kinds = {*map(type, values)}
    if not kinds <= _LEAVES:
        return False
    texts = [value for value in values if type(value) is str] if str in kinds else ()
    return sum(map(len, texts)) < LONG_TEXT_BYTES * len(values)
