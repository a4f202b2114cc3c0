"""A stored value in words: no tag is left over, nothing is built, and nothing in it can stop the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_run_ledger import codecs
from agent_run_ledger.ledger.stored_words import error_text, in_words, text_of

TAG = "$arl"


def _stored(value: object) -> Any:
    return orjson.loads(codecs.readable(value, limit_bytes=10_000))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({TAG: "int", "v": "0x10000000000000000"}, 2**64),
        ({TAG: "int", "v": "0x" + "f" * 5000}, "0x" + "f" * 5000),
        ({TAG: "float", "v": "nan"}, "nan"),
        ({TAG: "str", "v": "7aCA"}, "\\ud800"),
        ({TAG: "bytes", "v": "AP8="}, "<2 bytes> 00ff"),
        ({TAG: "tuple", "v": [1, {TAG: "tuple", "v": [2]}]}, [1, [2]]),
        ({TAG: "dict", "p": [[1, "a"], ["b", 2]]}, {"1": "a", "b": 2}),
        ({TAG: "dict", "p": [[1, "a"], ["1", "b"]]}, [[1, "a"], ["1", "b"]]),
        ({TAG: "dataclass", "t": "m:Order", "f": {"id": 2}}, {"<m:Order>": {"id": 2}}),
        ({TAG: "enum", "t": "m:Colour", "n": "RED", "v": 1}, "<m:Colour> RED"),
        ({TAG: "codec", "n": "money", "v": 5}, {"<codec money>": 5}),
        ({TAG: "truncated", "v": "beg", "left": 1234}, "beg… (1,234 more characters)"),
        ({TAG: "truncated", "v": [1], "left": 2}, [1, "… 2 more"]),
        ({TAG: "truncated", "v": {"a": 1}, "left": 2}, {"a": 1, "…": "2 more"}),
        ({TAG: "truncated", "t": "m:X", "why": "cycle"}, "<m:X: not kept, cycle>"),
        ({TAG: "truncated"}, "<not kept>"),
        ({TAG: "unstorable", "t": "object", "repr": "<object>"}, {"<object>": "<object>"}),
        ({TAG: "unstorable", "t": "m:L", "v": [1]}, {"<m:L>": [1]}),
        ({TAG: "rescued", "v": {"a": {TAG: "float", "v": "inf"}}}, {"a": "inf"}),
        ({TAG: "ndarray", "d": "<i2", "s": [1], "v": "AQA="}, {"<ndarray>": {"d": "<i2", "s": [1], "v": "AQA="}}),
    ],
)
def test_each_form(node: object, words: object) -> None:
    assert in_words(node) == words


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({TAG: "exception", "t": "builtins:ValueError", "a": ["x"], "m": "x"}, "ValueError: x"),
        ({TAG: "exception", "t": "builtins:ValueError", "a": [], "m": ""}, "ValueError"),
        (
            {TAG: "exception", "t": "m:Sorry", "a": [], "m": {TAG: "str", "v": "7aCA"}},
            "Sorry: \\ud800",
        ),
        ({TAG: "rescued", "v": {TAG: "truncated"}}, "an error of which nothing was kept"),
        ({TAG: "codec", "n": "c", "v": 5}, '{"<codec c>": 5}'),
        ({"plain": 1}, '{"plain": 1}'),
    ],
)
def test_an_error_is_its_type_and_its_message(node: object, text: str) -> None:
    assert error_text(node) == text


def test_an_exception_without_a_stored_form_keeps_its_name_and_its_repr() -> None:
    class Odd(Exception):
        def __init__(self, left: object, right: object) -> None:
            super().__init__(left)
            self.right = right

    said = error_text(_stored(Odd(object(), lambda: 1)))
    assert "Odd: Odd(<object object at " in said
    assert TAG not in said


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent.parent / "golden" / "values").glob("*.json")), ids=lambda path: path.stem
)
def test_no_golden_value_leaves_a_tag_behind(path: Path) -> None:
    def stored(node: Any) -> list[Any]:
        if isinstance(node, dict):
            found = [node] if TAG in node else []
            return found + [item for inner in node.values() for item in stored(inner)]
        if isinstance(node, list):
            return [item for inner in node for item in stored(inner)]
        try:
            return stored(json.loads(node)) if isinstance(node, str) and node.startswith(("{", "[")) else []
        except ValueError:
            return []

    found = [node for node in stored(json.loads(path.read_text("utf-8"))) if f'["{TAG}", ' not in json.dumps(node)]
    for node in found:
        assert f'"{TAG}":' not in json.dumps(in_words(node))
    assert found or path.stem == "plain"


_NODES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([TAG, "v", "t", "p", "f", "m", "a", "n"]), inner),
)
_TAGS = ["int", "str", "bytes", "dict", "enum", "exception", "dataclass", "truncated", "unstorable", "codec", "rescued"]


@settings(deadline=None, derandomize=True)
@given(_NODES, st.sampled_from(_TAGS))
def test_what_is_damaged_is_still_shown(node: Any, tag: str) -> None:
    damaged = {TAG: tag, **{k: v for k, v in node.items() if k != TAG}} if isinstance(node, dict) else node
    for one in (node, damaged):
        assert isinstance(text_of(one), str)
        assert isinstance(error_text(one), str)


def test_what_is_nested_beyond_the_format_ends() -> None:
    node: object = 1
    for _ in range(800):
        node = [node]
    assert "…" in text_of(node)
