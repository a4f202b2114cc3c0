"""difference() finds what == does not see, and finds nothing where only NaN differs from itself."""

from __future__ import annotations

import collections
import datetime as dt
import math
import struct
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given

from agent_run_ledger.codecs.equality import difference
from tests.unit.codecs import strategies
from tests.unit.codecs.samples import (
    ByIdentity,
    Colour,
    Frozen,
    Level,
    Pair,
    Plain,
    Point,
    SlottedError,
    made_point,
    noted,
)

ODD_NAN = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]

WHERE = SlottedError("a")
WHERE.where = "b"

DIFFERENT: list[tuple[Any, Any, str]] = [
    (1, 1.0, "$"), (1, True, "$"), (0.0, -0.0, "$"), ("a", b"a", "$"), ([1], (1,), "$"), (Level.LOW, 1, "$"),
    ([1, 2], [1, 2.0], "$[1]"), ([1], [1, 2], "$"), ([1, 2], [1], "$[1]"), ({"a": 1}, {"a": True}, "$.a"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "$.keys()[0]"), ({1: "a"}, {1.0: "a"}, "$.keys()[0]"), ({}, {"a": 1}, "$"),
    ({1}, {True}, "${int}"), ({1.0}, {1}, "${float}"), ({1}, {2}, "$[0]"), ({1}, {1, 2}, "$"),
    (frozenset(), set(), "$"),
    ({ByIdentity(1)}, {ByIdentity(2)}, "$[0].n"), (collections.OrderedDict(a=1), {"a": 1}, "$"),
    (collections.deque([1], 3), collections.deque([1], 4), "$.maxlen"),
    (collections.deque([1]), collections.deque([2]), "$[0]"),
    (collections.defaultdict(list), collections.defaultdict(dict), "$.default_factory"),
    (Decimal("1.0"), Decimal("1.00"), "$.digits"), (Decimal("NaN1"), Decimal("NaN2"), "$.digits"),
    (dt.datetime(2024, 1, 1, fold=0), dt.datetime(2024, 1, 1, fold=1), "$.fold"),
    (dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
     dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "x")), "$.tzinfo"),
    (dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC),
     dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))), "$.isoformat()"),
    (range(0, 3, 2), range(0, 4, 2), "$.stop"), (complex(0.0, 0), complex(-0.0, 0), "$.real"),
    (PurePosixPath("a"), PurePosixPath("b"), "$.parts[0]"), (Pair(1, 2), Pair(1, 3), "$.right"),
    (made_point(), Point(1, 2, [(1,), {2}]), "$.late"), (Frozen("a"), Frozen("b"), "$.name"),
    (ValueError(1), ValueError(1.0), "$.args[0]"), (ValueError(1), TypeError(1), "$"),
    (noted(ValueError(), "a"), noted(ValueError(), "b"), "$.__notes__[0]"),
    (SlottedError("a"), WHERE, "$.where"),
    (Colour.RED, Colour.BLUE, "$.name"), (Plain(), Plain(), "$"),
]  # fmt: skip

SAME: list[tuple[Any, Any]] = [
    (math.nan, ODD_NAN), ([math.nan], [ODD_NAN]), ({math.nan: 1}, {ODD_NAN: 1}), ({math.nan, 1}, {1, ODD_NAN}),
    (Decimal("NaN"), Decimal("NaN")), ({ByIdentity(1)}, {ByIdentity(1)}), (ByIdentity(1), ByIdentity(1)),
    ({1, "a", (2,)}, {(2,), "a", 1}), (complex(math.nan, 1), complex(ODD_NAN, 1)),
    (ValueError({8, 0}), ValueError({0, 8})),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "path"), DIFFERENT, ids=lambda value: type(value).__name__)
def test_a_difference_in_value_or_type_is_found_both_ways(one: Any, other: Any, path: str) -> None:
    assert difference(one, other) == path
    assert difference(other, one) is not None
    assert difference([{"a": one}], [{"a": other}]) == "$[0].a" + path[1:]


@pytest.mark.parametrize(("one", "other"), SAME, ids=lambda value: type(value).__name__)
def test_what_is_the_same_is_found_the_same(one: Any, other: Any) -> None:
    assert difference(one, other) is None
    assert difference(other, one) is None


@given(strategies.storable)
def test_every_value_is_the_same_as_itself(value: Any) -> None:
    assert difference(value, value) is None


@given(strategies.storable, strategies.storable)
def test_equal_under_difference_means_equal_type(one: Any, other: Any) -> None:
    if difference(one, other) is None:
        assert type(one) is type(other)


def test_a_value_without_a_form_is_the_same_as_itself() -> None:
    value = Plain()
    assert difference([value], [value]) is None
