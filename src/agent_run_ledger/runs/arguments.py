"""The arguments of a call by the names of their parameters, and what a digest of each says."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.runs.steps import Step


def bind_arguments(step: Step[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
    """Return the given arguments by parameter name; TypeError, naming the step, for a call that does not fit."""
    if step.plainly_positional and not kwargs and len(args) == len(step.parameters):
        return {parameter.name: value for parameter, value in zip(step.parameters, args, strict=True)}
    try:
        return dict(inspect.signature(step.plain).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise TypeError(f"step {step.name!r}: {error}") from None


def argument_digests(step: Step[..., Any], bound: Mapping[str, object]) -> dict[str, bytes]:
    """Return one 32-byte digest per argument that enters the fingerprint; an argument without one names itself."""
    digests: dict[str, bytes] = {}
    for name, value in bound.items():
        if name in step.ignore:
            continue
        try:
            digests[name] = codecs.value_digest(value)
        except LedgerError as error:
            error.message = f"step {step.name!r}, argument {name!r}: {error.message}"
            raise
    return digests


def call_key(
    step: Step[..., Any], bound: Mapping[str, object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str | None:
    """Return what the step's key= says of this call, None without one."""
    if step.key is None:
        return None
    return step.key.format(**bound) if isinstance(step.key, str) else step.key(*args, **kwargs)
