"""The codecs that people register for types of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from agent_run_ledger.codecs.forms import Body, Form, Parts, text
from agent_run_ledger.codecs.plain import is_well_formed
from agent_run_ledger.codecs.refusal import Refusal, type_name
from agent_run_ledger.errors import ClassGone, LedgerError, Misuse

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How values of exactly the class `cls` become storable values and back, under a name that never changes."""

    cls: type
    name: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


_lock: Final = Lock()
_by_class: Final[dict[type, Codec]] = {}
_by_name: Final[dict[str, Codec]] = {}


def register_codec(cls: type[T], *, name: str, encode: Callable[[T], object], decode: Callable[[Any], T]) -> None:
    """Store values of exactly `cls` by `encode`, which returns a storable value, and restore them by `decode`.

    The name is stored with every value: choose one that can stay for ever. A subclass needs a codec of its own. Every
    value is still checked: `decode` must give the class back, with the same encoded form, and equal by the class's own
    `==` where it has one. Raises Misuse for a name or class that has a codec already, and for built-in types.
    """
    from agent_run_ledger.codecs.families import EXACT

    if not isinstance(cast("object", cls), type) or cls in EXACT or cls in (list, bool, type(None)):
        raise Misuse(f"{cls!r} cannot have a codec: it is no class, or it is stored as it is", code="codec_refused")
    if not name or not is_well_formed(name):
        raise Misuse(f"the codec for {type_name(cls)} needs a name of whole characters", code="codec_refused")
    with _lock:
        for taken in (_by_class.get(cls), _by_name.get(name)):
            if taken is not None:
                message = f"the codec {taken.name!r} for {type_name(taken.cls)} is registered already"
                raise Misuse(message, code="codec_exists", hint="register each class and each name once")
        codec = Codec(cls=cls, name=name, encode=encode, decode=decode)
        _by_name[name] = codec
        _by_class[cls] = codec


def is_registered(kind: type) -> bool:
    """Return whether values of exactly this class have a codec."""
    return kind in _by_class


def registered_classes() -> tuple[type, ...]:
    """Return the classes that have a codec."""
    return tuple(_by_class)


def _write(value: object, put: Writer) -> Body:
    codec = _by_class[type(value)]
    return {"n": codec.name, "v": put.attribute(f"<{codec.name}>", _encoded(codec, value))}


def _encoded(codec: Codec, value: object) -> object:
    try:
        return codec.encode(value)
    except Exception as error:
        reason = f"the codec {codec.name!r} failed: {type(error).__name__}: {error}"
        raise Refusal(reason, kind=codec.cls, hint="correct its encode") from error


def _read(body: Body, take: Reader) -> object:
    name = text(body, "n")
    codec = _by_name.get(name)
    if codec is None:
        hint = f"call register_codec(..., name={name!r}) before the run starts"
        message = f"a stored value needs the codec {name!r}, which is not registered"
        raise ClassGone(message, code="codec_gone", hint=hint)
    stored = take.node(body["v"])
    try:
        value = codec.decode(stored)
    except (LedgerError, RecursionError):
        raise
    except Exception as error:
        message = f"the codec {name!r} did not read a stored value: {type(error).__name__}: {error}"
        raise ClassGone(message, code="codec_failed", hint="let its decode read what its encode once wrote") from error
    if type(value) is not codec.cls:
        message = f"the codec {name!r} gave a {type_name(type(value))} instead of a {type_name(codec.cls)}"
        raise ClassGone(message, code="codec_failed", hint="return the registered class from its decode")
    return value


def _parts(value: object) -> Parts:
    codec = _by_class[type(value)]
    return ((f".<{codec.name}>", _encoded(codec, value)),)


def _equal(one: object, other: object) -> bool:
    """Ask the class's own `==`, where it has one; a codec that drops a part is found out here and nowhere else."""
    return type(one).__eq__ is object.__eq__ or bool(one == other) or _holds_equal_fields(one, other)


def _holds_equal_fields(one: object, other: object) -> bool:
    """Compare dataclasses field by field, since their `==` finds NaN unequal to itself."""
    if not is_dataclass(one):
        return False
    from agent_run_ledger.codecs.equality import difference

    compared = [field.name for field in fields(one) if field.compare]
    return all(difference(getattr(one, name), getattr(other, name)) is None for name in compared)


CODEC: Final = Form(tag="codec", write=_write, read=_read, parts=_parts, equal=_equal)
