"""The exact-type walk that shows a value to be plain JSON, which needs no tags and may take orjson's fast path."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeGuard, cast

from agent_run_ledger.kernel.canonical import MAX_INT, Json

TAG: Final = "$arl"
"""The key that marks a tagged object; a user's dict that holds it is escaped."""

MAX_DEPTH: Final = 200
"""Levels of JSON containers in the stored form; orjson writes at most 254."""

MAX_NODES: Final = 2**24
"""Values within one value. Shared references are written out once per use, so a small object graph can be huge."""


def is_plain(value: object, *, max_nodes: int = MAX_NODES, for_digest: bool = False) -> TypeGuard[Json]:
    """Return whether `value` is its own stored form: exactly dict, list, str, int, float, bool and None.

    With `for_digest`, whether it is its own digest tree as well: no float in it is a whole number.

    False for every subclass, for keys that are no str, for a dict that holds the tag key, for an integer of 2**53 or
    more, for NaN, infinities and -0.0, beyond MAX_DEPTH levels (so for every cycle) and beyond `max_nodes` values.
    Lone surrogates are not looked for: orjson and `canonical` refuse them, and the caller then takes the slow path.
    """
    is_leaf = _is_digest_leaf if for_digest else is_plain_leaf
    if type(value) is not dict and type(value) is not list:
        return is_leaf(value)
    level: list[object] = [value]
    nodes = 0
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for container in level:
            nodes += len(cast("list[object]", container))
            if nodes > max_nodes or not _collect(container, below, is_leaf):
                return False
        if not below:
            return True
        level = below
    return False


def is_plain_leaf(value: object) -> bool:
    """Return whether `value` is a str, bool, None, integer below 2**53 or finite float that is not -0.0, exactly."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -MAX_INT <= cast("int", value) <= MAX_INT
    return kind is float and is_plain_float(cast("float", value))


def is_plain_float(value: float) -> bool:
    """Return whether JSON and canonical JSON can both say this float: it is finite and not -0.0."""
    return math.isfinite(value) and (value != 0.0 or math.copysign(1.0, value) > 0)


def is_well_formed(value: object) -> bool:
    """Return whether a string has a UTF-8 form, that is, no lone surrogate."""
    string = cast("str", value)
    if string.isascii():
        return True
    try:
        string.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_digest_leaf(value: object) -> bool:
    """Return whether a leaf is plain and no float that canonical JSON writes as it writes an integer."""
    if type(value) is float:
        return math.isfinite(value) and not value.is_integer()
    return is_plain_leaf(value)


def has_whole_float(value: Json) -> bool:
    """Return whether a float in a plain value is a whole number, which the tree for digests tags."""
    level: list[Json] = [value]
    while level:
        below: list[Json] = []
        for item in level:
            kind = type(item)
            if kind is list:
                below += cast("list[Json]", item)
            elif kind is dict:
                below += cast("dict[str, Json]", item).values()
            elif kind is float and cast("float", item).is_integer():
                return True
        level = below
    return False


def _collect(container: object, below: list[object], is_leaf: Callable[[object], bool]) -> bool:
    """Check the direct children of an exact dict or list and append the containers among them to `below`."""
    if type(container) is dict:
        for key in cast("dict[object, object]", container):
            if type(key) is not str or key == TAG:
                return False
        children: Iterable[object] = cast("dict[str, object]", container).values()
    else:
        children = cast("list[object]", container)
    for child in children:
        kind = type(child)
        if kind is str:
            continue
        if kind is dict or kind is list:
            below.append(child)
        elif not is_leaf(child):
            return False
    return True
