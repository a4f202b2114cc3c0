"""Enum members by class and name (flags by value), with the value as a witness that the class still means the same."""

from __future__ import annotations

from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Form, Parts, text

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader


def owns(kind: type) -> bool:
    """Return whether `kind` is an Enum class of any flavour."""
    return issubclass(kind, Enum)


def _write(value: Enum, put: Writer) -> Body:
    kind = type(value)
    path = class_path(kind)
    if isinstance(value, Flag):
        return {"t": path, "b": put.node(int(value._value_))}
    body: Body = {"t": path, "n": value._name_}
    witness = put.attempt("value", value._value_)
    if witness is not None:
        (body["v"],) = witness
    return body


def _read(body: Body, take: Reader) -> Enum:
    path = text(body, "t")
    kind: Any = resolve(path)
    if not issubclass(kind, Enum):
        raise gone(path, "it is no Enum any more", code="class_changed")
    if "b" in body:
        return _flag(kind, path, take.node(body["b"]))
    name = text(body, "n")
    member = kind._member_map_.get(name)
    if member is None:
        raise gone(path, f"it has no member {name} any more", code="class_changed")
    if "v" in body and not take.is_same(member._value_, take.node(body["v"])):
        raise gone(path, f"the value of its member {name} changed", code="class_changed")
    return member  # type: ignore[no-any-return]


def _flag(kind: Any, path: str, bits: object) -> Flag:
    if not issubclass(kind, Flag) or type(bits) is not int:
        raise gone(path, "it is no Flag any more", code="class_changed")
    found = kind._value2member_map_.get(bits)
    if found is None:
        # The library's own rule for combinations: calling the class could run a `_missing_` of the user's.
        try:
            found = Flag._missing_.__func__(kind, bits)  # type: ignore[attr-defined]
        except ValueError as error:
            raise gone(path, f"it has no bits {bits:#x} any more", code="class_changed") from error
    return found  # type: ignore[no-any-return]


def _parts(value: Enum) -> Parts:
    return ((".name", id(value)),)  # a member is itself or it is another


ENUM: Final = Form(tag="enum", write=_write, read=_read, parts=_parts)
