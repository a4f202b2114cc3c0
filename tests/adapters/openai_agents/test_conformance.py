"""The adapter holds in every scenario of the conformance kit, none left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.testing.adapter_kit import SCENARIOS, Found, run_adapter_kit
from tests.services.postgres import Cluster

SUBJECT = "tests.adapters.openai_agents.subject:Subject"

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_adapter_holds(scenario: str, tmp_path: Path) -> None:
    verdicts = run_adapter_kit(SUBJECT, tmp_path, only=[scenario])
    verdicts.assert_all()
    assert verdicts.of(scenario).found is Found.HOLDS


def test_the_adapter_holds_at_a_server(tmp_path: Path, postgres: Cluster) -> None:
    verdicts = run_adapter_kit(SUBJECT, tmp_path, only=["kill_unsafe"], server=postgres.url())
    verdicts.assert_all()
    assert verdicts.of("kill_unsafe").found is Found.HOLDS
