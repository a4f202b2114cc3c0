"""Backoff: doubling up to a cap, spread by the fraction, never negative, never an overflow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.backoff import backoff_s


@pytest.mark.parametrize(
    ("tries", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 10.0), (7, 10.0), (10**9, 10.0)]
)
def test_the_longest_wait_doubles_up_to_the_cap(tries: int, longest: float) -> None:
    assert backoff_s(tries, base_s=0.5, cap_s=10.0, fraction=0.5) == longest / 2
    assert backoff_s(tries, base_s=0.5, cap_s=10.0, fraction=0.0) == 0.0


@given(
    st.integers(1, 5000),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_negative_and_never_above_the_cap(tries: int, base: float, cap: float, fraction: float) -> None:
    wait = backoff_s(tries, base_s=base, cap_s=cap, fraction=fraction)
    assert 0.0 <= wait <= cap


@pytest.mark.parametrize(
    ("tries", "base", "cap", "fraction"),
    [
        (0, 1.0, 1.0, 0.5),
        (-1, 1.0, 1.0, 0.5),
        (1, -0.1, 1.0, 0.5),
        (1, 1.0, -0.1, 0.5),
        (1, 1.0, 1.0, 1.0),
        (1, 1.0, 1.0, -0.1),
        (1, math.nan, 1.0, 0.5),
        (1, 1.0, math.nan, 0.5),
        (1, 1.0, math.inf, 0.5),
        (1, 1.0, 1.0, math.nan),
    ],
)
def test_numbers_outside_their_range_are_refused(tries: int, base: float, cap: float, fraction: float) -> None:
    with pytest.raises(ValueError, match="backoff needs"):
        backoff_s(tries, base_s=base, cap_s=cap, fraction=fraction)
