"""Enum members by class and name (flags by bits), with a witness that the class still means the same."""

from __future__ import annotations

from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, Final, cast

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Form, Parts, class_of, named, text
from agent_run_ledger.codecs.refusal import written_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader


def owns(kind: type) -> bool:
    """Return whether `kind` is an Enum class of any flavour."""
    return issubclass(kind, Enum)


def _write(value: Enum, put: Writer) -> Body:
    kind = class_of(value)
    path = class_path(kind)
    if isinstance(value, Flag):
        bits = int(value._value_)
        body: Body = {"t": path, "b": put.node(bits)}
        if contained := _contained(kind, bits):
            body["n"] = put.named({member._name_: int(member._value_) for member in contained})
        return body
    body = {"t": path, "n": written_name(value._name_, kind)}
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
        return _flag(kind, path, take.node(body["b"]), take.named(named(body, "n")) if "n" in body else {})
    name = text(body, "n")
    member = kind._member_map_.get(name)
    if member is None:
        raise gone(path, f"it has no member {name} any more", code="class_changed")
    if "v" in body and not take.is_same(member._value_, take.node(body["v"])):
        raise gone(path, f"the value of its member {name} changed", code="class_changed")
    return member  # type: ignore[no-any-return]


def _contained(kind: Any, bits: int) -> list[Any]:
    """Return the members that a flag's bits are made of, by value: one per named bit, then what names the rest.

    A member of several bits counts only where one of them has no name of its own, so that a new alias for old members
    changes nothing. For no bits at all it is the member that is zero.
    """
    within = [member for member in _members(kind) if member._value_ & bits == member._value_]
    if bits == 0:
        return within
    single = sum(member._value_ for member in within if member._value_.bit_count() == 1)
    return [member for member in within if member._value_.bit_count() == 1 or member._value_ & ~single]


def _members(kind: Any) -> list[Any]:
    """Return each member once, by value; an alias of equal bits is the same member."""
    return sorted({id(member): member for member in kind._member_map_.values()}.values(), key=lambda m: m._value_)


def _flag(kind: Any, path: str, bits: object, stored: dict[str, object]) -> Flag:
    if not issubclass(kind, Flag) or type(bits) is not int:
        raise gone(path, "it is no Flag any more", code="class_changed")
    for name, value in stored.items():
        if name not in kind._member_map_:
            raise gone(path, f"it has no member {name} any more", code="class_changed")
        if type(value) is not int or kind._member_map_[name]._value_ != value:
            raise gone(path, f"the value of its member {name} changed", code="class_changed")
    # No bits cannot have meant another member: a class may name its zero later.
    if bits or stored:
        found = _contained(kind, bits)
        if {member._value_ for member in found} != set(stored.values()):
            now = ", ".join(member._name_ for member in found) or "no member"
            raise gone(path, f"the bits {bits:#x} contain {now} now", code="class_changed")
    return _of_bits(kind, path, bits)


def _of_bits(kind: Any, path: str, bits: int) -> Flag:
    found = kind._value2member_map_.get(bits)
    if found is None:
        # The library's own rule for combinations: calling the class could run a `_missing_` of the user's.
        try:
            found = Flag._missing_.__func__(kind, bits)  # type: ignore[attr-defined]
        except ValueError as error:
            raise gone(path, f"it has no bits {bits:#x} any more", code="class_changed") from error
    if type(found) is not kind or found._value_ != bits:  # a boundary that drops bits or gives them back as a number
        raise gone(path, f"it has no bits {bits:#x} any more", code="class_changed")
    return cast("Flag", found)


def _parts(value: Enum) -> Parts:
    return ((".name", id(value)),)  # a member is itself or it is another


ENUM: Final = Form(tag="enum", write=_write, read=_read, parts=_parts)
