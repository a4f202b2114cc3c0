"""Pydantic models and URLs, restored without validation; pydantic itself is used only where the program loaded it."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, class_of, named, names, text
from agent_run_ledger.codecs.instance_state import restore_state, state_of
from agent_run_ledger.codecs.refusal import Refusal, type_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_FIELDS_SET: Final = "__pydantic_fields_set__"
_EXTRA: Final = "__pydantic_extra__"
_PRIVATE: Final = "__pydantic_private__"
_TYPE_ARGUMENTS: Final = frozenset({int, str, float, bool, bytes, list, dict, date, datetime, Decimal, type(None)})


def owns_model(kind: type) -> bool:
    """Return whether `kind` is a pydantic v2 model class."""
    base = _loaded("pydantic.main", "BaseModel")
    return base is not None and issubclass(kind, base)


def owns_url(kind: type) -> bool:
    """Return whether `kind` is one of pydantic's URL classes."""
    bases = (_loaded("pydantic.networks", "_BaseUrl"), _loaded("pydantic.networks", "_BaseMultiHostUrl"))
    return any(base is not None and issubclass(kind, base) for base in bases)


def _loaded(module: str, name: str) -> type | None:
    return cast("type | None", getattr(sys.modules.get(module), name, None))


def _write(value: Any, put: Writer) -> Body:
    kind = class_of(value)
    state = state_of(value)
    without = [name for name in (_EXTRA, _PRIVATE) if name not in state]
    fields_set = state.pop(_FIELDS_SET, None)
    extra, private = state.pop(_EXTRA, None), state.pop(_PRIVATE, None)
    if type(fields_set) is not set:
        raise Refusal(f"the {type_name(kind)} is half made: it has no fields_set", kind=kind)
    known = _field_names(kind)
    fields = {name: item for name, item in state.items() if name in known}
    others = {name: item for name, item in state.items() if name not in known}
    unset = [name for name in known if name not in state]
    body = _write_class(kind)
    body["f"] = put.named(fields, attributes=True)
    body["s"] = put.attribute(_FIELDS_SET, sorted(cast("set[str]", fields_set)))
    if unset:
        body["u"] = unset
    if others:
        body["a"] = put.named(others, attributes=True)
    if extra is not None:
        body["x"] = put.attribute(_EXTRA, extra)
    if private is not None:
        body["p"] = put.attribute(_PRIVATE, private)
    if without:
        body["w"] = without
    return body


def _read(body: Body, take: Reader) -> object:
    path = text(body, "t")
    kind: Any = _read_class(body)
    stored = named(body, "f")
    expected = {*stored, *names(body, "u")}
    if expected != set(_field_names(kind)):
        changed = sorted(expected.symmetric_difference(_field_names(kind)))
        raise gone(path, f"its fields changed ({', '.join(changed)})", code="class_changed")
    state = take.named(stored)
    if "a" in body:
        state.update(take.named(named(body, "a")))
    state[_FIELDS_SET] = set(take.items(array(body, "s")))
    for name, member in ((_EXTRA, "x"), (_PRIVATE, "p")):
        if name not in names(body, "w"):
            state[name] = take.node(body[member]) if member in body else None
    value = object.__new__(kind)
    restore_state(value, state)
    return value


def _parts(value: Any) -> Parts:
    return ((f".{name}", item) for name, item in sorted(state_of(value).items()))


def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(kind.model_fields)


def _write_class(kind: Any) -> Body:
    """Return the class by name; a parametrised generic, which has no name of its own, by origin and arguments."""
    generic = kind.__pydantic_generic_metadata__
    if generic["origin"] is None:
        return {"t": class_path(kind)}
    for argument in generic["args"]:
        if not _is_type_argument(argument):
            reason = f"the type argument {argument!r} of {type_name(kind)} has no stored form"
            raise Refusal(reason, kind=kind, hint="make a subclass with a name of its own")
    arguments = [_write_class(item) if owns_model(item) else {"t": class_path(item)} for item in generic["args"]]
    return {"t": class_path(generic["origin"]), "g": arguments}


def _read_class(body: Body) -> type:
    path = text(body, "t")
    kind: Any = resolve(path)
    if not owns_model(kind):
        raise gone(path, "it is no pydantic model any more", code="class_changed")
    if "g" not in body:
        return cast("type", kind)
    arguments = tuple(_read_argument(cast("Body", item)) for item in array(body, "g"))
    # Pydantic's own way to parametrise, so that no `__class_getitem__` of a class that bytes name is called.
    base: Any = _loaded("pydantic.main", "BaseModel")
    try:
        return cast("type", base.__class_getitem__.__func__(kind, arguments))
    except TypeError as error:
        raise gone(path, f"it takes other type arguments now ({error})", code="class_changed") from error


def _read_argument(body: Body) -> type:
    if "g" in body:
        return _read_class(body)
    kind = resolve(text(body, "t"))
    if not _is_type_argument(kind):
        raise Damaged(f"{type_name(kind)} is no type argument")
    return kind


def _is_type_argument(kind: object) -> bool:
    if not isinstance(kind, type):
        return False
    return kind in _TYPE_ARGUMENTS or owns_model(kind) or is_dataclass(kind) or issubclass(kind, Enum)


def _write_url(value: Any, put: Writer) -> Body:
    return {"t": class_path(class_of(value)), "v": str(value._url)}


def _read_url(body: Body, take: Reader) -> object:
    path = text(body, "t")
    kind: Any = resolve(path)
    if not owns_url(kind):
        raise gone(path, "it is no pydantic URL any more", code="class_changed")
    core: Any = sys.modules["pydantic_core"]
    single = _loaded("pydantic.networks", "_BaseUrl")
    inner = core.Url if single is not None and issubclass(kind, single) else core.MultiHostUrl
    value = object.__new__(kind)
    restore_state(value, {"_url": inner(text(body))})
    return value


def _url_parts(value: Any) -> Parts:
    return ((".__str__()", str(value._url)),)


MODEL: Final = Form(tag="pydantic", write=_write, read=_read, parts=_parts)
URL: Final = Form(tag="pydantic-url", write=_write_url, read=_read_url, parts=_url_parts)

FAMILIES: Final = ((owns_model, MODEL), (owns_url, URL))
