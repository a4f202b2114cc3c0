"""Texts of arguments and outcomes with what changes at every call taken out, so that equal things look equal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, cast

HEAD: Final = 1536
TAIL: Final = 768
"""Characters of a long text that are normalised; of the part between them only a digest is kept."""

_DEEP: Final = 64
_PARSED: Final = 65_536
_NO_KEY: Final = frozenset({"\0"})
_WRITER: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)
_UNWRITABLE: Final = "a value that contains itself, or is nested too deep"

_COUNTERS: Final = frozenset({
    "attempt", "attempts", "retry", "retries", "try", "nonce", "request_id", "trace_id", "call_id", "tool_call_id",
    "idempotency_key", "timestamp",
})  # fmt: skip
"""Arguments that only count or name the call itself."""

_REMARKS: Final = frozenset({
    "label", "note", "notes", "comment", "description", "reason", "explanation", "rationale",
})  # fmt: skip
"""Arguments that speak about the call: their words count, a number in them does not."""

_VOLATILE: Final = frozenset({
    "request_id", "requestid", "trace_id", "traceid", "span_id", "correlation_id", "x_request_id", "timestamp", "ts",
    "now", "server_time", "generated_at", "fetched_at", "took", "took_ms", "elapsed", "elapsed_ms", "elapsed_seconds",
    "duration", "duration_ms", "latency", "latency_ms", "response_time", "etag", "nonce", "uptime",
})  # fmt: skip
"""Keys of results whose values differ at every call whatever the answer is."""

# A pattern that begins with one class of characters is searched for several times as fast: hence `\d(?<!\w\d)` where
# `\b\d` is meant.
_MOMENT: Final = re.compile(
    r"\d(?:\d{3}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?"
    r"|(?<!\w\d)\d?:\d\d:\d\d(?:[.,]\d+)?\b)"
)
_LASTED: Final = re.compile(r"\d(?<!\w\d)(?:\d*m\d+|\d*)(?:\.\d+)?\s?(?:ms|µs|us|ns|s|secs?|seconds?|minutes?)\b")
_NAMES: Final = re.compile(
    r"\b(?=[0-9a-f]{8}|0x)(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]{4,}"
    r"|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,})\b"
)
_LINES: Final = re.compile(r"\blines?:? \d+|\b\d+ lines?\b")
_NUMBERED: Final = re.compile(r"^[ \t]*\d+(?=[:|\t])", re.MULTILINE)
_NUMBERS: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+")
_PROCESS: Final = re.compile(r"/proc/\d+|\bpid[:= ]+\d+")
_QUOTED: Final = re.compile(r"'([^'\n]{16,})'|\"([^\"\n]{16,})\"|`([^`\n]{16,})[`']")
_DIGIT: Final = re.compile(r"\d")
_LETTERS: Final = re.compile(r"[^\W\d_]{2}")


def digest(text: str) -> int:
    """Return the first 64 bits of BLAKE2b of a text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def arguments_text(arguments: object, volatile: tuple[str, ...] = ()) -> str:
    """Return the arguments as one text: sorted keys, lower case, single spaces, clipped.

    Left out are counters (`attempt`, `request_id` and the like, unless there is nothing else) and `volatile` keys; in
    remarks (`label`, `reason`) numbers are masked.
    """
    if isinstance(arguments, Mapping):
        named = cast("Mapping[object, object]", arguments)
        kept = {key: _remark(key, value) for key, value in named.items() if _key(key) not in _COUNTERS}
        arguments = kept or dict(named)
    return squeezed(clipped(as_text(without(arguments, frozenset(volatile))))).lower()


def outcome_text(outcome: object, volatile: tuple[str, ...] = ()) -> str:
    """Return an outcome as one text without volatile keys. A text that is JSON is treated as the value it holds."""
    if outcome is None:
        return ""
    held = _parsed(outcome) if isinstance(outcome, str) else outcome
    return held if isinstance(held, str) else as_text(without(held, _VOLATILE.union(volatile)))


def clipped(text: str) -> str:
    """Return a text whole, or its head, its tail and a digest of what lies between them."""
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n{digest(text[HEAD:-TAIL]):016x}\n{text[-TAIL:]}"


def squeezed(text: str) -> str:
    """Return a text with every run of white space as one space, and none at its ends."""
    return " ".join(text.split())


def timeless(text: str) -> str:
    """Return a text in lower case without moments, durations and process numbers: they tell equal answers apart."""
    text = text.lower()
    if not _DIGIT.search(text):
        return text
    if ":" in text:
        text = _MOMENT.sub("@", text)
    if "/proc/" in text or "pid" in text:
        text = _PROCESS.sub("~", text)
    return _LASTED.sub("~", text)


def unquoted(error: str, given: str) -> str:
    """Return an error without what it quotes back of the arguments, in pieces of several words (16 characters on).

    A single quoted word is a name, and an error about another name says something new.
    """

    def piece(found: re.Match[str]) -> str:
        inner = squeezed(found.group(found.lastindex or 0))
        return "'~'" if " " in inner and inner[:64] in given else found.group()

    return _QUOTED.sub(piece, error)


def nameless(text: str) -> str:
    """Return a `timeless` text without generated names and line numbers: what differs when one call is made again.

    Where nothing but names would be left, they are what the call is about, and the text stays as it is.
    """
    if not _DIGIT.search(text):
        return text
    bare = _NUMBERED.sub("#", _NAMES.sub("~", text))
    if "line" in bare:
        bare = _LINES.sub("#", bare)
    return bare if _LETTERS.search(bare) else text


def uncounted(text: str) -> str:
    """Return a text with every number and id as `#`: equal for calls that go through numbered things."""
    return _NUMBERS.sub("#", text) if _DIGIT.search(text) else text


def as_text(value: object) -> str:
    """Return a JSON-like value as text with sorted keys; a text as it is."""
    if isinstance(value, str):
        return value
    try:
        return _WRITER.encode(value)
    except TypeError:  # keys of several types cannot be sorted
        return _WRITER.encode(without(value, _NO_KEY))
    except (ValueError, RecursionError):
        return _UNWRITABLE


def without(value: object, keys: frozenset[str], path: str = "", depth: int = 0) -> object:
    """Return a value without the keys, or dotted paths from its root, that are named; below 64 levels it stays."""
    if not keys or depth > _DEEP:
        return value
    if isinstance(value, Mapping):
        kept: dict[str, object] = {}
        for key, inner in cast("Mapping[object, object]", value).items():
            where = f"{path}.{key}" if path else str(key)
            if _key(key) not in keys and str(key) not in keys and where not in keys:
                kept[str(key)] = without(inner, keys, where, depth + 1)
        return kept
    if isinstance(value, list | tuple):
        return [without(inner, keys, path, depth + 1) for inner in cast("list[object]", value)]
    return value


def _parsed(text: str) -> object:
    if text[:1] not in ("{", "[") or len(text) > _PARSED:
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _key(key: object) -> str:
    return str(key).lower().replace("-", "_")


def _remark(key: object, value: object) -> object:
    return uncounted(value.lower()) if isinstance(value, str) and _key(key) in _REMARKS else value
