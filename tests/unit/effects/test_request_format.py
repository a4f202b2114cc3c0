"""Requests as bytes and back: golden files, one form for each, and every hostile part refused."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.idempotency import idempotency_key
from agent_run_ledger.kernel.effects.report import Answered, evidence_id
from agent_run_ledger.kernel.effects.request import (
    MAX_HEAD_BYTES,
    MAX_REQUEST_BYTES,
    BadRequest,
    Call,
    Request,
    request_bytes,
    request_from,
)
from agent_run_ledger.kernel.effects.request_rules import CREDENTIALS, FRAMING, REROUTING
from tests.unit.effects.request_examples import KEYS, LEDGER_ID, REPORTS, REQUESTS, written
from tests.unit.kernel_formats import golden, worked_example

LINE = b"arl/request/v1\n"
PLAIN = b'{"headers":[],"kind":"http","method":"POST","path":"/"}'


@pytest.mark.parametrize("name", ["request", "idempotency", "report"])
def test_what_was_written_once_is_written_now(name: str) -> None:
    assert written()[name] == golden(name)


def test_the_pages_example_is_the_first_golden_one() -> None:
    assert worked_example("request") == golden("request")[0]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_a_request_comes_back_as_the_value_that_it_was(number: int) -> None:
    stored = golden("request")[number]["stored"].encode("latin-1")
    assert request_from(stored) == REQUESTS[number]
    assert request_bytes(request_from(stored)) == stored


VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@given(st.binary(max_size=200), st.dictionaries(st.text("ab-_", min_size=1), st.text(VISIBLE, min_size=1), max_size=5))
def test_every_body_and_every_header_comes_back(body: bytes, headers: dict[str, str]) -> None:
    request = Request.bytes("POST", "/a", body, headers=headers)
    assert request_from(request_bytes(request)) == request


@given(st.one_of(st.binary(max_size=120), st.binary(max_size=120).map(lambda tail: LINE + tail)))
def test_any_bytes_are_one_request_or_refused(stored: bytes) -> None:
    try:
        request = request_from(stored)
    except BadRequest:
        return
    assert request_bytes(request) == stored


FORGED = {
    "no line": PLAIN + b"\n",
    "another version": b"arl/request/v2\n" + PLAIN + b"\n",
    "no end of the head": LINE + PLAIN,
    "no JSON": LINE + b"{\n",
    "no object": LINE + b"[]\n",
    "a space": LINE + PLAIN.replace(b",", b", ", 1) + b"\n",
    "a name twice": LINE + PLAIN.replace(b'"path"', b'"path":"/x","path"') + b"\n",
    "a part more": LINE + PLAIN.replace(b'"path":"/"', b'"path":"/","zzz":1') + b"\n",
    "a part less": LINE + PLAIN.replace(b',"path":"/"', b"") + b"\n",
    "another kind": LINE + PLAIN.replace(b"http", b"file") + b"\n",
    "a kind that is no word": LINE + PLAIN.replace(b'"http"', b"[1]") + b"\n",
    "headers that are no list": LINE + PLAIN.replace(b"[]", b"{}") + b"\n",
    "a header that is text": LINE + PLAIN.replace(b"[]", b'["ab"]') + b"\n",
    "a header of three": LINE + PLAIN.replace(b"[]", b'[["a","b","c"]]') + b"\n",
    "a header that is a number": LINE + PLAIN.replace(b"[]", b'[["a",1]]') + b"\n",
    "headers in another order": LINE + PLAIN.replace(b"[]", b'[["b","1"],["a","1"]]') + b"\n",
    "a method that is a number": LINE + PLAIN.replace(b'"POST"', b"1") + b"\n",
    "a path that is null": LINE + PLAIN.replace(b'"/"', b"null") + b"\n",
    "nested too deeply": LINE + b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}\n",
    "a long head": LINE + b" " * MAX_HEAD_BYTES + PLAIN + b"\n",
    "too long": LINE + PLAIN + b"\n" + bytes(MAX_REQUEST_BYTES),
    "a call without arguments": LINE + b'{"kind":"call","name":"f"}\n',
    "a call with a list": LINE + b'{"kind":"call","name":"f"}\n[]',
    "a call with a space": LINE + b'{"kind":"call","name":"f"}\n{} ',
    "a call with a name twice": LINE + b'{"kind":"call","name":"f"}\n{"a":1,"a":1}',
    "a call of no name": LINE + b'{"kind":"call","name":"f g"}\n{}',
    "a call of a number": LINE + b'{"kind":"call","name":1}\n{}',
}


@pytest.mark.parametrize("how", FORGED)
def test_other_bytes_are_no_request(how: str) -> None:
    with pytest.raises(BadRequest):
        request_from(FORGED[how])


METHODS: list[Any] = ["", "post", "PO ST", "POST\r\n", "CONNECT", "TRACE", "P" * 21, "PÖST", None, b"POST"]
PATHS: list[Any] = [
    "", "a", "//evil.example/x", "http://evil.example/", "/a b", "/a\r\nX: y", "/a\x00", "/a#b", "/a\\b", "/ä", "/a%",
    "/a%zz", "/..", "/a/../b", "/a/./b", "/a/%2e%2e/b", "/a/%2E./b", "/a/%252e%252e/b", "/a/%25252e./b",
    "/a/%2525252e./b", "/a/..;x=1/b", "/a/..%3bx/b", "/a%2f..%2fb", "/a%5c..%5cb", "/a/%20../b", "/a%00", "/a%0d%0a",
    "/a%250a", "/a?b c", "/a?b#c", "/" + "a" * 8_000, None, b"/a", "*", "evil.example:443", "/a?\n", "/a\n",
]  # fmt: skip
HEADERS: list[Any] = [
    (("X-A", "b"),), (("x a", "b"),), (("", "b"),), (("x-a:", "b"),), (("x-ä", "b"),), (("x-a\n", "b"),),
    (("x-a", ""),), (("x-a", "b\r\nx-c: d"),), (("x-a", "b\n"),), (("x-a", "b\0"),), (("x-a", " b"),), (("x-a", "b "),),
    (("x-a", "ä"),), (("x-a", "b"), ("x-a", "c")), (("x-b", "1"), ("x-a", "1")), (("x-a", 1),), ((1, "b"),),
    ("ab",), (("x-a",),), [("x-a", "b")], (("x" * 101, "b"),), (("x-a", "b" * 4_001),),
    tuple((f"x-{number:03}", "b") for number in range(51)),
    *[((name, "b"),) for name in sorted(FRAMING | CREDENTIALS | REROUTING)],
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_is_none_is_refused(method: Any) -> None:
    with pytest.raises(BadRequest, match="method"):
        Request(method=method, path="/")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_elsewhere_is_refused(path: Any) -> None:
    with pytest.raises(BadRequest, match=r"path|leads|control|escaped"):
        Request(method="POST", path=path)


@pytest.mark.parametrize("headers", HEADERS)
def test_a_header_that_may_not_stand_in_a_request_is_refused(headers: Any) -> None:
    with pytest.raises(BadRequest, match="header"):
        Request(method="POST", path="/", headers=headers)


@pytest.mark.parametrize(
    "path", ["/", "/a/b/", "/a//b", "/a%20b", "/a.b/..c", "/a...", "/a?q=../..&n=%0a&u=http://x/", "/~a:b@c"]
)
def test_a_path_that_leads_where_it_says_is_taken(path: str) -> None:
    assert request_from(request_bytes(Request.bytes("GET", path))) == Request(method="GET", path=path)


def test_what_stands_at_the_edge_of_a_limit_is_taken() -> None:
    path, headers = "/" + "a" * 7_999, tuple((f"x-{number:03}", "b" * 4_000) for number in range(50))
    request = Request(method="M" * 20, path=path, headers=headers)
    assert request_from(request_bytes(request)) == request
    room = MAX_REQUEST_BYTES - len(request_bytes(Request(method="GET", path="/")))
    assert len(request_bytes(Request(method="GET", path="/", body=bytes(room)))) == MAX_REQUEST_BYTES
    with pytest.raises(BadRequest, match="with its head"):
        request_bytes(Request(method="GET", path="/", body=bytes(room + 1)))


@pytest.mark.parametrize("body", ["{}", bytearray(b"{}"), None, bytes(MAX_REQUEST_BYTES + 1)])
def test_a_body_that_is_no_bytes_or_too_long_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest, match="body"):
        Request(method="POST", path="/", body=body)


def test_the_value_of_a_refused_header_is_not_told() -> None:
    with pytest.raises(BadRequest) as refusal:
        Request.bytes("POST", "/", headers={"x-api-key": "s3cret\n"})
    assert "s3cret" not in str(refusal.value)


def test_equal_trees_are_equal_bytes_and_headers_have_one_order() -> None:
    one = Request.json("POST", "/", {"a": 1, "b": [2.0]}, headers=[("X-B", "1"), ("X-A", "2")])
    assert one == Request.json("POST", "/", {"b": [2], "a": 1}, headers={"x-a": "2", "x-b": "1"})
    assert one.body == b'{"a":1,"b":[2]}'
    with pytest.raises(BadRequest, match="canonical"):
        Request.json("POST", "/", {"a": float("nan")})
    with pytest.raises(BadRequest, match="twice"):
        Request.json("POST", "/", {}, headers={"Content-Type": "text/plain"})
    with pytest.raises(BadRequest, match="text"):
        Request.bytes("POST", "/", headers=[(1, "b")])  # type: ignore[list-item]


@pytest.mark.parametrize("arguments", [{"a": 1.0}, {"a": [-0.0]}, {"a": {"b": 3e2}}, {"a": 2**53}, {"a": (1,)}])
def test_arguments_that_would_come_back_otherwise_are_refused(arguments: Any) -> None:
    with pytest.raises(BadRequest):
        Call.of("f", arguments)


def test_arguments_come_back_to_the_type() -> None:
    given_ones = {"a": [1, 1.5, True, None, "x", {"b": []}], "c": False}
    assert repr(Call.of("f", given_ones).arguments) == repr(given_ones)


def test_a_key_follows_from_ledger_key_and_generation_alone() -> None:
    made = [idempotency_key(*named) for named in KEYS]
    assert made == [idempotency_key(*named) for named in KEYS]
    assert len(set(made)) == len(made)
    assert all(len(key) == 64 for key in made)
    with pytest.raises(ValueError, match="at least 1"):
        idempotency_key(LEDGER_ID, "k", 0)


def test_the_id_of_evidence_has_the_digest_of_the_report_in_it() -> None:
    fresh, answered = b"f" * 16, REPORTS[0]
    assert evidence_id(fresh, answered) == fresh + bytes.fromhex(golden("report")[0]["sha256"])
    others = [
        replace(answered, status=200),
        replace(answered, found=Found.UNKNOWN),
        Answered(found=Found.EXECUTED, status=201, body_sha256=sha256(b"").digest()),
    ]
    assert len({evidence_id(fresh, one) for one in [answered, *others]}) == 4
