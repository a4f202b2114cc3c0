"""canonical(): equal to RFC 8785 on the fast path and on the slow one, and precise about what it refuses."""

from __future__ import annotations

import collections
import datetime
import enum
import json
import math
import struct
import uuid
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.canonical import MAX_DEPTH, MAX_INT, NotCanonical, canonical, child_path, is_fast
from tests.unit.kernel_formats import golden, worked_example

# RFC 8785, appendix B: the bits of a double and how ECMAScript writes it.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}

any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
safe_ints = st.integers(-MAX_INT, MAX_INT)


def trees(keys: st.SearchStrategy[str], scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=25)


plain_trees = trees(
    st.text(st.characters(max_codepoint=127), max_size=8), st.none() | st.booleans() | safe_ints | any_text
)
all_trees = trees(
    any_text, st.none() | st.booleans() | safe_ints | any_text | st.floats(allow_nan=False, allow_infinity=False)
)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Label(enum.StrEnum):
    A = "a"


class Words(str):
    __slots__ = ()


def nested(depth: int, innermost: object) -> object:
    tree = innermost
    for _ in range(depth):
        tree = [tree]
    return tree


@pytest.mark.parametrize(("bits", "written"), NUMBERS.items())
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == written.encode()
    assert canonical([number]) == f"[{written}]".encode()


def test_the_sample_of_rfc_8785_section_3_2_2() -> None:
    tree = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
             "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
             "literals": [null, true, false]}"""
    )
    expected = (
        r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )
    assert canonical(tree) == expected.encode()


def test_keys_are_sorted_by_utf16_code_units_as_in_section_3_2_3() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(keys, 1)))) == ordered


@given(plain_trees)
def test_the_fast_path_equals_the_slow_one(tree: Any) -> None:
    assert is_fast(tree)
    assert canonical(tree) == rfc8785.dumps(tree)


@given(all_trees)
def test_every_json_tree_has_the_bytes_of_rfc_8785(tree: Any) -> None:
    assert canonical(tree) == rfc8785.dumps(tree)


@given(all_trees)
def test_canonical_bytes_read_back_as_an_equal_tree(tree: Any) -> None:
    assert json.loads(canonical(tree), parse_int=float) == tree


def test_every_character_below_the_surrogates_is_escaped_the_same_way() -> None:
    for first in range(0, 0xD800, 0x400):
        text = "".join(map(chr, range(first, first + 0x400)))
        assert is_fast([text])
        assert canonical(text) == rfc8785.dumps(text)


def test_one_as_float_and_as_integer_is_the_same_statement() -> None:
    assert canonical({"a": 1.0}) == canonical({"a": 1}) == b'{"a":1}'
    assert canonical(-0.0) == b"0"
    assert canonical({"a": True}) != canonical({"a": 1})


@pytest.mark.parametrize(
    "tree",
    [
        1.5,
        {"a": [0.0]},
        {"é": 1},
        MAX_INT + 1,
        "\ud800",
        ["\udfff"],
        (1, 2),
        uuid.UUID(int=0),
        Colour.RED,
        Level.LOW,
        Label.A,
        Words("a"),
        datetime.datetime(2026, 1, 1),
        collections.OrderedDict(a=1),
        {1: 2},
        {Label.A: 1},
        b"a",
        nested(MAX_DEPTH + 1, "x"),
    ],
    ids=repr,
)
def test_what_the_two_paths_could_write_differently_is_not_fast(tree: object) -> None:
    assert not is_fast(tree)


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        (math.nan, "$"),
        ({"a": [1, 2, 3, {"b": math.nan}]}, "$.a[3].b"),
        ([math.inf], "$[0]"),
        ([1, -math.inf], "$[1]"),
        ({"n": MAX_INT + 1}, "$.n"),
        ({"n": -MAX_INT - 1}, "$.n"),
        ({"a b": {"x": math.nan}}, '$["a b"].x'),
        ({'"': [math.nan]}, '$["\\""][0]'),
        ({"": math.nan}, '$[""]'),
        ({"é": math.nan}, "$.é"),
        ({"a": {1: "x"}}, "$.a[1]"),
        ({None: "x"}, "$[None]"),
        ({Label.A: "x"}, f"$[{Label.A!r}]"),
        (["a", "\ud800"], "$[1]"),
        ({"\udfff": 1}, '$["\\udfff"]'),
        ({"a": {'é\ud800 "😀': 1}}, '$.a["é\\ud800 \\"😀"]'),
        ({"t": (1, 2)}, "$.t"),
        ({"t": {1}}, "$.t"),
        ([b"x"], "$[0]"),
        ([uuid.UUID(int=0)], "$[0]"),
        ([Colour.RED], "$[0]"),
        ([Level.LOW], "$[0]"),
        ([Label.A], "$[0]"),
        ([Words("a")], "$[0]"),
        ({"d": datetime.date(2026, 1, 1)}, "$.d"),
        ({"o": collections.OrderedDict()}, "$.o"),
        (nested(MAX_DEPTH + 1, 1), "$" + "[0]" * MAX_DEPTH),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_with_its_path(tree: object, path: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical(tree)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, Misuse)
    assert caught.value.code == "not_canonical"


def test_the_widest_integers_are_written_and_the_next_ones_refused() -> None:
    assert canonical([MAX_INT, -MAX_INT]) == b"[9007199254740991,-9007199254740991]"
    assert canonical([MAX_INT, 0.5, -MAX_INT]) == b"[9007199254740991,0.5,-9007199254740991]"
    for wide in (MAX_INT + 1, -MAX_INT - 1, 2**64, -(2**64)):
        with pytest.raises(NotCanonical, match=r"2\*\*53"):
            canonical(wide)


def test_the_deepest_tree_is_written_on_both_paths() -> None:
    for innermost in (1, 0.5):
        tree = nested(MAX_DEPTH, innermost)
        assert is_fast(tree) is (innermost == 1)
        assert canonical(tree) == b"[" * MAX_DEPTH + str(innermost).encode() + b"]" * MAX_DEPTH
    deep_dicts: object = "end"
    for _ in range(MAX_DEPTH):
        deep_dicts = {"k": deep_dicts}
    assert is_fast(deep_dicts)
    with pytest.raises(NotCanonical, match="nested deeper"):
        canonical({"k": deep_dicts})


def test_a_tree_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotCanonical, match="nested deeper"):
        canonical(loop)


def test_the_first_bad_value_in_reading_order_is_named() -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical({"z": 1, "y": [math.nan], "a": math.inf})
    assert caught.value.path == "$.y[0]"


def test_a_complaint_can_be_moved_below_a_prefix() -> None:
    moved = NotCanonical("bad", "$.a[3]").below("$[7]")
    assert (moved.path, moved.reason) == ("$[7].a[3]", "bad")


def test_paths_tell_strange_keys_apart() -> None:
    keys: list[object] = ["a", "a b", "1", 1, '"', "", "a.b", "a[0]", None, "\ud800", "\\ud800", "\udfff", "?"]
    assert len({child_path("$", key) for key in keys}) == len(keys)
    assert all(child_path("$", key).encode() for key in keys)


@pytest.mark.parametrize("case", golden("canonical"), ids=lambda case: case["json"])
def test_bytes_written_by_an_earlier_version_are_still_the_bytes(case: dict[str, str]) -> None:
    assert canonical(json.loads(case["json"])).hex() == case["canonical_hex"]


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("canonical")
    assert canonical(json.loads(example["json"])).hex() == example["canonical_hex"]
