"""Where two values differ: the path of the first difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError


def deep_difference(before: object, now: object, path: str = "") -> str | None:
    """Return the path of the first place where two values differ, "" for the values themselves, None when equal."""
    if type(before) is type(now) and isinstance(before, Mapping):
        return _in_mappings(cast("Mapping[object, object]", before), cast("Mapping[object, object]", now), path)
    if type(before) is type(now) and isinstance(before, list | tuple):
        return _in_sequences(cast("Sequence[object]", before), cast("Sequence[object]", now), path)
    try:
        return None if codecs.value_digest(before) == codecs.value_digest(now) else path
    except LedgerError:
        return None if before == now else path


def entry_path(path: str, key: object) -> str:
    """Return the path of a mapping's entry below `path`."""
    return f"{path}.{key}" if isinstance(key, str) and is_text(key) else f"{path}[{key!r}]"


def is_text(words: str) -> bool:
    """Return whether a string can be written as UTF-8, which one with a lone surrogate cannot."""
    try:
        words.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _in_mappings(before: Mapping[object, object], now: Mapping[object, object], path: str) -> str | None:
    for key in {**before, **now}:
        place = entry_path(path, key)
        if key not in before or key not in now:
            return place
        found = deep_difference(before[key], now[key], place)
        if found is not None:
            return found
    return None


def _in_sequences(before: Sequence[object], now: Sequence[object], path: str) -> str | None:
    for at, (left, right) in enumerate(zip(before, now, strict=False)):
        found = deep_difference(left, right, f"{path}[{at}]")
        if found is not None:
            return found
    return None if len(before) == len(now) else f"{path}[{min(len(before), len(now))}]"
