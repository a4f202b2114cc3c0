"""What may stand in a request: its method, its path and its headers, and what never may."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

from agent_run_ledger.errors import Misuse

MAX_METHOD, MAX_PATH, MAX_NAME, MAX_VALUE, MAX_HEADERS = 20, 8_000, 100, 4_000, 50
MAX_ESCAPED: Final = 3

FRAMING: Final = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that say where a message ends and where it goes: the target's business, of nobody else."""

CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that hold secrets: the target's, never stored and never approved."""

REROUTING: Final = frozenset(
    {
        "forwarded", "x-forwarded-host", "x-forwarded-prefix", "x-http-method", "x-http-method-override",
        "x-method-override", "x-original-url", "x-rewrite-url",
    }
)  # fmt: skip
"""Headers that some servers believe more than the method and the path that people approved."""

_METHOD: Final = re.compile(rf"[A-Z]{{1,{MAX_METHOD}}}")
_NO_METHODS: Final = frozenset({"CONNECT", "TRACE"})
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class BadRequest(Misuse, ValueError):
    """A request that is not sent to anybody; the message names the part, and no value of a header."""

    code = "bad_request"


def check_method(method: object) -> None:
    """BadRequest unless it is a method in capital letters: neither CONNECT nor TRACE, which are no requests to act."""
    if type(method) is not str or not _METHOD.fullmatch(method) or method in _NO_METHODS:
        raise BadRequest(f"{method!r} is no method of a request")


def check_path(path: object) -> None:
    """BadRequest unless this is a path below a host, with or without a query, that leads only where it says.

    Origin form of RFC 9112, 3.2.1, in the characters of RFC 3986. Refused: `//` at the beginning, which names a host;
    a fragment; segments `.` and `..`, also escaped, escaped twice, beside `;` or behind an escaped slash, as servers
    differ in what they make of them; escaped control characters.
    """
    if type(path) is not str or len(path) > MAX_PATH:
        raise BadRequest(f"a path is text of at most {MAX_PATH} characters")
    before, _, query = path.partition("?")
    if not _PATH.fullmatch(before) or before.startswith("//") or not _QUERY.fullmatch(query):
        raise BadRequest(f"{path!r} is no path of a request: one `/` first, other characters escaped, no fragment")
    plain = _unescaped(before)
    if _ESCAPE.search(plain):
        raise BadRequest(f"{path!r} is escaped more than {MAX_ESCAPED} times over")
    if _CONTROL.search(plain):
        raise BadRequest(f"{path!r} hides a control character")
    segments = [segment.partition(";")[0].strip() for segment in re.split(r"[/\\]", plain)]
    if not {".", ".."}.isdisjoint(segments):
        raise BadRequest(f"{path!r} leads somewhere else than it says")


def check_headers(headers: object, *, forbidden: frozenset[str] = FRAMING | CREDENTIALS | REROUTING) -> None:
    """BadRequest unless these are pairs of text, sorted by lower-case names, none twice and none that is `forbidden`.

    Values are printable ASCII with spaces and tabs inside: nothing in one can end it, or the head.
    """
    if type(headers) is not tuple or len(cast("tuple[object, ...]", headers)) > MAX_HEADERS:
        raise BadRequest(f"headers are a tuple of at most {MAX_HEADERS} pairs")
    last = ""
    for pair in cast("tuple[object, ...]", headers):
        if type(pair) is not tuple or [type(part) for part in cast("tuple[object, ...]", pair)] != [str, str]:
            raise BadRequest("a header is a pair of name and value")
        name, value = cast("tuple[str, str]", pair)
        if len(name) > MAX_NAME or not _NAME.fullmatch(name):
            raise BadRequest(f"{name[:MAX_NAME]!r} is no name of a header in small letters")
        if name in forbidden:
            raise BadRequest(f"the header {name!r} may not stand in here")
        if name <= last:
            raise BadRequest(f"the header {name!r} comes twice, or is not in its place")
        if len(value) > MAX_VALUE or not _VALUE.fullmatch(value):
            raise BadRequest(f"the value of the header {name!r} is not printable ASCII, at most {MAX_VALUE} characters")
        last = name


def sorted_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return headers in the order in which a request has them. BadRequest for a name or a value that is no text."""
    pairs = [(name, value) for name, value in headers]
    if any(type(name) is not str for name, _ in pairs):
        raise BadRequest("the name of a header is text")
    return tuple(sorted(((name.lower(), value) for name, value in pairs), key=lambda pair: pair[0]))


def _unescaped(path: str) -> str:
    """Return what servers could make of a path that unescape it one after the other."""
    for _ in range(MAX_ESCAPED):
        path = _ESCAPE.sub(_character, path)
    return path


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))
