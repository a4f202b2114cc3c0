"""No float has the digest of an integer, at any depth; the order of a dict is no part of its digest."""

from __future__ import annotations

import collections
import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.codecs import decode, encode, pack, tree, value_digest
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.plain import MAX_DEPTH, has_whole_float, is_plain
from agent_run_ledger.codecs.tagging import Writer
from agent_run_ledger.kernel.digests import value_sha256
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import Boxed, Pair, Point

LIMIT = 1 << 20
VALUE = b"agent-run-ledger/value/v1\n"

PAIRS: list[tuple[Any, Any]] = [
    (1, 1.0),
    (0, 0.0),
    (-3, -3.0),
    (2**53 - 1, 2.0**53 - 1),
    (2**53, 2.0**53),
    (10**22, 1e22),
    (int(1e300), 1e300),
    (0.0, -0.0),
    ("1.0", 1.0),
    (True, 1.0),
    ([1], [1.0]),
    ([[1]], [[1.0]]),
    ([0.5, 1], [0.5, 1.0]),
    ({"a": 1}, {"a": 1.0}),
    ({"a": {"b": [1]}}, {"a": {"b": [1.0]}}),
    ({1: "a"}, {1.0: "a"}),
    ((1,), (1.0,)),
    ({1}, {1.0}),
    (frozenset({1}), frozenset({1.0})),
    (collections.deque([1]), collections.deque([1.0])),
    (collections.OrderedDict(a=1), collections.OrderedDict(a=1.0)),
    (Point(1), Point(1.0)),  # type: ignore[arg-type]
    (Boxed([1]), Boxed([1.0])),
    (Pair(1), Pair(1.0)),
    (ValueError(1), ValueError(1.0)),
    ({"$arl": "float", "v": "1.0"}, 1.0),
    ([{"$arl": "float", "v": "1.0"}], [1.0]),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_differs_in_the_type_of_a_number_has_another_digest(one: Any, other: Any) -> None:
    assert value_digest(one) != value_digest(other)
    assert pack(one, limit_bytes=LIMIT).value_sha256 != pack(other, limit_bytes=LIMIT).value_sha256


@pytest.mark.parametrize("value", [value for pair in PAIRS for value in pair])
def test_every_way_to_a_digest_gives_the_same(value: Any) -> None:
    digests = {value_digest(value), pack(value, limit_bytes=LIMIT).value_sha256, value_sha256(tree(value))}
    assert digests == {value_digest(decode(encode(value)))}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"), (-1.0, "-1.0"), (0.0, "0.0"), (-0.0, "-0.0"), (123456789.0, "123456789.0"),
        (1e15, "1000000000000000.0"), (9999999999999998.0, "9999999999999998.0"), (1e16, "1e+16"),
        (1.5e16, "1.5e+16"), (1e22, "1e+22"), (1e300, "1e+300"), (-1.7976931348623157e308, "-1.7976931348623157e+308"),
    ],
)  # fmt: skip
def test_a_whole_float_is_digested_as_the_tag_that_the_page_describes(value: float, text: str) -> None:
    tagged = b'{"$arl":"float","v":"%b"}' % text.encode()
    assert value_digest(value) == hashlib.sha256(VALUE + tagged).digest()
    assert value_digest({"a": value}) == hashlib.sha256(VALUE + b'{"a":%b}' % tagged).digest()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, b"0.5"), (1e-7, b"1e-7"), (5e-324, b"5e-324"), (4503599627370495.5, b"4503599627370495.5")],
)
def test_any_other_float_is_digested_as_a_number(value: float, text: bytes) -> None:
    assert value_digest(value) == hashlib.sha256(VALUE + text).digest()


@given(strategies.plain)
def test_the_fast_path_is_for_values_without_whole_floats(value: Any) -> None:
    is_own_tree = difference(tree(value), value) is None
    assert is_plain(value, for_digest=True) is is_own_tree
    assert has_whole_float(value) is not is_own_tree
    assert value_digest(value) == pack(value, limit_bytes=LIMIT).value_sha256 == value_sha256(tree(value))


@given(strategies.storable)
def test_only_a_value_that_is_its_own_tree_is_digested_as_it_is(value: Any) -> None:
    if is_plain(value, for_digest=True):
        try:
            assert value_sha256(value) == value_sha256(tree(value))
        except ValueError:  # a lone surrogate
            assert b'"$arl"' in encode(value)


def retyped(value: Any) -> Any:
    """The value with every number in it turned into the equal number of the other type, where there is one."""
    if type(value) is int:
        return float(value) if int(float(value)) == value else value
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if type(value) is list:
        return [retyped(item) for item in value]
    return {key: retyped(item) for key, item in value.items()} if type(value) is dict else value


@given(strategies.plain | st.recursive(st.integers(-2, 2), st.lists, max_leaves=8))
def test_a_value_with_its_numbers_retyped_has_another_digest(value: Any) -> None:
    other = retyped(value)
    assert other == value
    assert (value_digest(other) == value_digest(value)) is (difference(other, value) is None)


def test_whatever_is_stored_has_a_digest_down_to_the_deepest_level() -> None:
    value: Any = 1.0
    for _ in range(MAX_DEPTH):
        value = [value]
    assert pack(value, limit_bytes=LIMIT).value_sha256 == value_digest(value)


def test_the_digest_counts_parts_to_the_limit_of_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Writer.__init__.__kwdefaults__, "max_nodes", 10)  # type: ignore[arg-type]
    assert pack([1.0] * 20, limit_bytes=LIMIT).value_sha256 == value_sha256([{"$arl": "float", "v": "1.0"}] * 20)
    assert pack((1,) * 20, limit_bytes=LIMIT).finite


def test_a_value_read_by_a_language_without_integers_is_another_input() -> None:
    read_back = json.loads("[1]")  # what such a language writes for [1.0]
    assert read_back == [1.0]
    assert value_digest(read_back) != value_digest([1.0])


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": 1, "b": 2.0}, {"b": 2.0, "a": 1}), ({1: "x", (2,): "y"}, {(2,): "y", 1: "x"}), ({1, "a"}, {"a", 1})],
    ids=repr,
)
def test_the_order_of_a_dict_is_no_part_of_its_digest_and_is_kept_in_storage(one: Any, other: Any) -> None:
    assert value_digest(one) == value_digest(other)
    for value in (one, other):
        if isinstance(value, dict):
            assert list(pack(value, limit_bytes=LIMIT).decoded) == list(value)  # type: ignore[call-overload]


def test_storage_writes_whole_floats_as_numbers() -> None:
    assert encode([1.0, 1, -0.0, math.pi]) == b'[1.0,1,{"$arl":"float","v":"-0.0"},3.141592653589793]'
    assert encode((1.0, 1e300)) == b'{"$arl":"tuple","v":[1.0,1e+300]}'
