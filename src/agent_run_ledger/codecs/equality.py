"""Deep equality that no `==` decides: the same type and the same parts everywhere, NaN equal to itself."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final, cast

from agent_run_ledger.codecs.forms import Form, Parts
from agent_run_ledger.codecs.lookup import form_of
from agent_run_ledger.codecs.refusal import ROOT, segment_of, type_name

_LEAVES: Final = frozenset({str, int, bool, type(None), bytes, bytearray})


def difference(one: object, other: object) -> str | None:
    """Return the path of the first part in which two values differ in type or value, or None where they are equal.

    Dicts are compared with their order. Values that have no stored form are equal when they are the same object.
    """
    found = _difference(one, other)
    return None if found is None else ROOT + found


def _difference(one: object, other: object) -> str | None:
    kind = type(one)
    if kind is not type(other):
        return ""
    if kind in _LEAVES:
        return None if one == other else ""
    if kind is float:
        return None if _bits(cast("float", one)) == _bits(cast("float", other)) else ""
    if kind is list:
        return _first(_items(cast("list[object]", one)), _items(cast("list[object]", other)))
    if kind is dict:
        return _first(_members(cast("dict[object, object]", one)), _members(cast("dict[object, object]", other)))
    if kind is set or kind is frozenset:
        return _set_difference(cast("set[object]", one), cast("set[object]", other))
    form = form_of(kind)
    if form is None:
        return None if one is other else ""
    if not _may_be_equal(form, one, other):
        return ""
    return _first(form.parts(one), form.parts(other))


def _may_be_equal(form: Form, one: object, other: object) -> bool:
    """Ask the type itself, where it can be asked; an array without a truth value gives no answer, and parts decide."""
    try:
        return form.equal is None or form.equal(one, other)
    except Exception:
        return True


def _first(ones: Parts, others: Parts) -> str | None:
    missing = ("", object())
    others = iter(others)
    for segment, one in ones:
        other_segment, other = next(others, missing)
        if segment != other_segment:
            return segment
        below = _difference(one, other)
        if below is not None:
            return segment + below
    return None if next(others, missing) is missing else ""


def _items(values: Iterable[object]) -> Parts:
    return ((f"[{index}]", value) for index, value in enumerate(values))


def _members(values: dict[object, object]) -> Parts:
    for index, (key, value) in enumerate(values.items()):
        yield f".keys()[{index}]", key
        yield segment_of(key), value


def _set_difference(one: set[object], other: set[object]) -> str | None:
    """Pair equal elements, then compare what is left (NaN, objects equal only to themselves) by stored form."""
    if len(one) != len(other):
        return ""
    equals = {element: element for element in other}
    ones: list[object] = []
    others = set(other)
    for element in one:
        if element in equals:
            if _difference(element, equals[element]) is not None:
                return f"{{{type_name(type(element))}}}"
            others.discard(element)
        else:
            ones.append(element)
    if not ones:
        return None
    return _first(_items(_sorted(ones)), _items(_sorted(others)))


def _sorted(elements: Iterable[object]) -> list[object]:
    from agent_run_ledger.codecs.tagging import tagged_bytes

    return sorted(elements, key=tagged_bytes)


def _bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)
