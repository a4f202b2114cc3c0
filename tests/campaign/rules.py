"""What must hold after each life of a run: the ledger before and after, the meter and the reference say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.campaign.meter import Event, Line
from tests.campaign.programs import Program, digest_of
from tests.campaign.reference import Expected, Reference
from tests.campaign.seen import Call, Seen
from tests.campaign.stories import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that was to execute the run: what it was told to, its pid, and how the run ended in it.

    `end` is None for a process that was killed before it could say.
    """

    worker: Worker
    pid: int
    end: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLife:
    """One run in one life. `taken_over`: an operator took the run over since the last life."""

    program: Program
    before: Seen
    after: Seen
    lines: Sequence[Line]
    ended: Sequence[Ended]
    taken_over: bool = False

    @property
    def new(self) -> tuple[Call, ...]:
        """What was recorded in this life."""
        return self.after.calls[len(self.before.calls) :]

    @property
    def attempts(self) -> dict[int, tuple[int, int]]:
        """The attempts of this life by process: their number, and the leaf of their start."""
        first = len(self.before.starts)
        return {pid: (first + at, leaf) for at, (leaf, pid) in enumerate(self.after.starts[first:], 1)}

    def of(self, event: Event) -> list[Line]:
        """The lines of the meter that say this."""
        return [line for line in self.lines if line.event is event]

    def places(self, event: Event) -> dict[tuple[str, int, int], Line]:
        """Those lines by step, attempt and try, of processes that had an attempt."""
        attempts = self.attempts
        return {(line.name, attempts[line.pid][0], line.tries): line for line in self.of(event) if line.pid in attempts}


def complaints(life: RunLife, reference: Reference, expected: Expected | None = None) -> list[str]:
    """Return one sentence for each thing that is not as the reference, or the meter, has it. Empty: all is well.

    `expected` is what the reference says of the life's program, for who knows it already.
    """
    expected = expected or reference.expect(life.program)
    return [
        *_nothing_lost(life),
        *_nothing_run_twice(life, reference),
        *_nothing_unknown(life),
        *_nothing_made_up(life, expected),
        *_nothing_too_early(life, expected),
        *_doubt_on_record(life),
        *_identities(life),
        *_ends(life, expected),
        *_silence(life, expected),
        *_state(life, expected),
    ]


def _nothing_lost(life: RunLife) -> Iterator[str]:
    """Everything recorded before is recorded still, and unchanged."""
    kept = life.after.calls[: len(life.before.calls)]
    for was in life.before.calls:
        if was not in kept:
            yield f"lost or changed: {was}"
    if life.after.starts[: len(life.before.starts)] != life.before.starts:
        yield "an earlier START was lost or changed"


def _nothing_run_twice(life: RunLife, reference: Reference) -> Iterator[str]:
    """A recorded call never runs again; within an attempt a body runs again only after it raised."""
    recorded = {(call.name, call.key): call.record_id >> 16 for call in life.after.calls if call.kind == "RESULT"}
    began: Counter[tuple[int, str]] = Counter()
    returned: set[tuple[int, str]] = set()
    retries = {node.name: node.retries for node in life.program.nodes}
    for line in life.lines:
        who = (line.pid, line.name)
        if line.event is Event.RETURNED:
            returned.add(who)
        if line.event is not Event.BEGAN:
            continue
        began[who] += 1
        if (line.name, line.key) in reference.recorded:
            yield f"{line.name} was recorded before this life and its body ran again"
        elif recorded.get((line.name, line.key), 1 << 60) < life.attempts.get(line.pid, (0, 0))[1]:
            yield f"{line.name} was recorded before its attempt began and its body ran again"
        if who in returned:
            yield f"{line.name} returned and its body ran again in the same attempt"
        if began[who] != line.tries or line.tries > retries.get(line.name, -1) + 1:
            yield f"{line.name} began for the {began[who]}. time, as try {line.tries}"


def _nothing_unknown(life: RunLife) -> Iterator[str]:
    """Each body that began has its attempt, and a record or a start mark of just that try."""
    known = {call.place for call in life.new} | {mark.place for mark in life.after.marks}
    for line in life.of(Event.BEGAN):
        if line.pid not in life.attempts:
            yield f"{line.name} ran in process {line.pid}, which has no START on record"
    for place in life.places(Event.BEGAN):
        if place not in known:
            yield f"{place[0]} ran in attempt {place[1]}, try {place[2]}, and the ledger knows nothing of it"


def _nothing_made_up(life: RunLife, expected: Expected) -> Iterator[str]:
    """A result or an error is one that a body returned or raised; a result is what the reference expects."""
    returned, raised = life.places(Event.RETURNED), life.places(Event.RAISED)
    for call in life.new:
        if call.kind == "RESULT":
            line = returned.get(call.place)
            if line is None or line.key != call.key:
                yield f"{call.name} has a result that no body returned: {call}"
            if expected.keys.get(call.name) != call.key:
                yield f"{call.name} was called with what it should not have been called with"
            elif call.digest != digest_of(expected.values[call.name]):
                yield f"{call.name} has a result that is not what its body returned"
        elif call.kind == "ERROR" and call.place not in raised:
            yield f"{call.name} has an error that no body raised: {call}"
        elif call.kind == "RESCUED":
            yield f"{call.name} returned what could be stored, and was rescued"


def _nothing_too_early(life: RunLife, expected: Expected) -> Iterator[str]:
    """A body begins only when everything its step needs is recorded."""
    recorded = {(call.name, call.key) for call in life.after.calls if call.kind == "RESULT"}
    needs = {node.name: node.needs for node in life.program.nodes}
    for line in life.of(Event.BEGAN):
        for needed in needs.get(line.name, ()):
            if (needed, expected.keys[needed]) not in recorded:
                yield f"{line.name} began and the result of {needed} is not on record"


def _doubt_on_record(life: RunLife) -> Iterator[str]:
    """The first attempt of a life records exactly what was in flight before it as abandoned, in its own leaf."""
    in_flight = {(mark.place, mark.fingerprint) for mark in life.before.marks}
    if not life.attempts:
        if life.new or life.after.marks != life.before.marks:
            yield "something was written and no attempt began"
        return
    leaf = min(leaf for _, leaf in life.attempts.values())
    abandoned = {
        (call.place, call.fingerprint) for call in life.new if call.kind == "ABANDONED" and call.record_id >> 16 == leaf
    }
    if abandoned != in_flight:
        yield f"in flight before: {sorted(in_flight)}, recorded as abandoned: {sorted(abandoned)}"


def _identities(life: RunLife) -> Iterator[str]:
    """Fingerprints tell calls apart just as the reference's keys do."""
    began = life.places(Event.BEGAN)
    pairs = {(call.name, call.fingerprint, call.key) for call in life.after.calls if call.key}
    for one in (*life.new, *life.after.marks):
        if one.place in began:
            pairs.add((one.name, one.fingerprint, began[one.place].key))
    for what, at in (("fingerprint", 1), ("key", 2)):
        for (name, it), count in Counter((pair[0], pair[at]) for pair in pairs).items():
            if count > 1:
                yield f"{name}: one {what} {it} stands for {count} calls"


def _ends(life: RunLife, expected: Expected) -> Iterator[str]:
    """Every process that lived ended the run as the reference says, or was told of another that had it."""
    together = len(life.ended) > 1
    taken = life.taken_over or any(one.worker.manner == "takeover" for one in life.ended)
    proper = {f"result {digest_of(expected.result)}" if end == "result" else end for end in expected.ends}
    ends: list[str] = []
    for one in life.ended:
        if one.end is None:
            continue
        end = one.end.removesuffix(" diverged") if one.end.startswith("Diverged") else one.end
        end = end.split()[0] if end.startswith(("Run", "Superseded")) else end
        ends.append(end)
        busy = together and one.worker.manner == "plain" and end == "RunBusy"
        superseded = together and taken and end == "Superseded"
        if end not in proper and not busy and not superseded:
            yield f"process {one.pid} ended with {one.end!r} instead of one of {sorted(proper)}"
    if len(ends) == len(life.ended) and not proper.intersection(ends):
        yield f"nobody was killed and nobody got anywhere: {ends}"


def _silence(life: RunLife, expected: Expected) -> Iterator[str]:
    """A run that is over, stopped or refused before it begins is left exactly as it was."""
    if expected.silent and life.after != life.before:
        yield f"the run was to be left alone and was changed: attempt {life.after.attempt}, {life.after.state}"


def _state(life: RunLife, expected: Expected) -> Iterator[str]:
    """A run is completed if and only if it could be and everything in it is recorded; alone and alive it says why."""
    if life.after.state == "completed" and life.before.state != "completed":
        recorded = {(call.name, call.key) for call in life.after.calls if call.kind == "RESULT"}
        missing = [name for name, key in expected.keys.items() if (name, key) not in recorded]
        if missing or "result" not in expected.ends:
            yield f"the run is completed without {missing}; it could end with {sorted(expected.ends)}"
    ends = [one.end for one in life.ended]
    if None not in ends and not expected.silent and len(ends) == 1:
        should = "completed" if "result" in expected.ends else "failed"
        if life.after.state != should:
            yield f"the run ended with {ends[0]!r} and is {life.after.state}, not {should}"
