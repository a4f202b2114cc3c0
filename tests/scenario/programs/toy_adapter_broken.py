"""An adapter that cannot even be imported without its framework."""

from __future__ import annotations

import importlib

__all__ = ["nothing"]

nothing = importlib.import_module("arl_toy_framework")
