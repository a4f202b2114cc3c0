"""JSON from outside: what is refused, and that nothing but one kind of error comes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.canonical import MAX_INT, canonical
from agent_run_ledger.kernel.strict_json import SHOWN, NotStrict, bytes_of, exactly, number_of, read_strict, shown

LIMIT = 1 << 18

HOSTILE = {
    "a key twice": b'{"a":1,"b":2,"a":1}',
    "a key twice, once escaped": b'{"a":1,"\\u0061":1}',
    "a key twice below": b'[{"x":{"a":1,"a":2}}]',
    "a float": b"1.0",
    "an exponent": b"1e3",
    "NaN": b"[NaN]",
    "infinity": b"-Infinity",
    "half a character": b'"\\ud800"',
    "half a character in a key": b'{"\\udfff":1}',
    "an integer that readers round": b"9007199254740992",
    "an integer of many digits": b"9" * 5_000,
    "no UTF-8": b'"\xff"',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "two values": b"{}{}",
    "a comment": b"{}//",
    "nothing": b"",
    "a raw control character": b'"\n"',
    "depth": b"[" * 100_000 + b"]" * 100_000,
    "some depth": b"[" * 251 + b"]" * 251,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_readers_could_see_differently_is_refused(name: str) -> None:
    with pytest.raises(NotStrict):
        read_strict(HOSTILE[name], limit=LIMIT)


def test_one_byte_too_many_is_refused() -> None:
    assert read_strict(b"[1]", limit=3) == [1]
    with pytest.raises(NotStrict, match="at most 2"):
        read_strict(b"[1]", limit=2)


def test_spaces_and_order_are_free() -> None:
    assert read_strict(b' {"b" : [true, null],\n"a": "\xc3\xa9"} ', limit=LIMIT) == {"a": "é", "b": [True, None]}


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_tree_or_refused(data: bytes) -> None:
    try:
        tree = read_strict(data, limit=LIMIT)
    except NotStrict:
        return
    assert json.loads(data) == tree


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@given(TREES)
def test_canonical_bytes_come_back(tree: object) -> None:
    assert read_strict(canonical(tree), limit=LIMIT) == tree


def test_an_object_has_exactly_its_keys() -> None:
    assert exactly({"a": 1}, ("a",), "it") == {"a": 1}
    for tree in ({}, {"a": 1, "b": 1}, {"b": 1}, [], "a", None):
        with pytest.raises(NotStrict):
            exactly(tree, ("a",), "it")


@pytest.mark.parametrize("tree", [True, "1", None, [1]])
def test_only_an_integer_is_one(tree: object) -> None:
    with pytest.raises(NotStrict):
        number_of(tree, "it")


@pytest.mark.parametrize("text", ["0", "0G", "AB", "ab ", " ab", "ab cd", "é", 7])
def test_hex_is_lower_case_and_nothing_else(text: object) -> None:
    assert bytes_of("ab", "it") == b"\xab"
    with pytest.raises(NotStrict):
        bytes_of(text, "it")


def test_an_error_repeats_little_and_on_one_line() -> None:
    said = shown("x\n" * 1_000)
    assert len(said) == SHOWN + 1
    assert "\n" not in said
