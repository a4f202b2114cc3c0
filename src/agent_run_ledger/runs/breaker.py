"""The breaker of a live run: it judges the calls of tools as they are recorded, and keeps what that rests on."""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Misuse, Vetoed, pending_of
from agent_run_ledger.kernel.loops import Call, Detector, Glimpse, Level, Verdict, glimpse_of
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from agent_run_ledger.kernel.record import Record, RecordKind
from agent_run_ledger.kernel.scopes import enclosing_call
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ports import RunRow, Store, StoredRecord
from agent_run_ledger.runs.abandoned import after_of, detail_of
from agent_run_ledger.runs.calls import CallIdentity
from agent_run_ledger.runs.endings import Ending
from agent_run_ledger.runs.later import CallKey, are_siblings, is_branched, key_of_call
from agent_run_ledger.runs.reasons import BREAKER, LOOP
from agent_run_ledger.runs.steps import Step

GLIMPSE: Final = "g"
"""Where a record's inputs keep the glimpse of its call, in base64 (RFC 4648)."""

VERDICT: Final = "v"
"""Where a record's inputs keep the verdict on its call, unless it is that nothing is wrong."""

TURN: Final = "run.turn"
"""The name of the value that `Run.turn` records."""

_GROUPS: Final = 8
"""Groups within groups of exceptions that are looked into."""

JUDGED: Final = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED, RecordKind.DECISION)
"""The records that verdicts rest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A call that was judged: what its record keeps for it, and the verdict with the records that it rests on."""

    verdict: Verdict
    record_ids: tuple[int, ...]
    kept: Mapping[str, object]

    @property
    def reason(self) -> str:
        """Return why the run is put into QUARANTINE."""
        return f"{LOOP}{self.verdict.words()}"


@dataclass(slots=True)
class _Seen:
    """A call that was judged: what it is found by, its glimpse, the record that it was begun after, its attempt, and
    its record, 0 where that is not known yet."""

    key: CallKey
    glimpse: Glimpse
    after: int
    attempt: int
    record_id: int = 0


class Bench:
    """A detector, and what it was shown. Of a call that was tried again the last try counts: after a restart, or in a
    body that was tried again."""

    def __init__(self, policy: LoopDetectorPolicy) -> None:
        self._policy = policy
        self._shown: dict[int, _Seen | None] = {}
        self._places: dict[CallKey, int] = {}
        self._place = 0
        self._next: _Seen | None = None
        self._replaced: int | None = None
        self._released = 0
        self._start()

    def judge(self, key: CallKey, glimpse: Glimpse, *, after: int, attempt: int) -> tuple[Verdict, tuple[int, ...]]:
        """Return the verdict on the next call, begun after that record, and the earlier records that it rests on."""
        if 0 < self._released < attempt:
            self._released = 0
            self.turn()
        place = self._places.get(key)
        before = None if place is None else self._shown[place]
        again = before is not None and (before.attempt != attempt or bool(enclosing_call(key[0])))
        self._replaced = place if again else None
        if again or self._next is not None:  # the one before was not recorded, and nobody will read of it
            self._show_again()
        self._next = _Seen(key, glimpse, after, attempt)
        return self._observe(key[0], glimpse, after)

    def landed(self, record_id: int) -> None:
        """Note the record of the call that was judged last."""
        if self._next is not None:
            seen, self._next = self._next, None
            seen.record_id = record_id
            if self._replaced is not None:
                del self._shown[self._replaced]
                self._replaced = None
            self._keep(seen)
            self._places[seen.key] = self._place
            self._note(seen.key[0], record_id)

    def turn(self) -> None:
        """Begin new counts: the user spoke."""
        self._keep(None)
        self._detector.turn()

    def released(self, attempt: int) -> None:
        """Begin new counts with the next attempt: an operator released the run, which this one worked on."""
        self._released = max(1, attempt)

    def _keep(self, seen: _Seen | None) -> None:
        self._place += 1
        self._shown[self._place] = seen

    def _start(self) -> None:
        self._detector = Detector(self._policy)
        self._record_ids: list[int] = []
        self._scopes: list[bytes] = []

    def _observe(self, scope: bytes, glimpse: Glimpse, after: int) -> tuple[Verdict, tuple[int, ...]]:
        number = len(self._record_ids)
        verdict = self._detector.observe(number, glimpse, at_once=self._made_at_once(scope, after))
        return verdict, tuple(self._record_ids[step] for step in verdict.steps if step < number)

    def _note(self, scope: bytes, record_id: int) -> None:
        self._record_ids.append(record_id)
        self._scopes.append(scope)

    def _made_at_once(self, scope: bytes, after: int) -> frozenset[int]:
        """Return which calls had not ended when the one in this scope was begun, or lie in a branch beside its own."""
        count = len(self._record_ids)
        if not count or (self._record_ids[-1] <= after and not is_branched(scope)):
            return frozenset()
        return frozenset(
            number
            for number in range(max(0, count - self._detector.window), count)
            if self._record_ids[number] > after or are_siblings(self._scopes[number], scope)
        )

    def _show_again(self) -> None:
        self._start()
        for place, seen in self._shown.items():
            if place == self._replaced:
                continue
            if seen is None:
                self._detector.turn()
            else:
                self._observe(seen.key[0], seen.glimpse, seen.after)
                self._note(seen.key[0], seen.record_id)


class Breaker:
    """Judges the calls of tools in one live run.

    Guarantees: a verdict rests on nothing but what is on record, in the order of the records, so that whoever reads
    the log comes to the same one; a call that was restored, tried again or never ended is not judged. Who judges a
    call holds `lock` until its record is committed.
    """

    def __init__(self, store: Store, row: RunRow, policy: LoopDetectorPolicy) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._row = row
        self._policy = policy
        self._bench: Bench | None = None
        self._turned = False

    def glimpse(self, step: Step[..., Any], identity: CallIdentity, ended: Ending) -> Glimpse | None:
        """Return what will be judged of a call that ended; None for one that is waiting for a decision."""
        if pending_of(ended.failure) is not None:
            return None
        given = identity.given
        failure = ended.failure
        outcome: object = None if ended.packed is None or failure is not None else ended.packed.decoded
        if step.outcome is not None and failure is None and ended.packed is not None:
            outcome = step.outcome(outcome)
            failure = outcome if isinstance(outcome, Exception) else None
        return glimpse_of(
            Call(
                tool=step.name,
                arguments={}
                if given is None
                else {_plain_name(name): plain(given.values[name]) for name in identity.arguments},
                outcome=None if failure is not None else plain(outcome),
                error=None if failure is None else f"{type(failure).__name__}: {_message(failure)}",
                vetoed=isinstance(failure, Vetoed),
                poll=step.poll,
                volatile=step.volatile,
            )
        )

    def prepare(self) -> None:
        """Read what is on record, unless that was done. Before a body runs, so that no result of one is lost for it."""
        if self._bench is None:
            with self.lock:
                self._on_record()

    def judge(self, identity: CallIdentity, glimpse: Glimpse, after: int) -> Judged:
        """Judge a call that was begun after this record, and is to be the next one on record."""
        verdict, record_ids = self._on_record().judge(identity.key, glimpse, after=after, attempt=self._row.attempt)
        kept: dict[str, object] = {GLIMPSE: b64encode(glimpse.pack()).decode("ascii")}
        said = kept_verdict(verdict, record_ids)
        if said is not None:
            kept[VERDICT] = said
        return Judged(verdict=verdict, record_ids=record_ids, kept=kept)

    def landed(self, record_id: int) -> None:
        """Note the record of the call that was judged last."""
        self._on_record().landed(record_id)

    def turn(self) -> None:
        """Note that the user spoke: what comes now counts anew. Who records that holds `lock` until this is said."""
        with self.lock:
            self._turned = True  # it may wait for its commit, and not be on record yet
            if self._bench is not None:
                self._bench.turn()

    def _on_record(self) -> Bench:
        if self._bench is None:
            bench = Bench(self._policy)
            show_all(bench, self._store.reader().records(self._row.row_id, kinds=JUDGED))
            if self._turned:
                bench.turn()
            self._bench = bench
        return self._bench


def show_all(bench: Bench, records: Iterable[StoredRecord]) -> None:
    """Show the bench everything on a run's record that it judges by. Misuse for a glimpse of another version."""
    for stored in records:
        glimpse = show(bench, stored)
        if glimpse is not None:
            bench.judge(
                key_of_call(stored.record), glimpse, after=after_of(stored.record), attempt=stored.record.attempt
            )
            bench.landed(stored.record_id)


def show(bench: Bench, stored: StoredRecord) -> Glimpse | None:
    """Return the glimpse that a record keeps; show the bench what begins new counts, and return None."""
    record = stored.record
    if record.kind is RecordKind.DECISION:
        if record.name == RunEvent.RELEASE:
            bench.released(record.attempt)
    elif record.name == TURN:
        bench.turn()
    packed = detail_of(record).get(GLIMPSE)
    return _unpacked(packed, stored) if isinstance(packed, str) else None


def kept_verdict(verdict: Verdict, record_ids: tuple[int, ...]) -> dict[str, Any] | None:
    """Return a verdict as a record keeps it, None for one that nothing is wrong.

    `l` is the level, `r` the rule, `c` of `n` the count, `s` the earlier records that it rests on, `x` the similarity
    in thousandths.
    """
    if verdict.level is Level.OK:
        return None
    return {
        "l": int(verdict.level),
        "r": verdict.rule,
        "c": verdict.count,
        "n": verdict.limit,
        "s": list(record_ids),
        "x": round(verdict.similarity * 1000),
    }


def nudge_of(record: Record) -> str | None:
    """Return what the agent is to be told with this record's outcome, None where it is told nothing."""
    if b'"v":' not in record.inputs:
        return None
    said = detail_of(record).get(VERDICT)
    if not isinstance(said, dict) or cast("dict[str, Any]", said).get("l") != int(Level.NUDGE):
        return None
    return nudge(record.name, cast("dict[str, Any]", said))


def nudge(tool: str, said: Mapping[str, Any]) -> str:
    """Return the text that an agent reads before its run is stopped; `said`: the verdict as it is kept."""
    return (
        f"[agent-run-ledger] {tool} was called {said['c']} times without anything new ({said['c']} of {said['n']}; one "
        "more, and the run is stopped). Do not repeat it in other words: use what is known, try something different, "
        "or say what is missing and end."
    )


def decision(tool: str, judged: Judged) -> dict[str, object]:
    """Return what the DECISION of a quarantine keeps beside event, reason and actor."""
    said = kept_verdict(judged.verdict, judged.record_ids) or {}
    return {BREAKER: {**said, "tool": tool, "explained": judged.verdict.explain()}}


def plain(value: object) -> object:
    """Return a value as the JSON tree of its stored form; a text that names its type where it has none."""
    if codecs.is_plain(value):
        return value
    try:
        return codecs.tree(value, finite=False)
    except LedgerError:
        return f"<{type(value).__name__}>"


def _plain_name(name: str) -> str:
    """Return a bound argument's name as the model wrote it: `**options.key` is `key`."""
    return name.split(".", 1)[1] if name.startswith("**") and "." in name else name


def _message(failure: BaseException, deep: int = 0) -> str:
    """Return what an exception says, and of a group what those in it say."""
    try:
        said = str(failure)
    except Exception:  # a __str__ of others may raise anything
        said = ""
    if not isinstance(failure, BaseExceptionGroup) or deep > _GROUPS:
        return said
    inner = cast("BaseExceptionGroup[BaseException]", failure).exceptions
    return "; ".join((said, *(f"{type(one).__name__}: {_message(one, deep + 1)}" for one in inner)))


def _unpacked(packed: str, stored: StoredRecord) -> Glimpse:
    try:
        return Glimpse.unpack(b64decode(packed, validate=True))
    except (Misuse, ValueError) as error:
        raise Misuse(
            f"record {stored.record_id} of tool {stored.record.name!r} keeps no glimpse that is known: {error}",
            code="bad_glimpse",
            hint="it was written by another version; `arl verify` tells whether it is what was recorded",
        ) from error
