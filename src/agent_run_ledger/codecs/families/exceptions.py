"""Exceptions by class, arguments, message, notes and storable attributes, restored without their own `__init__`."""

from __future__ import annotations

from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, cast

from agent_run_ledger.codecs.classes import class_path, gone, resolve
from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, class_of, named, text
from agent_run_ledger.codecs.instance_state import is_heap_type, restore_state, state_of
from agent_run_ledger.codecs.refusal import CODEC_HINT, Refusal, type_name, written_name

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_NOTES: Final = "__notes__"
_ARGS: Final[Any] = vars(BaseException)["args"]
# Where an exception came from is not what it says; `obj` is whatever object lacked an attribute, of any size.
_LEFT_OUT: Final = frozenset(
    {"args", "__dict__", "__traceback__", "__context__", "__cause__", "__suppress_context__", "obj"}
)


def owns(kind: type) -> bool:
    """Return whether `kind` is an exception class."""
    return issubclass(kind, BaseException)


def _write(value: BaseException, put: Writer) -> Body:
    kind = class_of(value)
    args: tuple[object, ...] = _ARGS.__get__(value)
    body: Body = {"t": class_path(kind), "a": put.attribute("args", list(args))}
    try:
        bare = _build(kind, args)
    except TypeError as error:
        reason = f"a {type_name(kind)} cannot be restored without its own __init__ ({error})"
        raise Refusal(reason, kind=kind, hint=CODEC_HINT) from error
    state = state_of(value)
    notes = state.pop(_NOTES, None)
    if notes is not None:
        body["n"] = put.attribute(_NOTES, notes)
    native = {name: item for name, item in _native(value) if not put.is_same(item, dict(_native(bare)).get(name))}
    lost: list[str] = []
    for member, attributes in (("c", native), ("d", state)):
        kept = _storable(attributes, kind, put, lost)
        if kept:
            body[member] = kept
    if not put.digest:  # a digest must be the same for what is restored, which has nothing to lose
        body["m"] = put.attribute("__str__()", _message(value))
        if lost:
            body["lost"] = lost
    return body


def _storable(attributes: dict[str, object], kind: type, put: Writer, lost: list[str]) -> Body:
    kept: Body = {}
    for name, item in attributes.items():
        stored = put.attempt(written_name(name, kind), item)
        if stored is None:
            lost.append(name)
        else:
            (kept[name],) = stored
    return kept


def _read(body: Body, take: Reader) -> BaseException:
    path = text(body, "t")
    kind = resolve(path)
    if not owns(kind):
        raise gone(path, "it is no exception any more", code="class_changed")
    args = tuple(take.items(array(body, "a")))
    native = take.named(named(body, "c")) if "c" in body else {}
    state = take.named(named(body, "d")) if "d" in body else {}
    if "n" in body:
        state[_NOTES] = take.node(body["n"])
    try:
        value = _build(kind, args)
    except TypeError as error:
        raise gone(path, f"it takes other arguments now ({error})", code="class_changed") from error
    descriptors = dict(_descriptors(kind))
    for name, item in native.items():
        if name not in descriptors:
            raise Damaged(f"an exception has no member {name!r}")
        descriptors[name].__set__(value, item)
    restore_state(value, state)
    return value


def _build(kind: type, args: tuple[object, ...]) -> BaseException:
    """Return an exception made by the built-in class below `kind`, whose code is C and not the user's."""
    builtin: Any = next(base for base in kind.__mro__ if not is_heap_type(base))
    value = builtin.__new__(kind, *args)
    if type(value) is not kind:
        raise TypeError(f"{builtin.__name__} makes a {type(value).__name__} of these arguments")
    builtin.__init__(value, *args)
    _ARGS.__set__(value, args)
    return cast("BaseException", value)


def _native(value: BaseException) -> Iterator[tuple[str, object]]:
    """Yield the attributes that C code keeps, such as `OSError.filename`, where they are set."""
    for name, descriptor in _descriptors(type(value)):
        try:
            item = descriptor.__get__(value)
        except (AttributeError, TypeError):  # not set
            continue
        yield name, item


def _descriptors(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if not is_heap_type(base) and base is not object:
            for name, found in vars(base).items():
                if isinstance(found, (GetSetDescriptorType, MemberDescriptorType)) and name not in _LEFT_OUT:
                    yield name, found


def _has_own_message(kind: type) -> bool:
    return is_heap_type(next(base for base in kind.__mro__ if "__str__" in vars(base)))


def _message(value: BaseException) -> str:
    try:
        return str(value)
    except Exception:  # the user's __str__ may do anything
        return ""


def _parts(value: BaseException) -> Parts:
    from agent_run_ledger.codecs.tagging import Writer

    state = state_of(value)
    yield ".args", _ARGS.__get__(value)
    if _has_own_message(type(value)):  # a built-in message is made of the parts; its sets may show in another order
        yield ".__str__()", _message(value)
    yield ".__notes__", state.pop(_NOTES, None)
    for name, item in [*_native(value), *sorted(state.items())]:
        if Writer().attempt(name, item) is not None:
            yield f".{name}", item


EXCEPTION: Final = Form(tag="exception", write=_write, read=_read, parts=_parts)
