"""The stored forms that need nothing but the standard library, by exact type, by family of classes and by tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent_run_ledger.codecs.families import (
    containers,
    dataclass_instances,
    enums,
    exceptions,
    identifiers,
    numbers,
    scalars,
    times,
)
from agent_run_ledger.codecs.forms import Form

EXACT: Final[dict[type, Form]] = {
    **scalars.EXACT,
    **numbers.EXACT,
    **containers.EXACT,
    **times.EXACT,
    **identifiers.EXACT,
}
"""Types whose subclasses are not meant."""

CLASS_FAMILIES: Final[tuple[tuple[Callable[[type], bool], Form], ...]] = (
    (exceptions.owns, exceptions.EXCEPTION),
    (enums.owns, enums.ENUM),
    (dataclass_instances.owns, dataclass_instances.DATACLASS),
    (containers.is_namedtuple, containers.NAMEDTUPLE),
    (times.is_zone, times.ZONE),
)
"""Families of classes that people define, in the order in which they are asked."""

TAGS: Final[dict[str, Form]] = {form.tag: form for form in EXACT.values()} | {
    form.tag: form for _, form in CLASS_FAMILIES
}
