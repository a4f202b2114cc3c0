"""Dataclass instances by class and attribute, restored without `__init__`, `__new__` or `__post_init__`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Form, Parts, class_of, named, names, text
from agent_run_ledger.codecs.instance_state import is_plain_layout, restore_state, state_of
from agent_run_ledger.codecs.refusal import CODEC_HINT, Refusal, segment_of, type_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader


def owns(kind: type) -> bool:
    """Return whether `kind` is a dataclass whose instances hold nothing but attributes."""
    return dataclasses.is_dataclass(kind) and is_plain_layout(kind)


def _write(value: Any, put: Writer) -> Body:
    kind = class_of(value)
    path = class_path(kind)
    state = state_of(value)
    fields = _field_names(kind)
    _refuse_other_state(kind, state, fields)
    body: Body = {"t": path, "f": put.named({name: state[name] for name in fields if name in state}, attributes=True)}
    unset = [name for name in fields if name not in state]
    return {**body, "u": unset} if unset else body


def _refuse_other_state(kind: type, state: dict[str, object], fields: tuple[str, ...]) -> None:
    for name in state:
        if name not in fields:
            reason = f"the {type_name(kind)} has the attribute {name!r}, which is no field and would be lost"
            refusal = Refusal(reason, kind=kind, hint=f"make it a field; or {CODEC_HINT}")
            refusal.within(segment_of(name))
            raise refusal


def _read(body: Body, take: Reader) -> object:
    path = text(body, "t")
    kind: Any = resolve(path)
    if not owns(kind):
        raise gone(path, "it is no dataclass any more", code="class_changed")
    stored = named(body, "f")
    expected = {*stored, *names(body, "u")}
    if expected != set(_field_names(kind)):
        changed = sorted(expected.symmetric_difference(_field_names(kind)))
        raise gone(path, f"its fields changed ({', '.join(changed)})", code="class_changed")
    value = object.__new__(kind)
    restore_state(value, take.named(stored))
    return value


def _parts(value: Any) -> Parts:
    return ((f".{name}", item) for name, item in sorted(state_of(value).items()))


def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


DATACLASS: Final = Form(tag="dataclass", write=_write, read=_read, parts=_parts)
