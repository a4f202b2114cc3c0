"""An adapter of a framework that nobody has, as a model of what `adapters/NAME/__init__` does."""

from __future__ import annotations

from typing import Any

from agent_run_ledger.adapters.frameworks import framework

__all__ = ["toy_middleware"]


def toy_middleware() -> Any:
    return framework("arl_toy_framework", extra="toy")
