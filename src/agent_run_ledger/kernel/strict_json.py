"""JSON from outside, of which every reader must see the same: no key twice, no float, nothing that is not canonical."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NoReturn, cast

from agent_run_ledger.kernel.canonical import Json, NotCanonical, canonical

SHOWN = 80


class NotStrict(ValueError):
    """Bytes that are no JSON as this module reads it. The message says what is wrong and repeats little of them."""


def read_strict(data: bytes, *, limit: int) -> Json:
    """Return the tree of UTF-8 JSON of at most `limit` bytes.

    NotStrict for a key that an object has twice, a float, an integer of 2**53 or more, NaN, half a character, nesting
    without end, and all that is no JSON.
    """
    if len(data) > limit:
        raise NotStrict(f"{len(data)} bytes; at most {limit}")
    try:
        tree: Json = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_float=_no_float)
        canonical(tree)
    except NotCanonical as error:
        raise NotStrict(error.reason) from None
    except RecursionError:
        raise NotStrict("nested too deeply") from None
    except NotStrict:
        raise
    except ValueError as error:
        raise NotStrict(f"no JSON in UTF-8: {type(error).__name__}") from None
    return tree


def exactly(tree: object, keys: Collection[str], what: str) -> dict[str, Any]:
    """Return an object that has these keys and no others; NotStrict for anything else."""
    _check(dict, tree, what, "an object")
    held = cast("dict[str, Any]", tree)
    if held.keys() != set(keys):
        lacking, unknown = sorted(set(keys) - held.keys()), sorted(held.keys() - set(keys))
        raise NotStrict(f"{what} lacks {shown(lacking)}" if lacking else f"{what} has no {shown(unknown)}")
    return held


def text_of(tree: object, what: str) -> str:
    """Return a string; NotStrict for anything else."""
    _check(str, tree, what, "text")
    return cast("str", tree)


def number_of(tree: object, what: str) -> int:
    """Return an integer; NotStrict for anything else, a truth value among it."""
    _check(int, tree, what, "an integer")
    return cast("int", tree)


def truth_of(tree: object, what: str) -> bool:
    """Return a truth value; NotStrict for anything else."""
    _check(bool, tree, what, "true or false")
    return cast("bool", tree)


def list_of(tree: object, what: str) -> list[Any]:
    """Return an array; NotStrict for anything else."""
    _check(list, tree, what, "an array")
    return cast("list[Any]", tree)


def bytes_of(tree: object, what: str) -> bytes:
    """Return the bytes of lower-case hex; NotStrict for anything else."""
    text = text_of(tree, what)
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if value.hex() != text:
        raise NotStrict(f"{what} is lower-case hex, not {shown(text)}")
    return value


def shown(value: object) -> str:
    """Return a value as people may read it in an error: on one line, and short."""
    said = repr(value)
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}…"


def _check(kind: type, tree: object, what: str, said: str) -> None:
    if type(tree) is not kind:
        raise NotStrict(f"{what} is {said}, not {shown(tree)}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        names = [name for name, _ in pairs]
        raise NotStrict(f"the key {shown(next(name for name in names if names.count(name) > 1))} stands there twice")
    return tree


def _no_float(said: str) -> NoReturn:
    raise NotStrict(f"{shown(said)} is no integer")
