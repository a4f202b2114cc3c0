"""What a target is asked: its exact bytes, which people approve and the store keeps (format: request v1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import orjson

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.canonical import Json, canonical
from agent_run_ledger.kernel.effects.request_rules import (
    BadRequest,
    check_headers,
    check_method,
    check_path,
    sorted_headers,
)

__all__ = ["MAX_REQUEST_BYTES", "REQUEST_V1", "BadRequest", "Call", "Request", "request_bytes", "request_from"]

REQUEST_V1: Final = b"arl/request/v1\n"
MAX_REQUEST_BYTES: Final = 16 << 20
MAX_HEAD_BYTES: Final = 1 << 20
_CALL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")
_HTTP, _CALL = "http", "call"
_HEADS: Final = {_HTTP: {"headers", "kind", "method", "path"}, _CALL: {"kind", "name"}}

_Headers: TypeAlias = "Mapping[str, str] | Iterable[tuple[str, str]]"
_Raw: TypeAlias = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request without host and credentials, which are the target's.

    `path` begins with `/` and has the query in it. `headers`: pairs in the order of their lower-case names, none twice.
    BadRequest for anything that could be read as another request than the one that people see.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: _Raw = b""

    def __post_init__(self) -> None:
        """Check every part."""
        check_method(self.method)
        check_path(self.path)
        check_headers(self.headers)
        _check_body(self.body)

    @classmethod
    def json(cls, method: str, path: str, tree: object, /, *, headers: _Headers = ()) -> Request:
        """Return a request with the RFC 8785 form of `tree` as its body: equal trees are equal bytes."""
        return cls.bytes(method, path, _canonical(tree), content_type="application/json", headers=headers)

    @classmethod
    def bytes(
        cls, method: str, path: str, body: _Raw = b"", /, *, content_type: str | None = None, headers: _Headers = ()
    ) -> Request:
        """Return a request with this body, byte for byte."""
        named = list(cast("Mapping[str, str]", headers).items() if isinstance(headers, Mapping) else headers)
        if content_type is not None:
            named.append(("content-type", content_type))
        return cls(method=method, path=path, headers=sorted_headers(named), body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an ordinary function by name; `body` is the RFC 8785 form of the object of its arguments."""

    name: str
    body: bytes

    def __post_init__(self) -> None:
        """BadRequest for another name than one of letters, digits, `_.:-`, or a body that is no such object."""
        if type(cast(object, self.name)) is not str or not _CALL_NAME.fullmatch(self.name):
            raise BadRequest(f"{self.name!r} is no name of a function")
        _check_body(self.body)
        _object(self.body, "the arguments of a call")

    @classmethod
    def of(cls, name: str, arguments: Mapping[str, Json]) -> Call:
        """Return a call. BadRequest where the arguments would come back otherwise: `1.0` would, as `1`."""
        given = dict(arguments)
        call = cls(name=name, body=_canonical(given))
        if not _same(given, call.arguments):
            raise BadRequest(f"the arguments of {name!r} hold a number that comes back as another one: give it as text")
        return call

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, made anew from the bytes."""
        return _object(self.body, "the arguments of a call")


def request_bytes(request: Request | Call) -> bytes:
    """Return the bytes that are approved, stored and sent from: a line, a line of canonical JSON, the body."""
    head: dict[str, Json]
    if isinstance(request, Call):
        head = {"kind": _CALL, "name": request.name}
    else:
        head = {
            "kind": _HTTP,
            "method": request.method,
            "path": request.path,
            "headers": [[name, value] for name, value in request.headers],
        }
    stored = REQUEST_V1 + canonical(head) + b"\n" + request.body
    if len(stored) > MAX_REQUEST_BYTES:
        raise BadRequest(f"a request is at most {MAX_REQUEST_BYTES} bytes, with its head")
    return stored


def request_from(stored: bytes) -> Request | Call:
    """Return the request of these bytes; BadRequest for all but what `request_bytes` gives."""
    if not stored.startswith(REQUEST_V1) or len(stored) > MAX_REQUEST_BYTES:
        raise BadRequest("this is no request, version 1")
    end = stored.find(b"\n", len(REQUEST_V1), len(REQUEST_V1) + MAX_HEAD_BYTES)
    if end < 0:
        raise BadRequest("the head of this request does not end")
    head, body = _object(stored[len(REQUEST_V1) : end], "the head of a request"), stored[end + 1 :]
    kind = head.get("kind")
    if not isinstance(kind, str) or head.keys() != _HEADS.get(kind):
        raise BadRequest("the head of this request has other parts")
    if kind == _CALL:
        return Call(name=head["name"], body=body)
    return Request(method=head["method"], path=head["path"], headers=_pairs(head["headers"]), body=body)


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a head as tuples; what they hold is for the request to check."""
    if not isinstance(headers, list) or not all(isinstance(pair, list) for pair in cast("list[object]", headers)):
        raise BadRequest("the headers of a request are a list of pairs")
    return cast("tuple[tuple[str, str], ...]", tuple(tuple(pair) for pair in cast("list[list[str]]", headers)))


def _check_body(body: object) -> None:
    if type(body) is not bytes or len(body) > MAX_REQUEST_BYTES:
        raise BadRequest(f"a body is at most {MAX_REQUEST_BYTES} bytes, as `bytes`")


def _canonical(tree: object) -> bytes:
    try:
        return canonical(tree)
    except Misuse as error:
        raise BadRequest(f"this body has no canonical form: {error.message}") from error


def _object(written: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object of its canonical bytes. BadRequest for any other bytes: no name twice, no space."""
    try:
        tree: object = orjson.loads(written)
        same = canonical(tree) == written and isinstance(tree, dict)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{what} is no canonical JSON") from error
    if not same:
        raise BadRequest(f"{what} is no object in canonical form")
    return cast("dict[str, Any]", tree)


def _same(given: object, made: object) -> bool:
    """Return whether two trees are the same to the type of every number."""
    if type(given) is not type(made):
        return False
    if isinstance(given, dict):
        tree, other = cast("dict[str, object]", given), cast("dict[str, object]", made)
        return tree.keys() == other.keys() and all(_same(tree[name], other[name]) for name in tree)
    if isinstance(given, list):
        items, others = cast("list[object]", given), cast("list[object]", made)
        return len(items) == len(others) and all(map(_same, items, others))
    return given == made
