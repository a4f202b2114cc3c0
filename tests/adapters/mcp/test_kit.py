"""The scenarios of effects of the adapter kit hold behind the proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.testing.adapter_effects import EFFECT_SCENARIOS
from agent_run_ledger.testing.adapter_kit import Found, run_adapter_kit

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("scenario", EFFECT_SCENARIOS)
def test_the_kit_holds(scenario: str, tmp_path: Path) -> None:
    verdicts = run_adapter_kit("tests.adapters.mcp.subject:Client", tmp_path, only=[scenario])
    verdicts.assert_all()
    assert verdicts.of(scenario).found is Found.HOLDS
