"""What the stored form of one kind of value consists of: its tag, how it is written, read and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agent_run_ledger.kernel.canonical import Json

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

Body: TypeAlias = dict[str, Any]
"""The members of a tagged object besides the tag, as JSON."""

Parts: TypeAlias = Iterable[tuple[str, object]]
"""(path segment, child) pairs that together are all of a value: two values are equal when their parts are."""


class Damaged(Exception):
    """A tagged object does not have the members that its tag requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One tag of encode v1.

    `parts` takes a value apart independently of `write`, so that it can check it; `equal` is asked as well, where a
    type knows more about equality than its parts say.
    """

    tag: str
    write: Callable[[Any, Writer], Body]
    read: Callable[[Body, Reader], object]
    parts: Callable[[Any], Parts]
    equal: Callable[[Any, Any], bool] | None = None


def class_of(value: object) -> type:
    """Return the exact type of a value that its own `__class__` cannot disguise."""
    return type(value)


def member(body: Body, name: str, kind: type) -> Any:
    """Return the member `name`, which must be exactly of the JSON type `kind`; else raise Damaged."""
    found = body.get(name)
    if type(found) is not kind:
        raise Damaged(f"member {name!r} is missing or no {kind.__name__}")
    return found


def text(body: Body, name: str = "v") -> str:
    """Return a string member; else raise Damaged."""
    return cast("str", member(body, name, str))


def whole(body: Body, name: str = "v") -> int:
    """Return an integer member; else raise Damaged."""
    return cast("int", member(body, name, int))


def array(body: Body, name: str = "v") -> list[Json]:
    """Return an array member, still in stored form; else raise Damaged."""
    return cast("list[Json]", member(body, name, list))


def named(body: Body, name: str) -> dict[str, Json]:
    """Return an object member with user keys, its values still in stored form; else raise Damaged."""
    return cast("dict[str, Json]", member(body, name, dict))


def names(body: Body, name: str) -> list[str]:
    """Return an optional array of strings, empty where it is absent; else raise Damaged."""
    found = body.get(name, [])
    if type(found) is not list or any(type(item) is not str for item in cast("list[object]", found)):
        raise Damaged(f"member {name!r} is no array of strings")
    return cast("list[str]", found)
