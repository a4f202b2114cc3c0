"""What the changes of a log say about its runs, one after another, and which of them no table allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RUN_TRANSITIONS, CallState, RunEvent, RunState

NONE: Final = "none"

_KIND_OF_EVENT: Final[Mapping[RunEvent, RecordKind]] = {
    RunEvent.START: RecordKind.START,
    RunEvent.COMPLETE: RecordKind.END,
    RunEvent.FAIL: RecordKind.END,
    RunEvent.SUSPEND: RecordKind.END,
    RunEvent.QUARANTINE: RecordKind.DECISION,
    RunEvent.RELEASE: RecordKind.DECISION,
    RunEvent.TAKEOVER: RecordKind.DECISION,
    RunEvent.CANCEL: RecordKind.DECISION,
}

STEP_KINDS: Final[Mapping[tuple[str, str], RecordKind | None]] = {
    (CallState.NONE.value, CallState.STARTED.value): None,
    (CallState.STARTED.value, CallState.RECORDED.value): RecordKind.RESULT,
    (CallState.STARTED.value, CallState.FAILED.value): RecordKind.ERROR,
    (CallState.STARTED.value, CallState.ABANDONED.value): RecordKind.ABANDONED,
    (CallState.STARTED.value, CallState.RESCUED.value): RecordKind.RESCUED,
    (CallState.STARTED.value, CallState.UNKNOWN.value): RecordKind.ABANDONED,
    (CallState.UNKNOWN.value, CallState.RESOLVED.value): RecordKind.DECISION,
    (CallState.RESOLVED.value, CallState.RECORDED.value): RecordKind.RESULT,
    (CallState.RESOLVED.value, CallState.FAILED.value): RecordKind.ERROR,
    (CallState.RECORDED.value, CallState.ERASED.value): RecordKind.DECISION,
}
"""Which record goes with a change of calls; None: no record. Every other pair is refused.

A resolution is a person's act and an erasure speaks of many calls at once: both can come in any state of the run, and
neither concludes a call that is in flight.
"""


def _run_kinds() -> dict[tuple[str, str], frozenset[RecordKind]]:
    table: dict[tuple[str, str], frozenset[RecordKind]] = {}
    for (old, event), new in RUN_TRANSITIONS.items():
        pair = (NONE if old is None else old.value, new.value)
        table[pair] = table.get(pair, frozenset()) | {_KIND_OF_EVENT[event]}
    return table


RUN_KINDS: Final[Mapping[tuple[str, str], frozenset[RecordKind]]] = _run_kinds()
"""Which records can go with a change of a run, from the table of run states. Every other pair is refused."""


def lawful_kind(type_: str, old: str, new: str) -> RecordKind | None:
    """Return the kind that the record of a change can have had, for a record that is not there to say it."""
    if type_ == "step":
        return STEP_KINDS.get((old, new))
    return min(RUN_KINDS.get((old, new), ()), default=None)


class Track:
    """Where the log leaves one run. `in_flight` counts calls started and not concluded, `erasure_id` is the last.

    `unknown` are the records of calls whose outcome is unknown and not resolved; `resolved_id` is the last resolution,
    None where what it says of its call came already.
    """

    __slots__ = ("attempt", "end_record_id", "erasure_id", "first_start_id", "generation", "in_flight", "last_leaf",
                 "last_start_id", "resolved_id", "row_seen", "state", "unknown")  # fmt: skip

    def __init__(self, state: str) -> None:
        self.state = state
        self.generation = 0
        self.attempt = 0
        self.in_flight = 0
        self.last_leaf = -1
        self.first_start_id: int | None = None
        self.last_start_id: int | None = None
        self.end_record_id: int | None = None
        self.erasure_id: int | None = None
        self.unknown: frozenset[int] = frozenset()
        self.resolved_id: int | None = None
        self.row_seen = False


class Replay:
    """Follows every run through the log; a refused change is reported and followed, so that one fault is one report.

    `tracks` is keyed by run_uid in hex.
    """

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}

    def run_change(
        self, uid: str, old: str, new: str, generation: int, *, kind: RecordKind | None, record_id: int
    ) -> list[str]:
        """Follow a run's change and return what is wrong with it; `kind` and `record_id` are its record's."""
        track = self.tracks.get(uid)
        seen = NONE if track is None else track.state
        wrong: list[str] = []
        if old != seen:
            wrong.append(f"the run is said to have been {old}, and it was {seen}")
        kinds = RUN_KINDS.get((old, new))
        if kinds is None:
            wrong.append(f"a run never goes from {old} to {new}")
        elif kind not in kinds:
            wrong.append(f"a run does not go from {old} to {new} by {_named(kind)}")
        if track is None:
            track = self.tracks[uid] = Track(new)
            if generation != 1:
                wrong.append(f"the run begins with generation {generation}, not 1")
        elif generation < track.generation:
            wrong.append(f"the generation falls from {track.generation} to {generation}")
        elif generation == track.generation and (kind is RecordKind.START or old == new):
            wrong.append(f"another attempt with the same generation {generation}")
        track.state, track.generation, track.last_leaf = new, generation, record_id >> 16
        if kind is RecordKind.START:
            track.attempt += 1
            track.last_start_id, track.end_record_id = record_id, None
            if track.first_start_id is None:
                track.first_start_id = record_id
        elif kind is RecordKind.END:
            track.end_record_id = record_id
        return wrong

    def step_change(
        self,
        uid: str,
        old: str,
        new: str,
        generation: int,
        *,
        kind: RecordKind | None,
        record_id: int,
        resolves: int | None = None,
    ) -> list[str]:
        """Follow a change of calls of a run and return what is wrong with it; `kind` is its record's.

        `record_id` is the place of the change, whether or not it has a record. `resolves` is which record a resolution
        says it resolves, None where its own record is not there to say it.
        """
        wrong: list[str] = []
        if (old, new) not in STEP_KINDS:
            wrong.append(f"a call never goes from {old} to {new}")
        elif kind is not STEP_KINDS[old, new]:
            wrong.append(f"a call does not go from {old} to {new} by {_named(kind)}")
        track = self.tracks.get(uid)
        if track is None:
            return [*wrong, "a call of a run that never began"]
        if generation != track.generation:
            wrong.append(f"a call of generation {generation} in a run of generation {track.generation}")
        if old == NONE:
            if track.state != RunState.RUNNING.value:
                wrong.append(f"a call was started while the run was {track.state}")
            track.in_flight += 1
        elif new == CallState.ERASED.value:
            if kind is RecordKind.DECISION:
                track.erasure_id = record_id
        elif new == CallState.RESOLVED.value:
            wrong += _resolve(track, record_id, resolves)
        elif old == CallState.RESOLVED.value:
            if track.resolved_id is None or track.resolved_id + 1 != record_id:
                wrong.append("a resolved call has an outcome that does not stand right behind its resolution")
            track.resolved_id = None
        elif old == CallState.STARTED.value:
            if track.in_flight == 0:
                wrong.append("a call was concluded that was not in flight")
            track.in_flight = max(0, track.in_flight - 1)
            if new == CallState.UNKNOWN.value:
                track.unknown |= {record_id}
        track.last_leaf = record_id >> 16
        return wrong


def _resolve(track: Track, record_id: int, resolves: int | None) -> list[str]:
    stands = track.unknown
    if resolves is not None:
        stands = track.unknown & {resolves}
        track.unknown -= {resolves}
    track.resolved_id = record_id
    return [] if stands else ["a call was resolved whose outcome was not unknown, or not any more"]


def _named(kind: RecordKind | None) -> str:
    return "no record" if kind is None else f"a record {kind.name}"
