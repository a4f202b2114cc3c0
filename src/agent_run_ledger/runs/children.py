"""Which part of an argument differs: short salted tags of a list's elements and a dict's entries (record v1, `c`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.kernel.digests import TAG_CHARACTERS, path_tags
from agent_run_ledger.runs.differences import is_text

EDGE: Final = 8
"""How many elements at each end of a list have a tag."""

KEYS: Final = 16
"""How many entries of a dict have a tag: the first ones with a string key."""

KEY_CHARACTERS: Final = 100
"""A longer key is rather content than a name."""

Tags: TypeAlias = "list[Any] | dict[str, str]"
"""Of a list: its length, and the tags of the elements that have one, one after the other. Of a dict: tags by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Where an argument parts from a recorded one.

    `path` goes below the argument: `[3]`, `.when`, `[8:120]` where it is one of these, "" where nothing is known.
    `places`: the elements or the entry that may be different there, the likeliest first. `common`: how many of the
    tagged elements or entries before that are the same. `lengths_apart`: of lists, by how many elements they differ.
    """

    path: str = ""
    places: Sequence[int | str] = ()
    common: int = 0
    lengths_apart: int = 0


class _Elements:
    """The digests of a list's elements: known ones, or made when one is asked for."""

    def __init__(self, values: Sequence[object], known: Sequence[bytes] | None) -> None:
        self._values = values
        self._known = known
        self.count = len(values) if known is None else len(known)

    def digest(self, at: int) -> bytes:
        """Return the digest of the element at a place."""
        return codecs.element_digest(self._values[at]) if self._known is None else self._known[at]


def tags(salt: bytes, path: str, value: object, elements: Sequence[bytes] | None = None) -> Tags | None:
    """Return the tags of a list or a dict that stands at `path`, None for any other value.

    `elements`: the digests of a list's elements, where they are known. Raises what `codecs.element_digest` raises.
    """
    if type(value) is list:
        now = _Elements(cast("list[object]", value), elements)
        digests = ((f"{path}[{at}]", now.digest(at)) for at in tagged_places(now.count))
        return [now.count, path_tags(salt, digests)]
    if type(value) is dict:
        return _entry_tags(salt, path, cast("dict[object, object]", value))
    return None


def tagged_places(count: int) -> list[int]:
    """Return the places of those elements of a list that have a tag."""
    return [*range(min(EDGE, count)), *range(max(EDGE, count - EDGE), count)]


def parted(
    salt: bytes, path: str, stored: Tags | None, value: object, elements: Sequence[bytes] | None = None
) -> Parted:
    """Return where a value that differs from a recorded one, of which the tags are `stored`, parts from it.

    For a list that is the first element of those that have a tag; before it there may be others that differ.
    """
    kind = type(value)
    try:
        if kind is list and isinstance(stored, list):
            return _parted_lists(salt, path, stored, _Elements(cast("list[object]", value), elements))
        if kind is dict and isinstance(stored, dict):
            return _parted_dicts(salt, path, stored, cast("dict[object, object]", value))
    except LedgerError:  # a part has no digest any more: the argument's name has to do
        pass
    return Parted()


def _parted_lists(salt: bytes, path: str, stored: list[Any], now: _Elements) -> Parted:
    before: int = stored[0]
    kept: str = stored[1]
    apart = abs(now.count - before)
    same = 0
    for number, at in enumerate(tagged_places(before)):
        tag = kept[number * TAG_CHARACTERS : (number + 1) * TAG_CHARACTERS]
        if at >= now.count or path_tags(salt, [(f"{path}[{at}]", now.digest(at))]) != tag:
            first = min(at, now.count)
            return Parted(path=f"[{first}]", places=(first, *range(EDGE, first)), common=same, lengths_apart=apart)
        same += 1
    if now.count > before:
        return Parted(path=f"[{before}]", places=(before,), common=same, lengths_apart=apart)
    between = range(EDGE, before - EDGE)
    return Parted(path=f"[{EDGE}:{before - EDGE}]", places=between, common=same) if between else Parted(common=same)


def _parted_dicts(salt: bytes, path: str, stored: Mapping[str, str], entries: dict[object, object]) -> Parted:
    now = {key: entries[key] for key in stored if key in entries}
    tags_now = _entry_tags(salt, path, cast("dict[object, object]", now))
    same = 0
    for key, tag in stored.items():
        if tags_now.get(key) != tag:
            return Parted(path=f".{key}", places=(key,), common=same)
        same += 1
    new = [key for key in _tagged_keys(entries) if key not in stored]
    if new and len(stored) < KEYS:
        return Parted(path=f".{new[0]}", places=(new[0],), common=same)
    return Parted(common=same)


def _entry_tags(salt: bytes, path: str, entries: dict[object, object]) -> dict[str, str]:
    keys = _tagged_keys(entries)
    joined = path_tags(salt, ((f"{path}.{key}", codecs.element_digest(entries[key])) for key in keys))
    return {key: joined[n * TAG_CHARACTERS : (n + 1) * TAG_CHARACTERS] for n, key in enumerate(keys)}


def _tagged_keys(entries: Iterable[object]) -> list[str]:
    texts = (key for key in entries if type(key) is str and len(key) <= KEY_CHARACTERS and is_text(key))
    return [key for key, _ in zip(texts, range(KEYS), strict=False)]
