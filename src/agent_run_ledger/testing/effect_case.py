"""What a user gives the effect kit: a tool, a way to count its effects, a probe, and how to start the target."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.evidence import Found
from agent_run_ledger.kernel.effects.request import Call, Request
from agent_run_ledger.ports.targets import Target
from agent_run_ledger.testing.scenarios import absolute, load_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one scenario happens. `folder`: a directory for the target's files, new in each scenario.

    `url`: the one that `start` gave, as whoever asks is to reach it: `target` gets the way that the kit can cut,
    `count` and `probe` get the target's own. Empty where `start` gave none.
    """

    folder: Path
    url: str = ""


Start = Callable[[Place], AbstractContextManager[object]]
"""Starts the target's process for a block and gives its URL, or None where it has none. Its state is in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCase:
    """A tool and how to judge it. Made at the top of a module, which every process of the kit imports.

    `target`: the way to the target, as a program makes it; it must reach a service by `place.url`. `request`: what is
    to be done for a number; each scenario has a number of its own that no other run of the kit had. `count`: how often
    the effect of a number is at the target, looked at directly: the kit believes it. `probe`: what a reconciler would
    ask, which the kit compares with the count; without one nobody can say. `start`: see `Start`. `points`: names that
    the tool passes to `probes.reach`, to be killed at too. `settle_s`: how long, in seconds, a request may be under
    way after its sender died, where the kit is not on the way itself.
    """

    target: Callable[[Place], Target]
    request: Callable[[int], Request | Call]
    count: Callable[[Place, int], int]
    probe: Callable[[Place, int], Found] | None = None
    start: Start | None = None
    points: tuple[str, ...] = ()
    settle_s: float = 0.0

    def __post_init__(self) -> None:
        """Misuse("bad_case") for what cannot be called, and for a time that is none."""
        for name in ("target", "request", "count", "probe", "start"):
            given = getattr(self, name)
            if not callable(given) and not (given is None and name in ("probe", "start")):
                raise Misuse(f"{name} of an effect case is a function, not {type(given).__name__}", code="bad_case")
        if not 0 <= self.settle_s <= 60:
            raise Misuse("settle_s of an effect case is from 0 to 60 seconds", code="bad_case")


def load_case(reference: str) -> EffectCase:
    """Return the case of "module:CASE" or "file.py:CASE". Misuse for what is not there or is no EffectCase."""
    found = load_named(reference)
    if not isinstance(found, EffectCase):
        raise Misuse(f"{reference} is no EffectCase", code="bad_case")
    return found


def reference_of(case: EffectCase | str) -> str:
    """Return the name by which another process finds a case: "file.py:CASE" for one at the top of a module.

    Misuse("bad_case") for a case that no module has: a process that is started anew could not make it again.
    """
    if isinstance(case, str):
        return absolute(case)
    for module in list(sys.modules.values()):
        names: dict[str, Any] = dict(vars(module)) if isinstance(cast(object, module), ModuleType) else {}
        file, name = names.get("__file__"), next((name for name, value in names.items() if value is case), None)
        if name is not None and isinstance(file, str) and file.endswith(".py"):
            return f"{Path(file).resolve()}:{name}"
    raise Misuse(
        "this EffectCase is not at the top of a module",
        code="bad_case",
        hint="every process of the kit imports the module anew: assign the case there, or name it as file.py:CASE",
    )
