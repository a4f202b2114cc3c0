"""No test of this folder sends a trace anywhere, and none finds a key that it could send one with."""

from __future__ import annotations

import os

import pytest
from agents import set_tracing_disabled

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # of the processes that a test starts


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    set_tracing_disabled(True)
