"""What the reference model remembers of an agent's runs, from outside: what must, may and cannot be on record."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.simulation.walking import Arguments

Element = tuple[object, ...]
Scope = tuple[Element, ...]
"""("call", name, args, occurrence), ("branch", group, number) or ("key", name, text), from outside in."""

NEVER = math.inf


class Key(NamedTuple):
    """What a call is found by."""

    scope: Scope
    name: str
    args: Arguments
    occurrence: int


@dataclass(frozen=True, slots=True)
class Status:
    """How a call can stand on record: none, begun, result, error or unknown.

    `text`: the value or the error, None for one that nobody saw; of begun what was taken of a stream. `since`,
    `until`: between which lines of the trace an error came to be on record, or a later start of the same call.
    """

    kind: str
    text: str | None = None
    since: float = 0
    until: float = NEVER


NONE, BEGUN = Status("none"), Status("begun")


@dataclass(frozen=True, slots=True)
class Start:
    """When a call was begun, or a nested run: between which lines, and whether that is certain to be on record."""

    since: float
    until: float
    sure: bool


@dataclass(slots=True)
class RunMemory:
    """One run. `states`: those it can be in: new, open, failed, completed. `failure`: when it can have failed."""

    states: set[str] = field(default_factory=lambda: {"new"})
    failure: Status = NONE
    cells: dict[Key, frozenset[Status]] = field(default_factory=dict)
    starts: dict[Key, Start] = field(default_factory=dict)

    def begin(self, key: Key, since: float, until: float, *, sure: bool) -> None:
        """Note that a call, or a nested run, was begun. Only the first time counts: later ones come after nothing."""
        if key not in self.starts or not self.starts[key].sure:
            self.starts[key] = Start(since=since, until=until, sure=sure)

    def settle_parts(self) -> None:
        """The run's end is on record, and with it what was taken of streams that were left."""
        for key, statuses in self.cells.items():
            if any(status.kind == "begun" and status.text is not None for status in statuses):
                self.cells[key] = statuses - {BEGUN}

    def statuses(self, key: Key) -> frozenset[Status]:
        """How this call can stand."""
        return self.cells.get(key, frozenset({NONE}))

    def handled(self, key: Key, error: Status) -> set[bool]:
        """Whether the agent went on from this error: it began another call later, in the same body, not beside it."""
        said = {False}
        for other, start in self.starts.items():
            same_body = enclosing(other.scope) == enclosing(key.scope)
            if other == key or not same_body or siblings(other.scope, key.scope):
                continue
            if start.sure and start.since >= error.until:
                return {True}
            if start.until > error.since:
                said = {True, False}
        return said

    def unconsumed(self, key: Key, consumed: Iterable[Key]) -> set[bool]:
        """Whether a result of the same step in the same scope is on record that no call of this life has asked for."""
        said = {False}
        asked = set(consumed)
        for other, statuses in self.cells.items():
            if other[:2] != key[:2] or other == key or other in asked:
                continue
            kinds = {status.kind for status in statuses}
            if kinds == {"result"}:
                return {True}
            if "result" in kinds:
                said = {True, False}
        return said


@dataclass(slots=True)
class Memory:
    """All runs of a store, by how the model names them."""

    runs: dict[object, RunMemory] = field(default_factory=dict)

    def run(self, name: object) -> RunMemory:
        """The run of this name."""
        return self.runs.setdefault(name, RunMemory())

    def compare(self, results: list[str], errors: set[str]) -> Iterator[str]:
        """Yield what the log has and should not, or should have and has not; then believe it where both could be.

        It is believed by its text alone, so only where there are as many records of a text as calls that may have it:
        two moments can be the same.
        """
        known: set[str] = set()
        counts = Counter(results)
        is_open = self._open(counts, errors)
        yield from self._too_few(counts)
        for run in self.runs.values():
            for key, statuses in run.cells.items():
                known |= {status.text for status in statuses if status.kind == "result" and status.text is not None}
                yield from self._missing(key, statuses, results, errors)
                run.cells[key] = _narrowed(statuses, set(results), errors, partial(is_open, key))
        unseen = any(
            None in {s.text for s in cell if s.kind == "result"}
            for r in self.runs.values()
            for cell in r.cells.values()
        )
        for text in results:
            if text not in known and not unseen:
                yield f"on record is a result that nobody can have recorded: {text}"
        for text in {text for text in results if "#" in text and results.count(text) > 1}:
            yield f"on record more than once: {text}"

    def _open(self, counts: Counter[str], errors: set[str]) -> Callable[[Key, Status], bool]:
        """Return what says of a call and how it may stand whether the record can as well be another call's.

        So it is where more calls may have that text than there are records of it, with those that nobody saw.
        """
        claims = Counter((s.kind, s.text) for _, cell in self._cells() for s in {_told(s) for s in cell})
        unseen = Counter(key.name for key, cell in self._cells() if Status("result") in {_told(s) for s in cell})

        def is_open(key: Key, status: Status) -> bool:
            claimed = claims[status.kind, status.text]
            if status.kind == "error":
                return int(status.text in errors) < claimed
            return counts[status.text or ""] < claimed + unseen[key.name]

        return is_open

    def _too_few(self, counts: Counter[str]) -> Iterator[str]:
        sure = Counter(next(iter(s)).text for _, s in self._cells() if len(s) == 1 and next(iter(s)).kind == "result")
        for text, cells in sure.items():
            if text is not None and 0 < counts[text] < cells:
                yield f"lost: {cells} calls had the result {text}, {counts[text]} of them are on record"

    def _cells(self) -> Iterator[tuple[Key, frozenset[Status]]]:
        for run in self.runs.values():
            yield from run.cells.items()

    def _missing(self, key: Key, statuses: frozenset[Status], results: list[str], errors: set[str]) -> Iterator[str]:
        kinds = {status.kind for status in statuses}
        texts = {status.text for status in statuses}
        if kinds == {"result"} and None not in texts and not texts.intersection(results):
            yield f"lost: {key.name}{key.args} had the result {texts}"
        if kinds == {"error"} and None not in texts and not texts & errors:
            yield f"lost: {key.name}{key.args} had the error {texts}"


def enclosing(scope: Scope) -> Scope:
    """The scope of the body, without branches and keys at its end."""
    while scope and scope[-1][0] != "call":
        scope = scope[:-1]
    return scope


def begins(whole: str, part: str, take: int | None) -> bool:
    """Whether these items are the first `take` of all."""
    return bool(ast.literal_eval(whole)[:take] == ast.literal_eval(part))


def is_within(part: str, take: int | None) -> bool:
    """Whether what was taken of a stream is as much as is taken now."""
    return take is not None and take <= len(ast.literal_eval(part))


def siblings(one: Scope, other: Scope) -> bool:
    """Whether two scopes part ways in branches of one group."""
    for here, there in zip(one, other, strict=False):
        if here != there:
            return here[0] == there[0] == "branch" and here[1] == there[1]
    return False


def _told(status: Status) -> Status:
    """How a call stands, without since when."""
    return Status(status.kind, status.text)


def _narrowed(
    statuses: frozenset[Status], results: set[str], errors: set[str], is_open: Callable[[Status], bool]
) -> frozenset[Status]:
    """What of these the log leaves. `is_open`: whether the record of one can as well be another call's."""
    if len(statuses) == 1:
        return statuses
    texts = {"result": results, "error": errors}
    on_record = {s for s in statuses if s.text in texts.get(s.kind, ())}
    believed = {s for s in on_record if not is_open(s)}
    found = {s for s in believed if s.kind == "result"}
    if found:
        return frozenset(found)
    found = {s for s in believed if s.kind == "error"}
    if found:  # it may have been begun again since: that error is on record all the same
        at = max(s.since for s in found)
        return frozenset(found | {s for s in statuses if s.kind in ("begun", "unknown") and s.since > at})
    left = {s for s in statuses if s.kind not in texts or s.text is None or s in on_record}
    return frozenset(left) or statuses
