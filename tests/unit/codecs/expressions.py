"""Evaluates the value expressions of the golden files and of the page on the format."""

from __future__ import annotations

import datetime
import decimal
import fractions
import importlib
import math
import pathlib
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

_NAMES: dict[str, Any] = {
    "math": math,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "defaultdict": defaultdict,
    "deque": deque,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "UUID": uuid.UUID,
    "SafeUUID": uuid.SafeUUID,
    "ZoneInfo": zoneinfo.ZoneInfo,
    **{name: getattr(datetime, name) for name in ("date", "datetime", "time", "timedelta", "timezone")},
    **{name: getattr(pathlib, name) for name in ("PosixPath", "PurePosixPath", "PureWindowsPath")},
}
_MODULES = {"np": "numpy", "pd": "pandas", "classes": "tests.golden.values.classes"}


def evaluate(expression: str) -> Any:
    """The value that an expression of ours makes."""
    used = {name: importlib.import_module(module) for name, module in _MODULES.items() if f"{name}." in expression}
    return eval(expression, {**_NAMES, **used})
