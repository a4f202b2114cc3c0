"""Tuples, sets, and dicts whose keys are not plain strings; the dict and tuple relatives of `collections`, exactly."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, class_of, named, text, whole
from agent_run_ledger.codecs.instance_state import state_of
from agent_run_ledger.codecs.refusal import Refusal, segment_of, type_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_DICT: Final[Any] = dict
_TUPLE: Final[Any] = tuple
_FACTORIES: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (
        *(list, dict, set, tuple, frozenset, str, bytes, bytearray, int, float, complex, bool),
        *(Counter, OrderedDict, deque, Decimal),
    )
}
"""The only factories a defaultdict may have: a later `missing[key]` calls one, so stored bytes must not choose it."""


def _write_dict(value: dict[object, object], put: Writer) -> Body:
    return {"p": put.pairs(value.items())}


def _read_dict(body: Body, take: Reader) -> dict[object, object]:
    pairs = take.pairs(array(body, "p"))
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Damaged("a key occurs twice")
    return value


def _write_ordered_dict(value: OrderedDict[object, object], put: Writer) -> Body:
    _refuse_attributes(value)
    return {"p": put.pairs(value.items(), ordered=True)}


def _read_ordered_dict(body: Body, take: Reader) -> OrderedDict[object, object]:
    return OrderedDict(_read_dict(body, take))


def _write_counter(value: Counter[object], put: Writer) -> Body:
    _refuse_attributes(value)
    return {"p": put.pairs(value.items())}


def _read_counter(body: Body, take: Reader) -> Counter[object]:
    value: Counter[object] = Counter()
    _DICT.update(value, _read_dict(body, take))
    return value


def _write_defaultdict(value: defaultdict[object, object], put: Writer) -> Body:
    factory = value.default_factory
    if factory is None:
        return {"p": put.pairs(value.items())}
    name = getattr(factory, "__name__", "") if isinstance(factory, type) else ""
    if _FACTORIES.get(name) is not factory:
        reason = "a defaultdict with this factory has no stored form"
        raise Refusal(reason, kind=defaultdict, hint=f"factories are {', '.join(_FACTORIES)} and None")
    return {"f": name, "p": put.pairs(value.items())}


def _read_defaultdict(body: Body, take: Reader) -> defaultdict[object, object]:
    factory = _FACTORIES[text(body, "f")] if "f" in body else None
    return defaultdict(factory, _read_dict(body, take))


def _dict_parts(value: dict[object, object]) -> Parts:
    """Return keys and values in order, and the factory of a defaultdict by identity."""
    if isinstance(value, defaultdict):
        yield ".default_factory", id(cast("object", value.default_factory))
    for index, (key, item) in enumerate(value.items()):
        yield f".keys()[{index}]", key
        yield segment_of(key), item


def _write_tuple(value: tuple[object, ...], put: Writer) -> Body:
    return {"v": put.items(value)}


def _read_tuple(body: Body, take: Reader) -> tuple[object, ...]:
    return tuple(take.items(array(body)))


def _write_set(value: set[object] | frozenset[object], put: Writer) -> Body:
    return {"v": put.unordered(value)}


def _read_set(body: Body, take: Reader) -> set[object]:
    elements = take.items(array(body))
    value = set(elements)
    if len(value) != len(elements):
        raise Damaged("an element occurs twice")
    return value


def _read_frozenset(body: Body, take: Reader) -> frozenset[object]:
    return frozenset(_read_set(body, take))


def _write_deque(value: deque[object], put: Writer) -> Body:
    body: Body = {"v": put.items(value)}
    return body if value.maxlen is None else {"m": value.maxlen, **body}


def _read_deque(body: Body, take: Reader) -> deque[object]:
    items = take.items(array(body))
    value = deque(items, whole(body, "m") if "m" in body else None)
    if len(value) != len(items):
        raise Damaged("more items than the deque holds")
    return value


def _deque_parts(value: deque[object]) -> Parts:
    yield ".maxlen", value.maxlen
    yield from _item_parts(tuple(value))


def _item_parts(value: tuple[object, ...]) -> Parts:
    return ((f"[{index}]", item) for index, item in enumerate(value))


def is_namedtuple(kind: type) -> bool:
    """Return whether `kind` was made by `collections.namedtuple` or is a `typing.NamedTuple`."""
    return bool(_fields(kind)) and issubclass(kind, tuple) and kind is not tuple


def _write_namedtuple(value: tuple[object, ...], put: Writer) -> Body:
    kind = class_of(value)
    members = _members(value)
    if state_of(value) or len(members) != _TUPLE.__len__(value):
        raise Refusal(f"a {type_name(kind)} with more than its fields has no stored form", kind=kind)
    return {"t": class_path(kind), "f": put.named(members, attributes=True)}


def _read_namedtuple(body: Body, take: Reader) -> tuple[object, ...]:
    path = text(body, "t")
    kind: Any = resolve(path)
    if not is_namedtuple(kind):
        raise gone(path, "it is no namedtuple any more", code="class_changed")
    stored = named(body, "f")
    if tuple(stored) != _fields(kind):
        raise gone(path, f"it had the fields {', '.join(stored)}", code="class_changed")
    return cast("tuple[object, ...]", _TUPLE.__new__(kind, take.named(stored).values()))


def _namedtuple_parts(value: tuple[object, ...]) -> Parts:
    return ((f".{name}", item) for name, item in _members(value).items())


def _members(value: object) -> dict[str, object]:
    # The items of the tuple below, whatever a subclass makes of iteration.
    return dict(zip(_fields(type(value)), _TUPLE.__iter__(value), strict=False))


def _fields(kind: type) -> tuple[str, ...]:
    for base in kind.__mro__:
        fields = vars(base).get("_fields")
        if type(fields) is tuple and all(type(name) is str for name in cast("tuple[object, ...]", fields)):
            return cast("tuple[str, ...]", fields)
    return ()


def _refuse_attributes(value: object) -> None:
    kind = class_of(value)
    if state_of(value):
        raise Refusal(f"a {type_name(kind)} with attributes of its own has no stored form", kind=kind)


EXACT: Final[dict[type, Form]] = {
    dict: Form(tag="dict", write=_write_dict, read=_read_dict, parts=_dict_parts),
    tuple: Form(tag="tuple", write=_write_tuple, read=_read_tuple, parts=_item_parts),
    set: Form(tag="set", write=_write_set, read=_read_set, parts=_item_parts),
    frozenset: Form(tag="frozenset", write=_write_set, read=_read_frozenset, parts=_item_parts),
    OrderedDict: Form(tag="ordereddict", write=_write_ordered_dict, read=_read_ordered_dict, parts=_dict_parts),
    Counter: Form(tag="counter", write=_write_counter, read=_read_counter, parts=_dict_parts),
    defaultdict: Form(tag="defaultdict", write=_write_defaultdict, read=_read_defaultdict, parts=_dict_parts),
    deque: Form(tag="deque", write=_write_deque, read=_read_deque, parts=_deque_parts),
}
"""dict stands here for dicts that JSON objects cannot say; equality pairs the elements of sets before it uses parts."""

NAMEDTUPLE: Final = Form(tag="namedtuple", write=_write_namedtuple, read=_read_namedtuple, parts=_namedtuple_parts)
