"""Values of the rules as plain JSON and back: frozen dataclasses, enums, bytes, tuples and sets of them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Convert = Callable[[Any], Any]

KIND = "class"
"""Where a value of one of several classes says which: a word of Python, which no field can have as its name."""

_PLAIN = frozenset({bool, int, str, type(None)})


def to_plain(value: Any) -> Any:
    """Return a value as JSON: bytes in lower-case hex, enums by value, sets sorted, a dataclass as an object.

    Every object names its class under KIND, and leaves out what has its default. TypeError for anything else, a float
    among it.
    """
    return _WRITERS[type(value)](value)


def from_plain(kind: Any, plain: Any) -> Any:
    """Return the value of a type annotation that `to_plain` gave this for. ValueError where it is of no such value."""
    return _reader(kind)(plain)


def name_of(plain: Any) -> str:
    """Return which class an object says that it is of, empty where it says none."""
    return str(cast("dict[str, Any]", plain).get(KIND, "")) if isinstance(plain, dict) else ""


class _Writers(dict[Any, Convert]):
    """What writes the values of each class, made when the first one comes."""

    def __missing__(self, kind: Any) -> Convert:
        """Make what writes a class."""
        self[kind] = made = _writer(kind)
        return made


_WRITERS: Final = _Writers()


def _writer(kind: Any) -> Convert:
    """Return what writes the values of a class."""
    if kind in _PLAIN:
        return _as_it_is
    if kind is bytes:
        return bytes.hex
    if issubclass(kind, Enum):
        return attrgetter("_value_")
    if kind is tuple:
        return _each
    if kind is frozenset:
        return lambda values: sorted(_each(values))
    return _object_writer(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _each(values: Iterable[Any]) -> list[Any]:
    return [_WRITERS[type(one)](one) for one in values]


def _object_writer(kind: type[Any]) -> Convert:
    """Return what writes the values of a dataclass. Nothing else is None, a truth or a word: there `is` decides."""
    name_of_class, plain, writers = kind.__name__, _PLAIN, _WRITERS
    members = [(name, default, _is_alone(default)) for name, default in _defaults(kind)]

    def write(value: Any) -> dict[str, Any]:
        tree: dict[str, Any] = {KIND: name_of_class}
        for name, default, is_alone in members:
            held = getattr(value, name)
            if held is not default and (is_alone or not _same(held, default)):
                tree[name] = held if type(held) in plain else writers[type(held)](held)
        return tree

    return write


def _is_alone(default: object) -> bool:
    return default is None or default is MISSING or isinstance(default, bool | Enum)


def _same(held: Any, default: Any) -> bool:
    return type(held) is type(default) and bool(held == default)


def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass with their defaults, MISSING where there is none."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no plain form")
    return tuple((field.name, field.default) for field in fields(kind))


@cache
def _reader(kind: Any) -> Convert:
    """Return what reads the values of a type annotation."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(get_args(kind))
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if origin is frozenset:
        each = _reader(get_args(kind)[0])
        return lambda plain: frozenset([each(one) for one in _list(plain)])
    if kind is bytes:
        return lambda plain: bytes.fromhex(_exactly(str, plain))
    if kind in (int, str, bool):
        return lambda plain: _exactly(kind, plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return _object_reader(cast("type[Any]", kind))


def _union_reader(kinds: tuple[Any, ...]) -> Convert:
    named = {kind.__name__: _reader(kind) for kind in kinds if kind is not type(None)}
    only, optional = next(iter(named.values())), type(None) in kinds

    def read(plain: Any) -> Any:
        if plain is None and optional:
            return None
        if len(named) == 1:
            return only(plain)
        name = name_of(plain)
        if name not in named:
            raise ValueError(f"{name!r} is none of {', '.join(named)}")
        return named[name](plain)

    return read


def _tuple_reader(kinds: tuple[Any, ...]) -> Convert:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        each = _reader(kinds[0])
        return lambda plain: tuple([each(one) for one in _list(plain)])
    readers = [_reader(kind) for kind in kinds]

    def read(plain: Any) -> Any:
        items = _list(plain)
        if len(items) != len(readers):
            raise ValueError(f"{len(items)} items instead of {len(readers)}")
        return tuple([read_one(one) for read_one, one in zip(readers, items, strict=True)])

    return read


def _object_reader(kind: type[Any]) -> Convert:
    hints = get_type_hints(kind)
    members = {name: (hints[name], _reader(hints[name]), default) for name, default in _defaults(kind)}

    def read(plain: Any) -> Any:
        tree = dict(cast("dict[str, Any]", _exactly(dict, plain)))
        if tree.pop(KIND, None) != kind.__name__ or not tree.keys() <= members.keys():
            raise ValueError(f"this is no {kind.__name__}: {plain.get(KIND)!r} with {sorted(plain)}")
        for name, item in tree.items():
            hint, convert, default = members[name]
            if hint is not type(item) or hint not in _PLAIN:
                tree[name] = convert(item)
            if default is not MISSING and _same(tree[name], default):
                raise ValueError(f"{kind.__name__}: {name} has its default, which is left out")
        try:
            return kind(**tree)
        except TypeError as error:
            raise ValueError(f"this is no {kind.__name__}: {error}") from error

    return read


def _exactly(kind: type[T], plain: Any) -> T:
    if type(plain) is not kind:
        raise ValueError(f"{type(plain).__name__} instead of {kind.__name__}")
    return plain


def _list(plain: Any) -> list[Any]:
    _exactly(list, plain)
    return cast("list[Any]", plain)
