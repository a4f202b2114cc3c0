"""Numbers that are no JSON: NaN and infinities, which a model's arguments may hold and a record may not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

NO_NUMBER = "not a number"


def is_finite(value: object) -> bool:
    """Return whether no float in a tree of mappings, lists and tuples is NaN or infinite."""
    left = [value]
    for one in left:
        if type(one) is float:
            if not math.isfinite(one):
                return False
        elif isinstance(one, Mapping):
            left += cast("Mapping[Any, object]", one).values()
        elif isinstance(one, list | tuple):
            left += cast("list[object]", one)
    return True


def finite(value: Any) -> Any:
    """Return the value, in which {"not a number": "nan"} stands for a float that is none."""
    return value if is_finite(value) else _said(value)


def _said(value: object) -> Any:
    if type(value) is float and not math.isfinite(value):
        return {NO_NUMBER: repr(value)}
    if isinstance(value, Mapping):
        return {key: _said(one) for key, one in cast("Mapping[Any, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_said(one) for one in cast("list[object]", value)]
    return value
