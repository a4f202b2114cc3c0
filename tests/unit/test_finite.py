"""Arguments with numbers that are no JSON: where they are found, and what stands for them on record."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agent_run_ledger.adapters.finite import finite, is_finite
from agent_run_ledger.codecs import value_digest

NAN, INF = float("nan"), float("inf")


class Metres(float):
    """A float of a program's own."""


FOUND: dict[str, Any] = {
    "in a tuple": (1, (2, NAN)),
    "in a list": [[INF]],
    "in a mapping": {"a": {"b": -INF}},
    "in a set": {1.5, NAN},
    "in a frozenset in a set": {frozenset({NAN})},
    "of a subclass": Metres("nan"),
    "a decimal": Decimal("NaN"),
    "a decimal that signals": Decimal("sNaN"),
    "an infinite decimal": Decimal("-Infinity"),
    "a complex number": complex(0, NAN),
}


@pytest.mark.parametrize("where", FOUND)
def test_it_is_found_wherever_it_is_and_what_stands_for_it_can_be_recorded(where: str) -> None:
    assert not is_finite(FOUND[where])
    value_digest(finite({"a": FOUND[where], "b": 1}) if where != "of a subclass" else {})


def test_finite_values_stay_the_very_ones() -> None:
    values: list[Any] = [(1.5, 2), {1.5}, Decimal("1.5"), 1 + 2j, Metres(1.5), "nan", [{"a": (1,)}], {"nan": "inf"}]
    for value in values:
        assert is_finite(value)
        assert finite({"a": value})["a"] is value


def test_a_cycle_ends() -> None:
    circle: list[Any] = [1.5]
    circle.append({"again": circle})
    assert is_finite(circle)
    circle.append(NAN)
    assert not is_finite(circle)
    assert finite({"a": circle})["a"] is circle, "the codec refuses it as what it is"


def test_what_is_shared_is_looked_through_once() -> None:
    """Looked through once per use it would be 2**200 values."""
    shared: Any = [1.5]
    for _ in range(200):
        shared = (shared, {"a": shared})
    assert is_finite(shared)


def test_different_arguments_stay_different() -> None:
    stand_in = finite({"a": NAN})["a"]
    alike: list[Any] = [
        NAN,
        INF,
        -INF,
        [NAN],
        (NAN,),
        {NAN},
        Decimal("NaN"),
        complex(NAN, 0),
        complex(0, NAN),
        {"not a number": NAN},
        {"not a number": "nan"},
        {"not a number": {"not a number": "nan"}},
        stand_in,
        {"not a number": stand_in},
    ]
    assert len({value_digest(finite({"a": one})) for one in alike}) == len(alike)


def test_it_is_the_same_at_every_start() -> None:
    one, other = ({"b": {"x", NAN, "y", "z"}, "a": NAN}, {"a": float("nan"), "b": {"z", "y", float("nan"), "x"}})
    assert value_digest(finite(one)) == value_digest(finite(other))
