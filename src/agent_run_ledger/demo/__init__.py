"""The demonstration: a real audit, killed and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_run_ledger.demo.driver import run_demo
    from agent_run_ledger.demo.outcome import Outcome, as_json

__all__ = ["Outcome", "as_json", "run_demo"]


def __getattr__(name: str) -> Any:
    """Import the driver on first use only: `arl --help` names this package and must stay quick."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"{__name__}.{'driver' if name == 'run_demo' else 'outcome'}")
    return getattr(module, name)
