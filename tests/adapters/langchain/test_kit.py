"""The adapter kit holds for LangChain's agents, for graphs of one's own, and for models whose tools are bound first."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger.testing.adapter_kit import SCENARIOS, run_adapter_kit

SUBJECTS = Path(__file__).parent / "subject.py"

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("subject", ["Agent", "Graph"])
def test_the_kit_holds(subject: str, scenario: str, tmp_path: Path) -> None:
    verdicts = run_adapter_kit(f"{SUBJECTS}:{subject}", tmp_path, only=[scenario])
    verdicts.assert_all()


def test_a_model_whose_tools_are_bound_first_is_recorded_too(tmp_path: Path) -> None:
    run_adapter_kit(f"{SUBJECTS}:ToolFirst", tmp_path, only=["restart", "stream"]).assert_all()
