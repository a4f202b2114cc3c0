"""Values of the rules as plain JSON and back: frozen dataclasses, enums, bytes, tuples and sets of them."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

KIND = "class"
"""Where a value of one of several classes says which: a word of Python, which no field can have as its name."""

_NAMES: dict[type[Any], tuple[str, ...]] = {}
_HINTS: dict[type[Any], dict[str, Any]] = {}


def to_plain(value: Any) -> Any:
    """Return a value as JSON: bytes in lower-case hex, enums by value, sets sorted, a dataclass as an object.

    Every object names its class under KIND. TypeError for anything else, a float among it.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is bytes:
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if type(value) is tuple:
        return _each(cast(Iterable[Any], value))
    if type(value) is frozenset:
        return sorted(_each(cast(Iterable[Any], value)))
    if is_dataclass(value):
        return {KIND: type(value).__name__, **{name: to_plain(getattr(value, name)) for name in _names(type(value))}}
    raise TypeError(f"{type(value).__name__} has no plain form")


def _each(values: Iterable[Any]) -> list[Any]:
    return [to_plain(one) for one in values]


def from_plain(kind: Any, plain: Any) -> Any:
    """Return the value of a type annotation that `to_plain` gave this for. ValueError where it is of no such value."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), plain)
    if origin is tuple:
        return _tuple_from(get_args(kind), plain)
    if origin is frozenset:
        return frozenset(from_plain(get_args(kind)[0], one) for one in _list(plain))
    if kind is bytes:
        return bytes.fromhex(_exactly(str, plain))
    if kind in (int, str, bool):
        return _exactly(kind, plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(plain)
    return _object_from(cast("type[Any]", kind), plain)


def _one_of(kinds: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in kinds:
        return None
    named = [kind for kind in kinds if kind is not type(None)]
    if len(named) == 1:
        return from_plain(named[0], plain)
    name = name_of(plain)
    for kind in named:
        if kind.__name__ == name:
            return from_plain(kind, plain)
    raise ValueError(f"{name!r} is none of {', '.join(kind.__name__ for kind in named)}")


def _tuple_from(kinds: tuple[Any, ...], plain: Any) -> tuple[Any, ...]:
    items = _list(plain)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_plain(kinds[0], one) for one in items)
    if len(items) != len(kinds):
        raise ValueError(f"{len(items)} items instead of {len(kinds)}")
    return tuple(from_plain(kind, one) for kind, one in zip(kinds, items, strict=True))


def name_of(plain: Any) -> str:
    """Return which class an object says that it is of, empty where it says none."""
    return str(cast("dict[str, Any]", plain).get(KIND, "")) if isinstance(plain, dict) else ""


def _object_from(kind: type[T], plain: Any) -> T:
    tree = cast("dict[str, Any]", _exactly(dict, plain))
    if tree.get(KIND) != kind.__name__ or tree.keys() - {KIND} != set(_names(kind)):
        raise ValueError(f"this is no {kind.__name__}: {tree.get(KIND)!r} with {sorted(tree)}")
    hints = _hints(kind)
    return kind(**{name: from_plain(hints[name], tree[name]) for name in _names(kind)})


def _exactly(kind: type[T], plain: Any) -> T:
    if type(plain) is not kind:
        raise ValueError(f"{type(plain).__name__} instead of {kind.__name__}")
    return plain


def _list(plain: Any) -> list[Any]:
    _exactly(list, plain)
    return cast("list[Any]", plain)


def _names(kind: type[Any]) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = get_type_hints(kind)
    return hints
