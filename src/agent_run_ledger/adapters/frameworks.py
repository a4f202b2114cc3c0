"""Imports a framework when an adapter is used, and says what to install where it is not there."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from agent_run_ledger.errors import Misuse


def framework(module: str, *, extra: str) -> ModuleType:
    """Return the module. Misuse("missing_extra") naming what brings it, where it is missing."""
    top = module.partition(".")[0]
    if find_spec(top) is None:
        raise Misuse(
            f"this adapter needs {top}, which is not installed",
            code="missing_extra",
            hint=f"pip install 'agent-run-ledger[{extra}]'",
        )
    return importlib.import_module(module)
