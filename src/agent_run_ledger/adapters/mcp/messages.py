"""JSON-RPC 2.0 messages as MCP writes them: one JSON object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

Message = dict[str, Any]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_GONE: Final = -32000
"""The codes of JSON-RPC 2.0 that the proxy answers with; SERVER_GONE is of the range that it leaves to servers."""

MODERN: Final = "io.modelcontextprotocol/protocolVersion"
"""The key of `_meta` by which every request names its protocol from 2026-07-28 on."""

_BEFORE_VALUE: Final = re.compile(r'\s*(?:\{|,)\s*("(?:[^"\\]|\\.)*")\s*:\s*')


class NoMessage(ValueError):
    """A line is no message; says why."""


def parse(text: bytes, *, strict: bool) -> Any:
    """Return the value of a line. NoMessage where it is not exactly one JSON value.

    `strict`: nor where an object has a key twice: of two readers each may take another value for it, so that what is
    looked at here would not be what is done there.
    """
    try:
        if strict:
            return json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
        return json.loads(text.decode("utf-8"))
    except NoMessage:
        raise
    except RecursionError:
        raise NoMessage("it is nested too deep") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise NoMessage(f"it is no JSON: {error}") from None


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line, with its end."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def id_key(message_id: object) -> str:
    """Return an id as a key: 1, "1" and true are three ids."""
    return json.dumps(message_id)


def is_id(value: object) -> bool:
    """Return whether a value may be the id of a request: a text or a whole number."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def response(message_id: object, result: Mapping[str, Any]) -> Message:
    """Return the answer to a request."""
    return {"jsonrpc": "2.0", "id": message_id, "result": dict(result)}


def failure(message_id: object, code: int, words: str, detail: object = None) -> Message:
    """Return the answer that a request failed. `message_id` None: nobody knows which one."""
    error: dict[str, Any] = {"code": code, "message": words}
    if detail is not None:
        error["data"] = detail
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


def members(value: object) -> dict[str, Any]:
    """Return a value that is an object; an empty one for any other."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def head_of(beginning: bytes) -> Message:
    """Return the first members of an object of which only the beginning is there, up to one that is not whole."""
    text = beginning.decode("utf-8", "ignore")
    decoder = json.JSONDecoder()
    found: Message = {}
    at = 0
    while (key := _BEFORE_VALUE.match(text, at)) is not None:
        if (at == 0) != (key[0].lstrip()[:1] == "{"):
            break
        try:
            value, at = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            break
        if at == len(text):  # a number may go on
            break
        found[json.loads(key[1], strict=False)] = value
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:number]))
        raise NoMessage(f"an object has the key {twice!r} twice")
    return made


def _constant(name: str) -> Any:
    raise NoMessage(f"{name} is no JSON")
