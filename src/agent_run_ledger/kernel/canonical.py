"""The canonical bytes of a JSON tree (RFC 8785), which digests are taken over (format: canonical v1)."""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypeAlias, cast

import orjson
import rfc8785

from agent_run_ledger.errors import Misuse

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""A JSON tree of exactly these types; a subclass (an IntEnum, an OrderedDict) is not one."""

MAX_DEPTH: Final = 250
"""Containers within containers. orjson stops at 254, and a limit of our own does not depend on the caller's stack."""

MAX_INT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly; the smallest is its negative."""

_FAST: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


class NotCanonical(Misuse, ValueError):
    """A tree has no canonical form. `path` says where (`$.a[3].b`), `reason` why."""

    code = "not_canonical"

    def __init__(self, reason: str, path: str = "$") -> None:
        super().__init__(f"{path}: {reason}", hint="give a value that JSON can say exactly, or leave it out")
        self.reason = reason
        self.path = path

    def below(self, prefix: str) -> NotCanonical:
        """Return the same complaint about a tree of which the refused one is the part at `prefix`."""
        return NotCanonical(self.reason, prefix + self.path[1:])


def canonical(tree: object) -> bytes:
    """Return the RFC 8785 bytes of `tree`: UTF-8, keys sorted by UTF-16 code units, no spaces, numbers as ECMAScript.

    1.0 and 1 give the same bytes, so this is a form for digests and never for storage. Raises NotCanonical with the
    path of the first value that is NaN or infinite, an integer of 2**53 or more (either sign), a key that is no
    string, a string with a lone surrogate, any type that `Json` does not name, or nesting beyond MAX_DEPTH.
    """
    fast = _fast(tree)
    if fast is not None:
        return fast
    _refuse(tree, "$", 0)
    return rfc8785.dumps(cast("Any", tree))


def canonical_of_ascii(tree: Json) -> bytes:
    """Return `canonical(tree)`, sooner, for a tree of dicts, ASCII strings and small ints: the caller has looked."""
    return orjson.dumps(tree, option=_FAST)


def is_fast(tree: object) -> bool:
    """Return whether `canonical(tree)` takes the fast path; costs as much as that path."""
    return _fast(tree) is not None


def child_path(path: str, key: object) -> str:
    """Return the path of `key` below `path`: `$.name` for identifiers, `$["other name"]` for other strings, `$[3]`.

    A lone surrogate is written as JSON escapes it, so that the path itself can be printed and stored.
    """
    if type(key) is str and key.isidentifier():
        return f"{path}.{key}"
    if type(key) is str:
        halves = re.split("([\ud800-\udfff])", key)  # what is no half of a pair here stands alone
        shown = [f"\\u{ord(part):04x}" if at % 2 else _escaped(part) for at, part in enumerate(halves)]
        return f'{path}["{"".join(shown)}"]'
    return f"{path}[{key!r}]"


def _escaped(text: str) -> str:
    return orjson.dumps(text).decode("utf-8")[1:-1]


def _fast(tree: object) -> bytes | None:
    """Return orjson's bytes where they are provably RFC 8785's, else None.

    _is_plain leaves only types whose two forms agree and ASCII keys, whose byte order is the UTF-16 order; orjson
    itself refuses wide integers and lone surrogates, and the slow path then says where they are.
    """
    if not _is_plain(tree, 0):
        return None
    try:
        return orjson.dumps(tree, option=_FAST)
    except orjson.JSONEncodeError:
        return None


def _is_plain(tree: object, depth: int) -> bool:
    kind = type(tree)
    if kind is dict:
        if depth >= MAX_DEPTH:
            return False
        for key, value in cast("dict[object, object]", tree).items():
            if type(key) is not str or not key.isascii():
                return False
            # Strings are what records are made of: this line saves a call for most values.
            if type(value) is not str and not _is_plain(value, depth + 1):
                return False
        return True
    if kind is list:
        if depth >= MAX_DEPTH:
            return False
        for value in cast("list[object]", tree):
            if type(value) is not str and not _is_plain(value, depth + 1):
                return False
        return True
    return kind is str or kind is int or kind is bool or tree is None


def _refuse(tree: object, path: str, depth: int) -> None:
    """Raise NotCanonical for the first bad value in reading order; return where there is none."""
    kind = type(tree)
    if kind is dict or kind is list:
        if depth >= MAX_DEPTH:
            raise NotCanonical(f"nested deeper than {MAX_DEPTH} containers", path)
        if kind is list:
            for index, value in enumerate(cast("list[object]", tree)):
                _refuse(value, f"{path}[{index}]", depth + 1)
            return
        for key, value in cast("dict[object, object]", tree).items():
            below = child_path(path, key)
            if type(key) is not str:
                raise NotCanonical(f"a key of type {type(key).__name__}, not str", below)
            _refuse_text(key, below, "a key")
            _refuse(value, below, depth + 1)
        return
    if kind is str:
        _refuse_text(cast("str", tree), path, "a string")
    elif kind is float:
        if not math.isfinite(cast("float", tree)):
            raise NotCanonical(f"{tree!r} is not a JSON number", path)
    elif kind is int:
        if not -MAX_INT <= cast("int", tree) <= MAX_INT:
            raise NotCanonical("an integer of 2**53 or more, which JSON readers round", path)
    elif kind is not bool and tree is not None:
        raise NotCanonical(f"the type {kind.__module__}.{kind.__qualname__} is not a JSON type", path)


def _refuse_text(text: str, path: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotCanonical(f"{what} with a lone surrogate at character {error.start}", path) from None
