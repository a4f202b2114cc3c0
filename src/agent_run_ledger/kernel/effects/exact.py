"""Whether a value is to the letter what its class says: then its record gives back this very value."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

Fits = Callable[[Any], bool]

_BEYOND_JSON: Final = 1 << 53


def is_exact(value: Any) -> bool:
    """Return whether every part of a dataclass is exactly of its annotation, and such that JSON holds it.

    True only for what `to_plain` writes and `from_plain` reads back equal and of the same types. False says nothing:
    a word in the place of an enum is read back as that one.
    """
    kind = cast("Hashable", type(value))
    return is_dataclass(kind) and _of(kind)(value)


@cache
def _of(kind: Any) -> Fits:
    """Return what asks whether a value is exactly of a type annotation."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [_of(one) for one in get_args(kind)]
        return lambda value: any(fits(value) for fits in kinds)
    if origin is tuple:
        return _tuple_of(get_args(kind))
    if origin is frozenset:
        return _many_of(frozenset, _of(get_args(kind)[0]))
    if kind is int:
        return lambda value: type(value) is int and -_BEYOND_JSON < value < _BEYOND_JSON
    if kind is str:
        return lambda value: type(value) is str and (value.isascii() or is_whole(value))
    if kind in (bytes, bool, type(None)) or (isinstance(kind, type) and issubclass(kind, Enum)):
        return lambda value: type(value) is kind
    return _object_of(kind)


def _tuple_of(kinds: tuple[Any, ...]) -> Fits:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return _many_of(tuple, _of(kinds[0]))
    parts, is_tuple = [_of(kind) for kind in kinds], _many_of(tuple, lambda _: True)
    return lambda value: (
        is_tuple(value) and len(value) == len(parts) and all(fits(one) for fits, one in zip(parts, value, strict=True))
    )


def _many_of(collection: Any, each: Fits) -> Fits:
    return lambda value: type(value) is collection and all(each(one) for one in value)


def _object_of(kind: Any) -> Fits:
    hints = get_type_hints(kind)
    parts = [(field.name, _of(hints[field.name])) for field in fields(kind)]

    def fits(value: Any) -> bool:
        if type(value) is not kind:
            return False
        for name, fits_part in parts:  # noqa: SIM110 - a generator would cost as much as what it asks
            if not fits_part(getattr(value, name)):
                return False
        return True

    return fits


def is_whole(text: str) -> bool:
    """Return whether no character is half of one, which JSON does not hold."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
