"""Numbers that are no JSON: NaN and infinities, which a model's arguments may hold and a record may not."""

from __future__ import annotations

import cmath
from collections.abc import Collection, Mapping, Set
from decimal import Decimal
from typing import Any, Final, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Unstorable

NO_NUMBER: Final = "not a number"


def is_finite(value: object) -> bool:
    """Return whether no float, complex or Decimal, of a subclass too, is NaN or infinite in a tree of containers.

    Looked through are the values of mappings and the members of lists, tuples and sets, each container once: a cycle
    ends. Into nothing else: not into keys, objects or arrays.
    """
    left, seen = [value], set[int]()  # what is in `left` lives, and keeps its id
    for one in left:
        if isinstance(one, float | complex):
            if not cmath.isfinite(one):
                return False
        elif isinstance(one, Decimal):
            if not one.is_finite():
                return False
        elif isinstance(one, Mapping | list | tuple | Set) and id(cast("object", one)) not in seen:
            seen.add(id(cast("object", one)))
            held = cast("Mapping[Any, object] | Collection[object]", one)
            left += held.values() if isinstance(held, Mapping) else held
    return True


def finite(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, in which {"not a number": its tagged tree} stands for each that is not finite.

    And for one that looks so by itself: different arguments stay different. What cannot be stored is left as it is,
    for whoever records it to refuse.
    """
    return {name: _said(one) if _looks_so(one) or not is_finite(one) else one for name, one in arguments.items()}


def _looks_so(value: object) -> bool:
    return isinstance(value, Mapping) and [*cast("Mapping[object, object]", value)] == [NO_NUMBER]


def _said(value: object) -> Any:
    try:
        return {NO_NUMBER: codecs.tree(value, finite=False)}
    except Unstorable:
        return value
