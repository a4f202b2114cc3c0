"""Keeps a paid result readable that has no exact stored form, and marks it so that it can never be restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, cast

import orjson

from agent_run_ledger.codecs.instance_state import state_of
from agent_run_ledger.codecs.lookup import form_of
from agent_run_ledger.codecs.plain import TAG, is_well_formed
from agent_run_ledger.codecs.refusal import type_name
from agent_run_ledger.codecs.rescued import RESCUED, TRUNCATED, UNSTORABLE
from agent_run_ledger.codecs.tagging import STRICT, Writer, has_plain_keys
from agent_run_ledger.kernel.canonical import Json

_MAX_DEPTH: Final = 50
_REPR_CHARACTERS: Final = 2000
_MARKER_BYTES: Final = 48
"""What a tagged marker costs at least, so that a value of many small unstorable parts ends as well."""

_ROUNDS: Final = 12
_LAST_RESORT: Final = orjson.dumps({TAG: RESCUED, "v": {TAG: TRUNCATED}})
_DICT: Final[Any] = dict
_SEQUENCES: Final[tuple[Any, ...]] = (list, tuple, set, frozenset)


def readable(value: object, *, limit_bytes: int) -> bytes:
    """Return JSON of at most `limit_bytes` for people: all that is storable, and the `repr` of what is not.

    Never fails, and runs no user code but registered codecs, the `str` of exceptions and `repr`, with every exception
    caught. What does not fit is marked as truncated. The whole is tagged "rescued": `decode` refuses it with
    Unstorable. Where even a bare marker is longer than `limit_bytes`, the bare marker is returned.
    """
    budget = limit_bytes - 2 * _MARKER_BYTES
    for _ in range(_ROUNDS):
        try:
            written = orjson.dumps({TAG: RESCUED, "v": _Rescue(budget).part(value, 0)}, option=STRICT)
        except Exception:  # another thread changes the value, or no stack is left: say less
            written = b""
        if 0 < len(written) <= limit_bytes:
            return written
        budget = budget * limit_bytes // len(written) - _MARKER_BYTES if written else budget // 2
    return _LAST_RESORT


class _Rescue:
    """One pass over one value that stops descending when about `budget` bytes are spent."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.open: set[int] = set()

    def part(self, value: object, depth: int) -> Json:
        """Return the stored form of a part where it has one that fits, else what can be said about it."""
        kind = type(value)
        if kind is str and is_well_formed(value):
            return self._text(cast("str", value))
        if kind is not list and kind is not dict:
            exact = self._exact(value)
            if exact is not None:
                return exact[0]
        if self.budget <= 0 or depth >= _MAX_DEPTH or id(value) in self.open:
            return self._closed(value)
        self.open.add(id(value))
        written = self._opened(value, depth + 1)
        self.open.discard(id(value))
        return written

    def _exact(self, value: object) -> tuple[Json] | None:
        try:
            stored = Writer(max_nodes=max(self.budget, 0)).node(value)
            size = len(orjson.dumps(stored, option=STRICT))
        except Exception:  # refused, changed meanwhile, or a metaclass that raises
            return None
        if size > self.budget:
            return None
        self.budget -= size
        return (stored,)

    def _closed(self, value: object) -> Json:
        reason = "cycle" if id(value) in self.open else "size" if self.budget <= 0 else "depth"
        self.budget -= _MARKER_BYTES
        return {TAG: TRUNCATED, "t": _kind_of(value), "why": reason}

    def _opened(self, value: object, depth: int) -> Json:
        """Descend by the built-in side of the value, so that no method of a subclass runs."""
        kind, anything = type(value), cast("Any", value)
        if issubclass(kind, dict):
            content = self._mapping(anything, depth)
            return content if kind is dict else self._marked(value, {"v": content})
        for builtin in _SEQUENCES:
            if issubclass(kind, builtin):
                items = self._items(builtin.__iter__(anything), builtin.__len__(anything), depth)
                return items if kind is list else self._marked(value, {"v": items})
        if issubclass(kind, str):
            return self._marked(value, {"v": self._text(str.__getitem__(anything, slice(None)))})
        if kind is bytes or kind is bytearray:
            return self._marked(value, {"v": self._text(repr(anything[: max(self.budget, 0)]))})
        attributes = dict(_attributes(value))
        shown = self._marked(value, {"repr": self._text(_repr_of(value))})
        if attributes:
            shown["f"] = self._mapping(attributes, depth)
        return shown

    def _marked(self, value: object, members: dict[str, Json]) -> dict[str, Json]:
        self.budget -= _MARKER_BYTES
        return {TAG: UNSTORABLE, "t": _kind_of(value), **members}

    def _mapping(self, value: dict[Any, object], depth: int) -> Json:
        length = _DICT.__len__(value)
        if has_plain_keys(_DICT.keys(value)):
            members: dict[str, Json] = {}
            for key, item in _DICT.items(value):
                if self.budget <= 0:
                    break
                self.budget -= len(key) + 4
                members[key] = self.part(item, depth)
            return self._cut(members, length - len(members))
        pairs: list[Json] = []
        for key, item in _DICT.items(value):
            if self.budget <= 0:
                break
            self.budget -= 4
            pairs.append([self.part(key, depth), self.part(item, depth)])
        return self._cut({TAG: "dict", "p": pairs}, length - len(pairs))

    def _items(self, items: Iterable[object], length: int, depth: int) -> Json:
        written: list[Json] = []
        for item in islice(items, length):
            if self.budget <= 0:
                break
            self.budget -= 1
            written.append(self.part(item, depth))
        return self._cut(written, length - len(written))

    def _text(self, text: str) -> Json:
        encoded = text.encode("utf-8", "backslashreplace")  # a lone surrogate has no other readable form
        text, size = encoded.decode("utf-8"), len(encoded)
        kept = text if size <= self.budget else text[: max(self.budget, 0)]
        self.budget -= size + 2
        return self._cut(kept, len(text) - len(kept))

    def _cut(self, kept: Json, left: int) -> Json:
        """Return what was kept, marked with how many parts or characters are missing."""
        if left == 0:
            return kept
        self.budget -= _MARKER_BYTES
        return {TAG: TRUNCATED, "v": kept, "left": left}


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    try:
        form = form_of(type(value))
        yield from state_of(value).items() if form is None else form.parts(value)
    except Exception:  # whatever a codec or a half-made object does, its repr is still tried
        return


def _repr_of(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<repr failed: {type(error).__name__}>"
    return str.__getitem__(text, slice(_REPR_CHARACTERS))


def _kind_of(value: object) -> str:
    try:
        return type_name(type(value))
    except Exception:  # a metaclass may answer anything
        return "?"
