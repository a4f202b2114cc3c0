"""Requests from a file: the bytes of request v1 as they are, or a JSON description from which they are made."""

from __future__ import annotations

import base64
import binascii
import sys
from typing import Any, Final, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.request import (
    MAX_REQUEST_BYTES,
    REQUEST_V1,
    BadRequest,
    Call,
    Request,
    request_bytes,
    request_from,
)
from agent_run_ledger.kernel.strict_json import NotStrict, read_strict

_HTTP: Final = frozenset({"method", "path", "headers", "json", "text", "base64", "content_type"})
_CALL: Final = frozenset({"call", "arguments"})
_BODIES: Final = ("json", "text", "base64")
_HINT: Final = (
    'a description is {"method": "POST", "path": "/refunds", "headers": {…}, "json": …} with "text" or "base64" in '
    'place of "json", or {"call": "refund", "arguments": {…}}'
)


def read_request(path: str) -> bytes:
    """Return the request v1 bytes of a file, or of stdin for "-".

    Misuse: "bad_request" for what is neither such bytes nor a description of a request, or holds what no request may.
    """
    held = _read(path)
    try:
        if held.startswith(REQUEST_V1):
            return request_bytes(request_from(held))
        return request_bytes(_described(held))
    except (BadRequest, NotStrict, binascii.Error, UnicodeError) as error:
        raise Misuse(f"{_named(path)} is no request: {error}", code="bad_request", hint=_HINT) from error


def _read(path: str) -> bytes:
    if path == "-":
        held = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    else:
        with open(path, "rb") as file:
            held = file.read(MAX_REQUEST_BYTES + 1)
    if len(held) > MAX_REQUEST_BYTES:
        raise Misuse(f"{_named(path)} is larger than a request", code="bad_request", hint="16 MiB is the most")
    return held


def _named(path: str) -> str:
    return "stdin" if path == "-" else path


def _described(held: bytes) -> Request | Call:
    tree: Any = read_strict(held, limit=MAX_REQUEST_BYTES)
    if not isinstance(tree, dict):
        raise NotStrict("it is no JSON object")
    parts = cast("dict[str, Any]", tree)
    if "call" in parts:
        return _call(parts)
    if unknown := parts.keys() - _HTTP:
        raise NotStrict(f"it has the unknown part {min(unknown)!r}")
    bodies = [name for name in _BODIES if name in parts]
    if len(bodies) > 1:
        raise NotStrict(f"it has several bodies: {', '.join(bodies)}")
    method, path = _text(parts.get("method"), "method"), _text(parts.get("path"), "path")
    headers = _headers(parts.get("headers", {}))
    if "json" in parts:
        if "content_type" in parts:
            raise NotStrict("a JSON body has a content_type of its own")
        return Request.json(method, path, parts["json"], headers=headers)
    content_type = _text(parts["content_type"], "content_type") if "content_type" in parts else None
    return Request.bytes(method, path, _body(parts), content_type=content_type, headers=headers)


def _call(parts: dict[str, Any]) -> Call:
    if parts.keys() != _CALL:
        raise NotStrict("a call has the parts call and arguments")
    arguments = parts["arguments"]
    if not isinstance(arguments, dict):
        raise NotStrict("arguments are an object")
    return Call.of(_text(parts["call"], "call"), cast("dict[str, Any]", arguments))


def _body(parts: dict[str, Any]) -> bytes:
    if "text" in parts:
        return _text(parts["text"], "text").encode("utf-8")
    return base64.b64decode(_text(parts.get("base64", ""), "base64"), validate=True)


def _headers(headers: Any) -> dict[str, str]:
    if not isinstance(headers, dict):
        raise NotStrict("headers are an object of texts")
    named = cast("dict[str, Any]", headers)
    return {name: _text(value, f"header {name}") for name, value in named.items()}


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise NotStrict(f"{name} is no text")
    return value
