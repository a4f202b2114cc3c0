"""Plain values of what LangChain passes around, for records and fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

_PLAIN: Final = (str, int, float, bool, type(None))
_EXACTLY: Final = frozenset(_PLAIN)


def meaning(value: object) -> Any:
    """Return what a value says, as plain values without None: for fingerprints, where an absent field is no field.

    Of a class its name and, of a pydantic model, its schema; of an object that is no data the name of its class.
    """
    kind = type(value)
    if kind in _EXACTLY or isinstance(value, _PLAIN):
        return value
    if kind is dict or isinstance(value, Mapping):
        return {
            str(key): one if type(one) in _EXACTLY else meaning(one)
            for key, one in cast("Mapping[object, object]", value).items()
            if one is not None
        }
    if isinstance(value, list | tuple):
        return [one if type(one) in _EXACTLY else meaning(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(str(one) for one in value)
    if isinstance(value, type):
        schema = meaning(value.model_json_schema()) if issubclass(value, BaseModel) else {}
        return {"class": value.__qualname__, **schema}
    if isinstance(value, BaseModel):
        return {"class": type(value).__qualname__, **meaning(value.model_dump(exclude_none=True))}
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def kept(value: object) -> Any:
    """Return those parts of a value that are plain, None included: for metadata, of which a part may be left out."""
    if isinstance(value, Mapping):
        return {str(key): kept(one) for key, one in value.items() if _is_plain(one)}
    if isinstance(value, list | tuple):
        return [kept(one) for one in value if _is_plain(one)]
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, (*_PLAIN, Mapping, list, tuple))
