"""Why a call is not one that its run has recorded: where it parts from the nearest one, and what may have caused it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from agent_run_ledger.errors import Diverged
from agent_run_ledger.kernel.record import Record
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.calls import CHILDREN, CallIdentity, Given
from agent_run_ledger.runs.children import Parted, Tags, parted
from agent_run_ledger.runs.volatile import Volatile, find_volatile

log = logging.getLogger("agent_run_ledger")

MAX_COMPARED: Final = 256
"""So many records, the first ones, are compared with a call to find the one that fits best."""

_ARGUMENTS: Final = "arguments."


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a call differs from the recorded one that fits best.

    `paths`: environment first, then arguments as deep as is known, then `version`; empty where the call is equal and
    was only not made so often. `volatile`: what looks as if it were another at every start, at the path that is the
    `suspect`.
    """

    paths: tuple[str, ...]
    volatile: Volatile | None = None
    suspect: str = ""

    @property
    def hint(self) -> str:
        """What to do about it, in words for a message."""
        others = "on_change='rerun' runs it as a new call, a new run_id begins anew"
        if self.volatile is not None:
            return others
        if self.paths and not any(path.startswith(_ARGUMENTS) for path in self.paths):
            return f"the step itself declares something else than before; {others}"
        return (
            "make the call from what is the same at every start, or from run.now, run.random, run.uuid4 and run.value; "
            f"for equal steps side by side in one scope use run.gather, run.map or key=; {others}"
        )


def difference_from(store: Store, record_ids: Sequence[int], identity: CallIdentity, now_ms: int) -> Difference:
    """Return how a call differs from that one of these stored records that fits it best. See explain_difference.

    Where all of them were erased nobody can say more than that the fingerprint differs.
    """
    reader = store.reader()
    stored = (reader.record(record_id) for record_id in record_ids[:MAX_COMPARED])
    records = [one.record for one in stored if not one.erased]
    if not records:
        return Difference(paths=("fingerprint",))
    return explain_difference(identity, records, now=datetime.fromtimestamp(now_ms / 1000, UTC))


def explain_difference(identity: CallIdentity, records: Sequence[Record], *, now: datetime) -> Difference:
    """Return how a call differs from that one of these records that fits it best: fewest paths, longest common part.

    `records`: what the run has recorded of this step in this scope and not yet used, oldest first, at least one, none
    of them erased. `now`: aware; a time in an argument counts as volatile when it is near.
    """
    compared = [_Comparison(identity, record) for record in records[:MAX_COMPARED]]
    best = min(compared, key=lambda one: one.distance)
    try:
        for path, places in best.new_values():
            for place, value in places:
                volatile = find_volatile(value, place, now)
                if volatile is not None:
                    return Difference(paths=tuple(best.paths), volatile=volatile, suspect=path)
    except Exception as error:  # parts of a user's class may raise anything; the paths are known without them
        log.debug("no look into the arguments of step %r: %r", identity.name, error)
    return Difference(paths=tuple(best.paths))


def diverged_call(run_id: str, step_name: str, difference: Difference) -> Diverged:
    """Return the refusal of a call that the run has not recorded, while recorded calls of its step are unused."""
    step = f"step {step_name!r} of run {run_id!r}"
    if not difference.paths:
        return Diverged(f"{step} is called more often with the same arguments than before", hint=difference.hint)
    volatile = difference.volatile
    if volatile is None:
        listed = ", ".join(difference.paths)
        differ = "differs" if len(difference.paths) == 1 else "differ"
        return Diverged(f"{step} has no record of this call: {listed} {differ}", hint=difference.hint)
    others = [path for path in difference.paths if path != difference.suspect]
    where = "" if difference.suspect == volatile.path else f" {volatile.path}"
    also = f"; {', '.join(others)} differ{'s' * (len(others) == 1)} too" if others else ""
    return Diverged(
        f"{step} has no record of this call: {difference.suspect} differs, and{where} holds what looks like "
        f"{volatile.looks_like} ({volatile.quote}): {volatile.advice}{also}",
        hint=difference.hint,
    )


class _Comparison:
    """One call beside one record: the differing paths, and how far apart the two are."""

    def __init__(self, identity: CallIdentity, record: Record) -> None:
        self.paths: list[str] = []
        self._arguments: dict[str, tuple[str, Parted]] = {}
        self._given = identity.given or Given({})
        children: Mapping[str, Any] = orjson.loads(record.inputs).get(CHILDREN, {})
        for path in identity.differences(record.inputs, record.salt):
            name = path.removeprefix(_ARGUMENTS)
            if name == path:
                self.paths.append(path)
                continue
            there = self._parted(name, children.get(name), record.salt)
            self._arguments[name] = f"{path}{there.path}", there
            self.paths.append(f"{path}{there.path}")
        parts = [there for _, there in self._arguments.values()]
        common, apart = sum(one.common for one in parts), sum(one.lengths_apart for one in parts)
        self.distance = (len(self.paths), -common, apart)

    def new_values(self) -> Iterator[tuple[str, Iterator[tuple[str, object]]]]:
        """Yield each differing argument's path, with the parts that may differ there and their own paths."""
        for name, (path, there) in self._arguments.items():
            if name in self._given.values:
                yield path, _parts(f"{_ARGUMENTS}{name}", self._given.values[name], there)

    def _parted(self, name: str, stored: Tags | None, salt: bytes) -> Parted:
        if stored is None or name not in self._given.values:
            return Parted()
        return parted(salt, f"a.{name}", stored, self._given.values[name], self._given.elements.get(name))


def _parts(path: str, value: Any, there: Parted) -> Iterator[tuple[str, object]]:
    if not there.places:
        yield path, value
    for place in there.places:
        if type(place) is str and place in value:
            yield f"{path}.{place}", value[place]
        elif type(place) is int and place < len(value):
            yield f"{path}[{place}]", value[place]
