"""Where in a run a call was made: a path of 12-byte elements, one per enclosing call, branch or key (scopes v1)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

ELEMENT_BYTES: Final = 12
KEY_BYTES: Final = 16
ROOT: Final = b""
WRAPPED: Final = (1 << 40) - 1
"""The group of what `wrap` makes in a scope: threads of the program's own, of which none comes after another one."""
SCOPE_DOMAIN: Final = b"agent-run-ledger/scope/v1\n"


class ScopeKind(IntEnum):
    """What an element of a scope stands for; its first byte."""

    CALL = 1  # within the body of a call
    BRANCH = 2  # one branch of a gather, a map or a wrap
    KEYED = 3  # a call that was given a key


@dataclass(frozen=True, slots=True)
class Branch:
    """The `number`-th branch of the `group`-th gather or map of its scope, or its `number`-th wrap; both from 0."""

    group: int
    number: int


def call_scope(key: bytes, scope: bytes, name: str, fingerprint: bytes, occurrence: int) -> bytes:
    """Return the scope within the body of a call. `key`: the run's own 16 bytes, without which nothing is guessed.

    Unlike the fingerprint, scopes survive an erasure: the key goes with the run's START.
    """
    call = b"%b\0%b\0%d" % (name.encode("utf-8"), fingerprint, occurrence)
    return scope + _keyed(ScopeKind.CALL, key, scope, call)


def keyed_scope(key: bytes, scope: bytes, name: str, text: str) -> bytes:
    """Return the scope in which the calls of a step that share a key of the program's are counted."""
    return scope + _keyed(ScopeKind.KEYED, key, scope, b"%b\0%b" % (name.encode("utf-8"), text.encode("utf-8")))


def branch_scope(scope: bytes, group: int, number: int) -> bytes:
    """Return the scope of one branch: its two numbers as they are, 5 and 6 bytes big-endian."""
    return scope + bytes((ScopeKind.BRANCH,)) + group.to_bytes(5, "big") + number.to_bytes(6, "big")


def enclosing_call(scope: bytes) -> bytes:
    """Return the scope without the branches and keys at its end: that of the nearest enclosing call, or the run's."""
    while scope and scope[-ELEMENT_BYTES] != ScopeKind.CALL:
        scope = scope[:-ELEMENT_BYTES]
    return scope


def elements(scope: bytes) -> list[tuple[ScopeKind, Branch | None]]:
    """Return what each element of a scope is, from outside in. ValueError for bytes that are no scope."""
    if len(scope) % ELEMENT_BYTES:
        raise ValueError("a scope is a whole number of elements")
    found: list[tuple[ScopeKind, Branch | None]] = []
    for at in range(0, len(scope), ELEMENT_BYTES):
        kind = ScopeKind(scope[at])
        group, number = scope[at + 1 : at + 6], scope[at + 6 : at + 12]
        branch = Branch(int.from_bytes(group, "big"), int.from_bytes(number, "big"))
        found.append((kind, branch if kind is ScopeKind.BRANCH else None))
    return found


def _keyed(kind: ScopeKind, key: bytes, scope: bytes, statement: bytes) -> bytes:
    tag = hmac.digest(key, b"%b%d\0%b%b" % (SCOPE_DOMAIN, len(scope), scope, statement), "sha256")
    return bytes((kind,)) + tag[: ELEMENT_BYTES - 1]
