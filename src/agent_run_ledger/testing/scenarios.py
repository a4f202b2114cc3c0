"""Finds the function that a scenario's name stands for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_run_ledger.errors import Misuse

Scenario = Callable[[Path], object]
"""A scenario gets the directory it may write to. What it returns must be JSON."""


def load_scenario(reference: str) -> Scenario:
    """Return the function of "module:function" or "path/to/file.py:function".

    The directory of a file becomes importable, and the file a module named after it, so that classes defined in it
    are found again at a restore. Misuse for what is not there, not callable or not of this form.
    """
    function = load_named(reference)
    if not callable(function):
        place, _, name = reference.rpartition(":")
        raise Misuse(f"{place} has no function {name!r}", code="bad_scenario")
    found: Scenario = function
    return found


def load_named(reference: str) -> Any:
    """Return whatever "module:name" or "path/to/file.py:name" stands for, None where the module has no such name.

    See `load_scenario`, which asks for a function.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise Misuse(f"{reference!r} is not module:function or file.py:function", code="bad_scenario")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    return getattr(module, name, None)


def absolute(reference: str) -> str:
    """Return the reference with a file's path made absolute, so that it holds in every directory."""
    place, _, name = reference.rpartition(":")
    return f"{os.path.abspath(place)}:{name}" if place.endswith(".py") else reference


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise Misuse(f"there is no module {name!r}", code="bad_scenario") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Misuse(f"there is no file {path}", code="bad_scenario")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Misuse(f"{path} is not a Python file", code="bad_scenario")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
