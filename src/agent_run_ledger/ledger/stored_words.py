"""A stored value in words for people: its tagged JSON without the tags, building no class (docs/formats/encode.md)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

TAG = "$arl"
MAX_DEPTH = 200
_SHORT_INT = 64
_More = Callable[[object], object]


def in_words(node: object, *, depth: int = 0) -> object:
    """Return a stored value as JSON that reads well; what is not as the format says is shown member by member.

    Classes stand as "<module:Class>" over their fields, sequences as lists; nothing has the tag any more.
    """
    if depth > MAX_DEPTH:
        return "…"

    def more(part: object) -> object:
        return in_words(part, depth=depth + 1)

    if isinstance(node, list):
        return [more(item) for item in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    members = cast("dict[str, Any]", node)
    if TAG not in members:
        return {name: more(item) for name, item in members.items()}
    say = _WORDS.get(str(members[TAG]), _anything)
    try:
        return say(members, more)
    except (LookupError, TypeError, ValueError, AttributeError):
        return _anything(members, more)


def text_of(node: object) -> str:
    """Return a stored value as one text: a string as it is, with codes for what UTF-8 cannot say; else its words."""
    words = in_words(node)
    return words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)


def error_text(node: object) -> str:
    """Return "Type: message" of a stored exception, or what was kept of one that had no stored form."""
    if not isinstance(node, dict):
        return text_of(node)
    members = cast("dict[str, Any]", node)
    if members.get(TAG) == "rescued":
        return error_text(members.get("v"))
    if "t" not in members:
        return "an error of which nothing was kept" if members.get(TAG) == "truncated" else text_of(members)
    name = str(members["t"]).partition(":")[2] or str(members["t"])
    said = text_of(members["m"] if "m" in members else members.get("repr", ""))
    return f"{name}: {said}" if said else name


def _anything(members: Mapping[str, Any], more: _More) -> object:
    return {f"<{members[TAG]}>": {name: more(item) for name, item in members.items() if name != TAG}}


def _plain(members: Mapping[str, Any], more: _More) -> object:
    return more(members["v"])


def _int(members: Mapping[str, Any], more: _More) -> object:
    written = str(members["v"])
    return int(written, 16) if len(written) <= _SHORT_INT else written


def _text(members: Mapping[str, Any], more: _More) -> object:
    raw = base64.b64decode(members["v"])
    return raw.decode("utf-8", "surrogatepass").encode("utf-8", "backslashreplace").decode("utf-8")


def _bytes(members: Mapping[str, Any], more: _More) -> object:
    raw = base64.b64decode(members["v"])
    return f"<{len(raw):,} bytes> {raw.hex()}" if raw else "<0 bytes>"


def _pairs(members: Mapping[str, Any], more: _More) -> object:
    pairs = [(more(key), more(value)) for key, value in members["p"]]
    named = {key if isinstance(key, str) else json.dumps(key, ensure_ascii=False): value for key, value in pairs}
    return named if len(named) == len(pairs) else [list(pair) for pair in pairs]


def _fields(members: Mapping[str, Any], more: _More) -> object:
    return {f"<{members['t']}>": more(members["f"])}


def _codec(members: Mapping[str, Any], more: _More) -> object:
    return {f"<codec {members['n']}>": more(members["v"])}


def _enum(members: Mapping[str, Any], more: _More) -> object:
    return f"<{members['t']}> {members['n'] if 'n' in members else more(members['b'])}"


def _exception(members: Mapping[str, Any], more: _More) -> object:
    said: dict[str, object] = {"message": more(members["m"]), "args": more(members["a"])}
    if "n" in members:
        said["notes"] = more(members["n"])
    return {f"<{members['t']}>": {**said, **_members(members, "c", more), **_members(members, "d", more)}}


def _members(members: Mapping[str, Any], name: str, more: _More) -> dict[str, object]:
    return {key: more(item) for key, item in members.get(name, {}).items()}


def _unstorable(members: Mapping[str, Any], more: _More) -> object:
    label = f"<{members.get('t', '?')}>"
    if "v" in members:
        return {label: more(members["v"])}
    shown = more(members.get("repr", ""))
    return {label: {"repr": shown, **_members(members, "f", more)}} if "f" in members else {label: shown}


def _truncated(members: Mapping[str, Any], more: _More) -> object:
    if "v" not in members:
        why = f", {members['why']}" if "why" in members else ""
        return f"<{members['t']}: not kept{why}>" if "t" in members else f"<not kept{why}>"
    kept, left = more(members["v"]), f"{members.get('left', 0):,} more"
    if isinstance(kept, str):
        return f"{kept}… ({left} characters)"
    if isinstance(kept, list):
        return [*cast("list[object]", kept), f"… {left}"]
    return {**cast("dict[str, object]", kept), "…": left} if isinstance(kept, dict) else kept


_WORDS: Mapping[str, Callable[[Mapping[str, Any], _More], object]] = {
    **dict.fromkeys(("float", "decimal", "uuid", "path", "date", "zoneinfo", "pydantic-url"), _plain),
    **dict.fromkeys(("tuple", "set", "frozenset", "deque", "rescued"), _plain),
    **dict.fromkeys(("dict", "ordereddict", "counter", "defaultdict"), _pairs),
    **dict.fromkeys(("dataclass", "namedtuple", "pydantic"), _fields),
    **dict.fromkeys(("bytes", "bytearray"), _bytes),
    "int": _int,
    "str": _text,
    "enum": _enum,
    "codec": _codec,
    "exception": _exception,
    "unstorable": _unstorable,
    "truncated": _truncated,
}
