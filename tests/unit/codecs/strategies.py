"""Hypothesis strategies for plain JSON and for every storable value of the standard library."""

from __future__ import annotations

import collections
import datetime as dt
import pathlib
from typing import Any

from hypothesis import strategies as st

from tests.unit.codecs.samples import Boxed, Colour, Frozen, Level, Mode, Pair, Point, Rights

whole_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
any_text = st.text(st.characters(), max_size=6)
plain_floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: str(f) != "-0.0")
plain_leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | plain_floats | whole_text


def nested(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON of these leaves."""
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


plain = nested(plain_leaves, whole_text.filter(lambda key: key != "$arl"))

offsets = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
zones = st.none() | st.timezones() | st.builds(dt.timezone, offsets) | st.builds(dt.timezone, offsets, whole_text)
hashable_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary(max_size=8)
    | st.complex_numbers()
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.decimals().filter(lambda number: not number.is_snan())
    | st.fractions()
    | st.uuids()
    | st.sampled_from([*Colour, *Level, *Mode, Rights.READ, Rights.READ | Rights.WRITE])
    | whole_text.filter(lambda name: "\0" not in name).map(pathlib.PurePosixPath)
    | st.builds(Frozen, any_text)
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3) | st.builds(Pair, inner, inner)
    ),
    max_leaves=5,
)
storable = st.recursive(
    hashables | st.binary(max_size=8).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(any_text | st.just("$arl"), inner, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3).map(collections.OrderedDict)
        | st.sets(hashables, max_size=3)
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.builds(Boxed, inner)
        | st.builds(Point, st.integers(), kept=st.lists(inner, max_size=2))
        | st.lists(inner, max_size=2).map(lambda args: ValueError(*args))
    ),
    max_leaves=12,
)
"""Whatever may be a result; with sets and dict keys that hold NaN, surrogates and each other."""
