"""Reads and restores the attributes of plain instances without running any of their code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MemberDescriptorType
from typing import Any, Final, cast

_HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE (CPython's object.h): set for classes that a class statement made."""


def state_of(instance: object) -> dict[str, object]:
    """Return the attributes in `__dict__` and in slots by name, without cached properties, which are derived."""
    namespace = _namespace(instance) or {}
    state = {name: value for name, value in namespace.items() if not _is_cached_property(instance, name)}
    for name, slot in _slots(type(instance)):
        try:
            state[name] = slot.__get__(instance)
        except AttributeError:  # a slot that was never set
            continue
    return state


def restore_state(instance: object, state: Mapping[str, object]) -> None:
    """Set attributes as `state_of` found them; raise AttributeError where the class has no place for one."""
    slots = dict(_slots(type(instance)))
    namespace = _namespace(instance)
    for name, value in state.items():
        if name in slots:
            slots[name].__set__(instance, value)
        elif namespace is None:
            raise AttributeError(name)
        else:
            namespace[name] = value


def is_plain_layout(kind: type) -> bool:
    """Return whether instances hold nothing but attributes: no built-in type but object is among the bases."""
    return all(base is object or is_heap_type(base) for base in kind.__mro__)


def is_heap_type(kind: type) -> bool:
    """Return whether a class statement made `kind`; False for classes that C code defines statically."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def _namespace(instance: object) -> dict[str, object] | None:
    try:
        return cast("dict[str, object]", object.__getattribute__(instance, "__dict__"))
    except AttributeError:
        return None


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    for base in filter(is_heap_type, reversed(kind.__mro__)):
        for name, found in vars(base).items():
            if type(found) is MemberDescriptorType:
                yield name, found


def _is_cached_property(instance: object, name: str) -> bool:
    for base in type(instance).__mro__:
        if name in vars(base):
            return isinstance(vars(base)[name], cached_property)
    return False
