"""The system's clock."""

from __future__ import annotations

import time

import pytest

from agent_run_ledger.clock import SystemClock
from agent_run_ledger.ports import Clock


def test_now_is_unix_time_in_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)
    clock: Clock = SystemClock()
    assert clock.now_ms() == 1_700_000_000_123


def test_durations_come_from_the_clock_that_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 12.5)
    assert SystemClock().monotonic_s() == 12.5
