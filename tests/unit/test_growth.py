"""Growth of a log: the same numbers as counting every leaf, from a few of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.ledger.growth import DAY_MS, growth_of, leaves_since
from agent_run_ledger.ports import Event
from tests.unit.memory_log import MemoryLog


def _log(times: list[int]) -> MemoryLog:
    log = MemoryLog()
    for time_ms in times:
        log.time_ms = time_ms - 1  # a commit goes on by one
        log.commit((Change(type="store", id=log.log_id, old="none", new="created", generation=0), None))
    log.reads.clear()
    return log


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(0, 101))
def test_leaves_are_counted_as_by_looking_at_each(times: list[int], since: int) -> None:
    times.sort()
    assert leaves_since(_log(times), len(times), since) == sum(time_ms >= since for time_ms in times)


def test_few_leaves_are_read() -> None:
    log = _log(sorted(range(1, 3_000)))
    leaves_since(log, 2_999, 1_234)
    assert len(log.reads) <= math.ceil(math.log2(3_000)) + 1


@pytest.mark.parametrize(
    ("ages_days", "counts", "ahead"),
    [
        ([], (0, 0, 0), None),
        ([0.5], (1, 1, 1), None),
        ([1.0], (1, 1, 1), 30.0),
        ([10.0, 9.0, 3.0, 1.0, 0.1], (2, 3, 5), 15.0),
        ([60.0, 59.0, 30.0, 29.0], (0, 0, 2), 2.0),
        ([60.0, 59.0], (0, 0, 0), 0.0),
    ],
)
def test_growth_at_its_edges(ages_days: list[float], counts: tuple[int, int, int], ahead: float | None) -> None:
    now_ms = 100 * DAY_MS
    growth = growth_of(_log([now_ms - round(age * DAY_MS) for age in ages_days]), now_ms)
    assert (growth.last_day, growth.last_7_days, growth.last_30_days) == counts
    assert growth.next_30_days == ahead


def test_a_clock_that_was_set_back_makes_no_projection() -> None:
    growth = growth_of(_log([5 * DAY_MS, 6 * DAY_MS]), 3 * DAY_MS)
    assert growth.last_day == 2
    assert growth.next_30_days is None


@pytest.mark.parametrize("envelope", [b"no json", b"[]", b"{}", b'{"time_ms":"1"}', b"\xff"])
def test_a_leaf_that_says_no_time_is_tampered(envelope: bytes) -> None:
    log = _log([5, 6, 7])
    log.leaves[1] = Event(index=1, op_id=bytes(16), envelope=envelope)
    with pytest.raises(Tampered, match="leaf 1"):
        leaves_since(log, 3, 6)
    del log.leaves[1]
    with pytest.raises(Tampered, match="leaf 1"):
        leaves_since(log, 3, 6)
