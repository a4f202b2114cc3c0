"""The pieces of the MCP proxy that need no process: lines, messages, numbers of calls, results."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.adapters.mcp import answers
from agent_run_ledger.adapters.mcp.call_numbers import CallNumbers, call_digest, part_of
from agent_run_ledger.adapters.mcp.lines import HEAD_BYTES, Line, lines
from agent_run_ledger.adapters.mcp.listing import Listing
from agent_run_ledger.adapters.mcp.messages import NoMessage, encode, head_of, id_key, is_id, parse


def _lines(chunks: list[bytes], limit_bytes: int) -> list[Line]:
    async def read() -> list[Line]:
        stream = asyncio.StreamReader()
        for chunk in chunks:
            stream.feed_data(chunk)
        stream.feed_eof()
        return [line async for line in lines(stream, limit_bytes=limit_bytes)]

    return asyncio.run(read())


# -- lines ---------------------------------------------------------------------------------------------------------


def test_lines_lose_their_ends_and_empty_ones_and_an_unfinished_one_are_left_out() -> None:
    assert _lines([b"a\r\n", b"\n \nb", b"c\nunfinished"], 100) == [Line(b"a"), Line(b"bc")]


def test_a_line_at_the_limit_passes_and_one_over_it_is_cut() -> None:
    said = _lines([b"x" * 100 + b"\n" + b"y" * 101 + b"\n" + b"z\n"], 100)
    assert said == [Line(b"x" * 100), Line(b"y" * 101, too_long=True), Line(b"z")]


def test_of_a_very_long_line_only_the_beginning_is_held() -> None:
    said = _lines([b'{"id":7,"x":"' + b"y" * 500_000, b"y" * 500_000 + b'"}\nnext\n'], 1000)
    assert [(one.too_long, len(one.text)) for one in said] == [(True, HEAD_BYTES), (False, 4)]
    assert head_of(said[0].text) == {"id": 7}


class Endless(asyncio.StreamReader):
    """A server that writes 64 MB without an end of line."""

    chunks = 1024

    async def read(self, n: int = -1) -> bytes:
        self.chunks -= 1
        return b"y" * n if self.chunks >= 0 else b""


def test_a_line_without_an_end_takes_no_memory() -> None:
    async def read() -> list[Line]:
        return [line async for line in lines(Endless(), limit_bytes=1000)]

    tracemalloc.start()
    try:
        assert asyncio.run(read()) == []
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


# -- messages ------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_a_message_is_one_line_that_is_read_as_it_was(message: dict[str, Any]) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert parse(line, strict=True) == message


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{} {}", b"NaN", b'{"a":1,"a":2}', b'{"x":[{"a":1,"b":2,"\\u0061":3}]}', b"\xff", b"[" * 9999]
)
def test_what_is_not_one_message_is_refused(text: bytes) -> None:
    with pytest.raises(NoMessage):
        parse(text, strict=True)


def test_what_a_server_says_twice_is_read_as_json_reads_it() -> None:
    assert parse(b'{"a":1,"a":2}', strict=False) == {"a": 2}


def test_ids_are_told_apart_by_their_type() -> None:
    assert len({id_key(one) for one in (1, "1", True, None)}) == 4
    assert [is_id(one) for one in (1, "a", True, None, 1.5, [1])] == [True, True, False, False, False, False]


@given(st.dictionaries(st.text(min_size=1), JSON, min_size=1, max_size=5), st.integers(min_value=0, max_value=200))
def test_the_beginning_of_a_message_says_nothing_that_the_whole_does_not(message: dict[str, Any], cut: int) -> None:
    found = head_of(encode(message)[:cut])
    assert found.items() <= message.items()


def test_a_number_that_may_go_on_is_not_read() -> None:
    assert head_of(b'{"jsonrpc":"2.0","id":12') == {"jsonrpc": "2.0"}
    assert head_of(b'[{"id":12,') == {}


# -- which call is which -------------------------------------------------------------------------------------------


def test_equal_calls_are_numbered_and_one_that_waits_keeps_its_number() -> None:
    numbers = CallNumbers()
    assert [numbers.take("a"), numbers.take("a"), numbers.take("b")] == [0, 1, 0]
    numbers.keep("a", 1)
    numbers.keep("a", 0)
    assert [numbers.take("a"), numbers.take("a"), numbers.take("a")] == [0, 1, 2]


def test_calls_are_equal_by_tool_and_arguments_and_not_by_the_order_of_keys() -> None:
    assert call_digest("a", {"x": 1, "y": 2}) == call_digest("a", {"y": 2, "x": 1})
    different = [("a", {"x": 1}), ("b", {"x": 1}), ("a", {"x": 1.0}), ("a", {"x": "1"}), ("a", {"x": True}), ("a", {})]
    assert len({call_digest(tool, arguments) for tool, arguments in different}) == len(different)


def test_a_part_is_told_apart_by_what_the_client_answers() -> None:
    parts = [
        part_of({"requestState": "a"}),
        part_of({"requestState": "b"}),
        part_of({"requestState": "a", "inputResponses": {"q": 1}}),
        part_of({"task": {"ttl": 1}}),
    ]
    assert len(set(parts)) == 4
    assert part_of({"name": "x", "requestState": None}) == ""


# -- results -------------------------------------------------------------------------------------------------------


def _text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def test_the_breaker_sees_a_result_without_its_envelope() -> None:
    assert answers.outcome_of(_text("done", isError=False, _meta={"took": 1})) == "done"
    assert answers.outcome_of(_text("a", "b")) == "a\nb"
    assert answers.outcome_of({"content": [], "structuredContent": {"n": 1}}) == {"n": 1}
    assert answers.outcome_of({"content": []}) is None
    image = {"type": "image", "data": "x"}
    assert answers.outcome_of({"content": [image]}) == [image]
    for said in (True, 1, "true", "yes"):
        assert isinstance(answers.outcome_of(_text("no such file", isError=said)), answers.ToolFailed)
    failed = answers.outcome_of(_text("no such file", isError=True))
    assert isinstance(failed, answers.ToolFailed)
    assert str(failed) == "no such file"


@given(JSON)
def test_the_breaker_is_shown_something_of_whatever_a_server_returns(result: Any) -> None:
    answers.outcome_of(result)
    answers.outcome_of({"content": result, "isError": True})


def test_only_what_the_run_says_is_an_unknown_outcome() -> None:
    said = {"outcome": "unknown", "tool": "pay", "call": "7", "message": "..."}
    assert answers.is_unknown(said)
    assert not answers.is_unknown({**said, "content": []})
    assert not answers.is_unknown({**said, "outcome": "known"})
    assert not answers.is_unknown("unknown")


def test_what_a_person_resolved_a_call_with_is_a_result() -> None:
    assert answers.as_result(_text("a")) == _text("a")
    assert answers.as_result("order 7")["content"] == [{"type": "text", "text": "order 7"}]
    assert answers.as_result(None)["content"] == [{"type": "text", "text": "None"}]


# -- listings ------------------------------------------------------------------------------------------------------


class Book:
    """Keeps values as a run does: the first one of a name stays."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def record(self, name: str, make: Any) -> Any:
        return self.kept.setdefault(name, json.loads(json.dumps(make())))


def _tool(name: str, description: str = "", **hints: bool) -> dict[str, Any]:
    return {"name": name, "description": description, "annotations": hints}


def _listed(book: Book, *tools: dict[str, Any]) -> tuple[Listing, list[str]]:
    said: list[str] = []
    listing = Listing(said.append)
    assert not listing.page(None, {"tools": [*tools[:1]], "nextCursor": "1"})
    assert listing.page("1", {"tools": [*tools[1:]]})
    listing.record(book.record)
    listing.record(book.record)
    return listing, said


def test_a_listing_that_differs_from_the_first_one_of_the_run_is_reported_once() -> None:
    book = Book()
    assert _listed(book, _tool("a"), _tool("b"))[1] == []
    assert _listed(book, _tool("b"), _tool("a"))[1] == []
    _, said = _listed(book, _tool("a", "send me all"), _tool("c"))
    assert [one.split(" by ")[0] for one in said] == [
        "tool 'b' was taken away",
        "tool 'c' was added",
        "tool 'a' was redefined",
    ]
    assert [name for name in book.kept if "changed" in name]
    assert len(book.kept) == 2


def test_hints_count_only_for_tools_that_are_as_they_were() -> None:
    book = Book()
    listing, _ = _listed(book, _tool("a", readOnlyHint=True), _tool("b", idempotentHint=True), _tool("c"))
    assert [listing.says_safe(name) for name in "abcd"] == [True, True, False, False]
    later, _ = _listed(book, _tool("a", "other", readOnlyHint=True), _tool("b", idempotentHint=True))
    assert [later.says_safe(name) for name in "ab"] == [False, True]


def test_hints_count_for_nothing_before_the_listing_is_recorded() -> None:
    listing = Listing(lambda words: None)
    listing.page(None, {"tools": [_tool("a", readOnlyHint=True)]})
    assert not listing.says_safe("a")
