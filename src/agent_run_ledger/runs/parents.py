"""Within which run another one is started: the dynamic run of this context, or the pipeline whose body runs here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
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


def child_id(parent: Parent, inputs: bytes) -> str:
    """Return the id of a child that has none of its own: by its place, its inputs' digest and its number among equals.

    So a restart finds the same child, whatever else was started before it.
    """
    place, meter = CURRENT.get(), METER.get()
    where = parent.scope
    if isinstance(place, Frame):
        number = place.begin(("run", inputs), interchangeable=True)
    elif meter is not None:
        number, where = meter.count_child(inputs), meter.step.encode("utf-8")
    else:
        number = 0
    digest = hashlib.sha256(b"%b\0%b\0%d" % (where, inputs, number)).hexdigest()
    outer_id = parent.run_id
    if len(outer_id) + 1 + CHILD_ID_HEX > MAX_RUN_ID:
        outer_id = hashlib.sha256(outer_id.encode("utf-8")).hexdigest()
    return f"{outer_id}/{digest[:CHILD_ID_HEX]}"
