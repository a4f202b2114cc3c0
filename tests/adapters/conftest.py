"""Each folder here is for the environment of one framework, is not even looked at elsewhere, and has no network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.adapters.offline import LOG_VARIABLE, refuse

FOLDERS = {"langchain": "langchain", "openai_agents": "agents", "mcp": "mcp"}
"""Folder, and the module that its tests need."""

collect_ignore = [folder for folder, module in FOLDERS.items() if find_spec(module) is None]


@pytest.fixture(scope="session")
def _refused() -> None:
    refuse()


@pytest.fixture(autouse=True)
def network_log(
    _refused: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """What this process and those that it starts by `offline` reach for: nothing, when the test is over."""
    log = tmp_path_factory.mktemp("network") / "refused.log"
    monkeypatch.setenv(LOG_VARIABLE, str(log))
    yield log
    assert not log.exists(), log.read_text(encoding="utf-8")
