"""Within which run another one is started: the dynamic run of this context, or the pipeline whose body runs here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent_run_ledger.runs.current import CURRENT
from agent_run_ledger.runs.frames import Frame
from agent_run_ledger.runs.usage import METER

if TYPE_CHECKING:
    from agent_run_ledger.runs.dynamic import DynamicSession

CHILD_ID_HEX = 12
MAX_RUN_ID = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The run within which another one is started, and where in it. `after`: its latest record at that moment.

    `session`: its live attempt, or its records, where it is a dynamic one.
    """

    run_id: str
    row_id: int
    log_id: bytes
    scope: bytes = b""
    after: int = 0
    session: DynamicSession | None = field(default=None, compare=False)


def parent_here() -> Parent | None:
    """Return the run that the code that runs here belongs to, None for none."""
    place = CURRENT.get()
    if isinstance(place, Frame):
        session = place.session
        return Parent(
            run_id=session.run_id,
            row_id=session.opened.row.row_id,
            log_id=session.context.store.log_id,
            scope=place.scope,
            after=session.last_id,
            session=session,
        )
    meter = METER.get()
    return None if meter is None else meter.within


@dataclass(frozen=True, slots=True)
class Child:
    """The id of a run that has none of its own. `give_back` frees its number: it was not entered, and left nothing."""

    run_id: str
    give_back: Callable[[], None]


def child_of(parent: Parent, inputs: bytes) -> Child:
    """Return the child that is started here: named by its place, its inputs' digest and its number among equals.

    So a restart finds the same child, whatever else was started before it.
    """
    place, meter = CURRENT.get(), METER.get()
    where, number = parent.scope, 0
    give_back: Callable[[], None] = _nothing
    if isinstance(place, Frame):
        equal = ("run", inputs)
        number = place.begin(equal, interchangeable=True)
        give_back = partial(place.give_back, equal, number)
    elif meter is not None:
        number, where = meter.count_child(inputs), meter.step.encode("utf-8")
        give_back = partial(meter.uncount_child, inputs, number)
    digest = hashlib.sha256(b"%b\0%b\0%d" % (where, inputs, number)).hexdigest()
    outer_id = parent.run_id
    if len(outer_id) + 1 + CHILD_ID_HEX > MAX_RUN_ID:
        outer_id = hashlib.sha256(outer_id.encode("utf-8")).hexdigest()
    return Child(f"{outer_id}/{digest[:CHILD_ID_HEX]}", give_back)


def _nothing() -> None:
    """No number was taken."""
