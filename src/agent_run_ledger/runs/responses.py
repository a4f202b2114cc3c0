"""Finds the responses of model clients in a value and reads what they used, without running any of their code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import GetSetDescriptorType, SimpleNamespace
from typing import Any, Final, cast

from agent_run_ledger.kernel.usage import MAX_COUNT, Usage

KEYS: Final = ("response", "responses", "completion", "message", "output", "result", "raw")
"""Where a response may stand in a dict or in the attributes of an object, one level deep."""

MAX_ITEMS: Final = 10_000
"""A longer list is not looked through: it is no list of responses."""

MAX_TEXT: Final = 200

_GIVEN_KEYS: Final = (*KEYS, "messages")
_PLACES: Final = (*KEYS, "usage", "usage_metadata")
_NOTHING: Final = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, set, frozenset})
# Unbound, because a subclass may have a method of its own in place of each.
_ANY: Final[Any] = (dict, list, tuple, type)
_get: Final[Callable[[dict[str, Any], str], Any]] = _ANY[0].get
_has: Final[Callable[[dict[str, Any], str], bool]] = _ANY[0].__contains__
_list_size: Final[Callable[[object], int]] = _ANY[1].__len__
_list_items: Final[Callable[[object], Iterator[object]]] = _ANY[1].__iter__
_tuple_size: Final[Callable[[object], int]] = _ANY[2].__len__
_tuple_items: Final[Callable[[object], Iterator[object]]] = _ANY[2].__iter__
_mro_of: Final[Callable[[type], tuple[type, ...]]] = _ANY[3].__dict__["__mro__"].__get__
_namespace_of: Final[Callable[[type], Mapping[str, object]]] = _ANY[3].__dict__["__dict__"].__get__
_NAMESPACE_OF_SIMPLE: Final[Any] = SimpleNamespace.__dict__["__dict__"]  # a member, unlike that of other classes


class Part(Enum):
    """What the numbers of a part of a stream say: of this part alone, or of all so far."""

    NONE = auto()
    ADDS = auto()
    TELLS_ALL = auto()


_PARTS: Final = {"AIMessageChunk": Part.ADDS, "chat.completion.chunk": Part.TELLS_ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response in a value, or one part of a stream with the id of the whole."""

    line: Usage
    response_id: str
    part: Part
    value: object


def read_usage(value: object, given: Iterable[object] = ()) -> list[Usage]:
    """Return what the responses in `value` used, in order; [] where there are none.

    Looked at are `value` itself, the items of a list or tuple, and what stands under KEYS, one level deep. Known
    shapes: OpenAI chat completions and responses, Anthropic messages, LangChain messages; as objects (their
    `__dict__`) or as dicts. `input_tokens` counts all input (Anthropic's own number leaves cached input out). What is
    no whole number from 0 to MAX_COUNT is unknown. Responses that stand in `given` (what the step was called with)
    were paid by another step and are left out, known by their id or as the same object. Raises nothing and runs no
    code of a value's class.
    """
    kind = type(value)
    if kind is dict and _says_nothing(cast("dict[str, Any]", value)):
        return []
    found = _responses(value, KEYS)
    if not found:
        return []
    others = [response for one in given for response in _responses(one, _GIVEN_KEYS)]
    ids = {other.response_id for other in others if other.response_id}
    objects = {id(other.value) for other in others}
    return _whole([one for one in found if one.response_id not in ids and id(one.value) not in objects])


def _says_nothing(fields: dict[str, Any]) -> bool:
    """Return whether a dict has none of the keys that are looked at: every step pays this, few ask a model."""
    for key in _PLACES:  # noqa: SIM110 - all() takes twice as long
        if key in fields:
            return False
    return True


def _whole(found: Sequence[Response]) -> list[Usage]:
    """Return one line per response: parts of a stream become one, and what stands there twice is one."""
    lines: dict[object, Usage] = {}
    for place, one in enumerate(found):
        key: object = (one.response_id or place, None if one.response_id and one.part is not Part.NONE else one.line)
        before = lines.get(key)
        lines[key] = _joined(before, one.line) if before is not None and one.part is Part.ADDS else one.line
    return list(lines.values())


def _joined(one: Usage, other: Usage) -> Usage:
    def both(name: str) -> int | None:
        values = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        return sum(values) if values else None

    return Usage(
        model=other.model or one.model,
        provider=other.provider or one.provider,
        input_tokens=both("input_tokens"),
        output_tokens=both("output_tokens"),
        cache_read_tokens=both("cache_read_tokens"),
        cache_write_tokens=both("cache_write_tokens"),
    )


def _responses(value: object, keys: Sequence[str]) -> list[Response]:
    direct = _direct(value)
    if direct:
        return direct
    fields = _fields(value)
    if fields is None:
        return []
    return [response for key in keys if _has(fields, key) for response in _direct(_get(fields, key))]


def _direct(value: object) -> list[Response]:
    """Return the response that a value is, or those that are items of a list or tuple."""
    kind = type(value)
    if kind in _NOTHING:
        return []
    items: Iterable[object] = (value,)
    if issubclass(kind, list):
        items = () if _list_size(value) > MAX_ITEMS else _list_items(value)
    elif issubclass(kind, tuple):
        items = () if _tuple_size(value) > MAX_ITEMS else _tuple_items(value)
    return [found for item in items if type(item) not in _NOTHING and (found := _response(item)) is not None]


def _fields(value: object) -> dict[str, Any] | None:
    """Return a dict itself, or the attributes of an instance; None for anything else, and for a foreign `__dict__`."""
    kind = type(value)
    if kind in _NOTHING:
        return None
    if kind is dict or issubclass(kind, dict):
        return cast("dict[str, Any]", value)
    for base in _mro_of(kind):
        found: Any = _namespace_of(base).get("__dict__")
        if found is not None:
            builtin = type(found) is GetSetDescriptorType or found is _NAMESPACE_OF_SIMPLE
            namespace = found.__get__(value) if builtin else None
            return cast("dict[str, Any]", namespace) if issubclass(type(namespace), dict) else None
    return None


def _response(value: object) -> Response | None:
    fields = _fields(value)
    if fields is None or (_get(fields, "usage") is None and _get(fields, "usage_metadata") is None):
        return None
    line = _langchain(fields) or _usage(fields)
    if line is None or (line.input_tokens is None and line.output_tokens is None):
        return None
    part = _PARTS.get(_text(_get(fields, "type"))) or _PARTS.get(_text(_get(fields, "object"))) or Part.NONE
    return Response(line=line, response_id=_text(_get(fields, "id")), part=part, value=value)


def _langchain(fields: dict[str, Any]) -> Usage | None:
    """Read a LangChain message: `usage_metadata`, and who answered from `response_metadata`."""
    used = _fields(_get(fields, "usage_metadata"))
    if used is None:
        return None
    cached = _fields(_get(used, "input_token_details")) or {}
    said = _fields(_get(fields, "response_metadata")) or {}
    return Usage(
        model=_text(_get(said, "model_name")) or _text(_get(said, "model")),
        provider=_text(_get(said, "model_provider")),
        input_tokens=_count(_get(used, "input_tokens")),
        output_tokens=_count(_get(used, "output_tokens")),
        cache_read_tokens=_count(_get(cached, "cache_read")),
        cache_write_tokens=_count(_get(cached, "cache_creation")),
    )


def _usage(fields: dict[str, Any]) -> Usage | None:
    """Read what has a `usage`: a chat completion, an OpenAI response or an Anthropic message."""
    used = _fields(_get(fields, "usage"))
    if used is None:
        return None
    model = _text(_get(fields, "model"))
    if _get(used, "prompt_tokens") is not None:
        return _chat_completion(used, model)
    if _text(_get(fields, "type")) == "message" or _has(used, "cache_read_input_tokens"):
        return _anthropic(used, model)
    return _openai_response(used, model)


def _chat_completion(used: dict[str, Any], model: str) -> Usage:
    """platform.openai.com, "The chat completion object": prompt_tokens has the cached ones in it.

    What has no completion (an embedding) says so by its total.
    """
    prompt, completion = _count(_get(used, "prompt_tokens")), _count(_get(used, "completion_tokens"))
    total = _count(_get(used, "total_tokens"))
    if completion is None and prompt is not None and total == prompt:
        completion = 0
    cached = _cached(used, "prompt_tokens_details")
    return Usage(model=model, input_tokens=prompt, output_tokens=completion, **cached)


def _openai_response(used: dict[str, Any], model: str) -> Usage:
    """platform.openai.com, "The response object": input_tokens has the cached ones in it."""
    return Usage(
        model=model,
        input_tokens=_count(_get(used, "input_tokens")),
        output_tokens=_count(_get(used, "output_tokens")),
        **_cached(used, "input_tokens_details"),
    )


def _anthropic(used: dict[str, Any], model: str) -> Usage:
    """docs.anthropic.com, "Prompt caching": input_tokens is what was neither read from nor written to a cache."""
    read, written = _get(used, "cache_read_input_tokens"), _get(used, "cache_creation_input_tokens")
    parts = [_count(_get(used, "input_tokens")), *(_count(part) for part in (read, written) if part is not None)]
    known = [part for part in parts if part is not None]
    return Usage(
        model=model,
        input_tokens=sum(known) if len(known) == len(parts) else None,
        output_tokens=_count(_get(used, "output_tokens")),
        cache_read_tokens=_count(read),
        cache_write_tokens=_count(written),
    )


def _cached(used: dict[str, Any], name: str) -> Mapping[str, Any]:
    details = _fields(_get(used, name)) or {}
    return {
        "cache_read_tokens": _count(_get(details, "cached_tokens")),
        "cache_write_tokens": _count(_get(details, "cache_write_tokens")),
    }


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def _text(value: object) -> str:
    """Return a text that can be stored, at most MAX_TEXT characters; empty for what is none."""
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8") if type(value) is str else ""
