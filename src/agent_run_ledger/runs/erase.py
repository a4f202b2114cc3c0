"""What people erase of a run: all of it, or the calls of some steps, each batch under one recorded decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse, Refused, RunBusy, Tampered
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.erasure import ERASABLE, EVENTS, Ranges, erased_form, kept_digest, kept_sha256
from agent_run_ledger.kernel.record import DYNAMIC_KEY, KEPT_INPUTS, SALT_BYTES, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import CallState, RunEvent, RunState
from agent_run_ledger.ports import Reader, RunRow, Store, Tx
from agent_run_ledger.runs.attempt import MAX_STORED_BYTES, PARENT_KEY, Context, try_lock, was_taken_over
from agent_run_ledger.runs.differences import is_text
from agent_run_ledger.runs.leaf_check import check_against_leaf
from agent_run_ledger.runs.operate import decide, no_run
from agent_run_ledger.runs.other_run import store_replaced

BATCH_RECORDS = 1_000
BATCH_BYTES = 16 << 20
"""One transaction erases at most so many records, and payloads of so many bytes unless a single one has more."""

ENDED = (RunState.COMPLETED, RunState.CANCELLED)
"""States of runs that need nothing any more."""

Progress = Callable[[int, int], None]
"""Gets how many of how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be erased of a run: `steps` None is everything. `only` leaves the steps that take their results."""

    steps: tuple[str, ...] | None = None
    only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an erasure would erase: so many `records`, of all steps (None) or of these.

    `dependants` are those among the steps that were not named and take, directly or not, what a named one returned.
    `forks` are runs that were forked from this one, `children` those that were started within it: they hold records of
    their own. `waiting` are the runs within which this one was started and that are not over: they need it to go on.
    """

    row: RunRow
    steps: tuple[str, ...] | None
    dependants: tuple[str, ...]
    records: int
    forks: tuple[str, ...]
    children: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Who erases and why. `event` is "erase" or "prune"."""

    event: str
    reason: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was erased: the plan as it was carried out, and how many bytes of payload its records had."""

    plan: Plan
    payload_bytes: int


def check_act(act: Act) -> None:
    """Raise Misuse for an act without a reason, or with one that cannot be written as UTF-8."""
    if act.event not in EVENTS:
        raise Misuse(f"{act.event!r} erases nothing", code="bad_event")
    if not act.reason.strip():
        raise Misuse(f"to {act.event} needs a reason", code="no_reason", hint="give --reason TEXT")
    if not is_text(act.reason) or not is_text(act.actor):
        raise Misuse("reason and actor must be text that can be written as UTF-8", code="bad_reason")


def plan_erasure(store: Store, run_id: str, selection: Selection) -> Plan:
    """Return what an erasure would erase now. Nothing is written.

    Refused: no_run, no_step (a name that the run does not know), graph_erased and no_graph (which steps take a result
    is erased already, or was never known: erase everything, or only the named steps).
    """
    reader = store.reader()
    row = reader.find_run(run_id)
    if row is None:
        raise no_run(run_id)
    steps = None if selection.steps is None else _chosen_steps(store, row, selection)
    named = () if selection.steps is None else selection.steps
    return Plan(
        row=row,
        steps=steps,
        dependants=() if steps is None else tuple(name for name in steps if name not in named),
        records=sum(is_chosen for _, is_chosen in _each(reader, row, steps)),
        forks=tuple(fork.run_id for fork in reader.forks_of(row.row_id)),
        children=tuple(child.run_id for child in reader.children_of(row.row_id)),
        waiting=tuple(one.run_id for one in around(reader, row) if one.state not in ENDED),
    )


def around(reader: Reader, row: RunRow) -> list[RunRow]:
    """Return the runs within which this one was started, the nearest first."""
    found: list[RunRow] = []
    seen = {row.row_id}
    while row.parent_row_id is not None and row.parent_row_id not in seen:
        row = reader.get_run(row.parent_row_id)
        seen.add(row.row_id)
        found.append(row)
    return found


def erase_run(
    context: Context,
    run_id: str,
    selection: Selection,
    act: Act,
    *,
    unchanged: RunRow | None = None,
    progress: Progress | None = None,
) -> Erased:
    """Erase records of a run and, of what is in flight, the fingerprints.

    Guarantees: every batch and the DECISION record that names it land together, so that the log verifies after each;
    an erased call is refused from then on and never run again. Killed in the middle, the same call goes on. Nobody
    works on the run meanwhile: RunBusy where an attempt is live or begins, or where the run's row is no longer the one
    that was looked at, if `unchanged` names one; a run that is recorded as running is taken over first. Memory: 8
    bytes for each record of the run. Errors of `check_act` and `plan_erasure`.
    """
    check_act(act)
    store = context.store
    lock = try_lock(store, run_id)
    if lock is None:
        raise RunBusy(
            f"run {run_id!r} has a live attempt: what it works on cannot be erased",
            hint="end its process, or wait for it; a takeover does not end it",
        )
    try:
        plan = plan_erasure(store, run_id, selection)
        if unchanged is not None and plan.row != unchanged:
            raise RunBusy(f"run {run_id!r} went on since it was looked at", hint="look at it again")
        payload_bytes = _carry_out(context, _superseding(context, plan, act), act, progress)
    finally:
        lock.release()
    return Erased(plan=plan, payload_bytes=payload_bytes)


def _superseding(context: Context, plan: Plan, act: Act) -> Plan:
    """Take a run that is recorded as running over, and return the plan with its new row.

    Whoever took it over while another process held its lock works on without the lock until its next commit: it could
    record again what is erased now.
    """
    row, store = plan.row, context.store
    if row.state is not RunState.RUNNING or was_taken_over(store, row.run_id):
        return plan
    if not plan.records and not store.reader().in_flight(row.row_id):
        return plan
    return replace(plan, row=decide(context, row.run_id, RunEvent.TAKEOVER, reason=act.reason, actor=act.actor))


@dataclass(slots=True, kw_only=True)
class _Batch:
    """The records that one transaction erases, with digests of what is left of each."""

    ids: list[int] = field(default_factory=list[int])
    ranges: Ranges = field(default_factory=list[tuple[int, int]])
    digests: list[bytes] = field(default_factory=list[bytes])
    payload_bytes: int = 0

    def add(self, record_id: int, *, beside: bool, digest: bytes, payload_bytes: int) -> None:
        """Take in one record; `beside` says that the run has none to erase between it and the one before."""
        if beside and self.ranges:
            self.ranges[-1] = (self.ranges[-1][0], record_id)
        else:
            self.ranges.append((record_id, record_id))
        self.ids.append(record_id)
        self.digests.append(digest)
        self.payload_bytes += payload_bytes


def _carry_out(context: Context, plan: Plan, act: Act, progress: Progress | None) -> int:
    reader, row = context.store.reader(), plan.row
    payload_bytes = done = 0
    for batch in _batches(reader, _each(reader, row, plan.steps)):
        _commit(context, plan, act, batch)
        payload_bytes += batch.payload_bytes
        done += len(batch.ids)
        if progress is not None:
            progress(done, plan.records)
    if any(_is_told(mark.name, mark.fingerprint, plan.steps) for mark in reader.in_flight(row.row_id)):
        _commit(context, plan, act, _Batch())  # begun, and nothing of it recorded
    return payload_bytes


def _each(reader: Reader, row: RunRow, steps: Collection[str] | None) -> Iterator[tuple[int, bool]]:
    """Yield each record that the run could still erase, in the order recorded, and whether it is to be."""
    for record_id, name in reader.record_names(row.row_id, kinds=ERASABLE):
        yield record_id, steps is None or name in steps


def _batches(reader: Reader, records: Iterable[tuple[int, bool]]) -> Iterator[_Batch]:
    some: list[tuple[int, bool]] = []
    beside = False
    for record_id, is_chosen in records:
        if is_chosen:
            some.append((record_id, beside))
        beside = is_chosen
        if len(some) == BATCH_RECORDS:
            yield from _by_size(reader, some)
            some = []
    if some:
        yield from _by_size(reader, some)


def _by_size(reader: Reader, some: Sequence[tuple[int, bool]]) -> Iterator[_Batch]:
    batch = _Batch()
    kept = reader.kept([record_id for record_id, _ in some])
    for (record_id, beside), (stored, payload_bytes) in zip(some, kept, strict=True):
        if batch.ids and batch.payload_bytes + payload_bytes > BATCH_BYTES:
            yield batch
            batch = _Batch()
        digest = kept_digest(erased_form(record_id, stored.record))
        batch.add(record_id, beside=beside, digest=digest, payload_bytes=payload_bytes)
    yield batch


def _commit(context: Context, plan: Plan, act: Act, batch: _Batch) -> None:
    reader = context.store.reader()
    content = {
        "event": act.event,
        "reason": act.reason,
        "actor": act.actor,
        "run_id": plan.row.run_id,
        "forked_from": _uid_hex(reader, plan.row.forked_from_row_id),
        PARENT_KEY: _uid_hex(reader, plan.row.parent_row_id),
        "steps": None if plan.steps is None else list(plan.steps),
        "count": len(batch.ids),
        "ranges": [list(pair) for pair in batch.ranges],
        "kept_sha256": kept_sha256(batch.digests).hex(),
    }
    packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
    draft = Record(
        kind=RecordKind.DECISION,
        run_uid=plan.row.run_uid,
        salt=context.entropy.token(SALT_BYTES),
        name=act.event,
        value_sha256=packed.value_sha256,
        encoding=packed.encoding,
        payload=packed.payload,
    )
    context.store.transact(context.entropy.uuid7(), lambda tx: _write(tx, context.store, plan, batch.ids, draft))


def _uid_hex(reader: Reader, row_id: int | None) -> str | None:
    return None if row_id is None else reader.get_run(row_id).run_uid.hex()


def _write(tx: Tx, store: Store, plan: Plan, record_ids: Sequence[int], draft: Record) -> None:
    row = tx.get_run(plan.row.row_id)
    if row.run_uid != plan.row.run_uid:
        raise store_replaced(store, plan.row)
    if row.generation != plan.row.generation:
        raise RunBusy(
            f"run {row.run_id!r} was taken over while it was erased", hint="end that attempt, and erase again"
        )
    erased = tx.erase_records(row.row_id, record_ids)
    if erased != len(record_ids):  # the decision would claim what is not so
        raise Tampered(
            f"{len(record_ids)} records of run {row.run_id!r} were to be erased, and {erased} could be",
            hint="run `arl verify`",
        )
    marks = tx.in_flight(row.row_id)
    tx.erase_marks(row.row_id, [mark.lane for mark in marks if _is_told(mark.name, mark.fingerprint, plan.steps)])
    record = replace(draft, attempt=row.attempt, started_at_ms=tx.now_ms, ended_at_ms=tx.now_ms)
    change = Change(
        type="step",
        id=row.run_uid,
        old=CallState.RECORDED,
        new=CallState.ERASED,
        generation=row.generation,
        mac=record_mac(record),
    )
    tx.add_record(row.row_id, record, change)


def _is_told(name: str, fingerprint: bytes, steps: Collection[str] | None) -> bool:
    """Return whether a start mark still has the fingerprint of a call that is to be erased."""
    return bool(fingerprint) and (steps is None or name in steps)


def _chosen_steps(store: Store, row: RunRow, selection: Selection) -> tuple[str, ...]:
    """Return the named steps and, unless `only` they are to be erased, what takes their results, by name."""
    named = selection.steps or ()
    takers, known, is_whole, is_dynamic = _graph(store, row)
    reader = store.reader()
    known |= {name for _, name in reader.record_names(row.row_id, kinds=ERASABLE) if name}
    known |= set(reader.erased_names(row.row_id))
    known |= {mark.name for mark in reader.in_flight(row.row_id)}
    unknown = [name for name in named if name not in known]
    if unknown:
        hint = f"it has: {', '.join(sorted(known))}" if known else ""
        raise Refused(f"run {row.run_id!r} has no step {unknown[0]!r}", code="no_step", hint=hint)
    if selection.only:
        return tuple(sorted(set(named)))
    if is_dynamic:
        raise Refused(
            f"run {row.run_id!r} is a dynamic run: nobody knows which of its calls took the results of others",
            code="no_graph",
            hint="erase the whole run, or name every step that may hold it and give --only",
        )
    if not is_whole:
        raise Refused(
            f"which steps of run {row.run_id!r} take the results of others is erased",
            code="graph_erased",
            hint="erase the whole run, or give --only",
        )
    chosen, to_visit = set(named), list(named)
    while to_visit:
        more = takers.get(to_visit.pop(), set()) - chosen
        chosen |= more
        to_visit += more
    return tuple(sorted(chosen))


def _graph(store: Store, row: RunRow) -> tuple[dict[str, set[str]], set[str], bool, bool]:
    """Return who takes whose results in any attempt, all steps, whether every attempt tells, and whether none knows."""
    takers: dict[str, set[str]] = {}
    known: set[str] = set()
    is_whole, is_dynamic = True, False
    for stored in store.reader().records(row.row_id, kinds=[RecordKind.START]):
        if stored.erased:
            is_whole = False
            continue
        check_against_leaf(store, stored)
        content, _ = codecs.unpack_without(stored.record.encoding, stored.record.payload, KEPT_INPUTS)
        start = cast("Mapping[str, Any]", content)
        is_dynamic |= DYNAMIC_KEY in start
        waits: Mapping[str, list[str]] = start.get("order_only", {})
        for name, _version, needed, _code in cast("list[tuple[str, str, list[str], str]]", start["steps"]):
            known.add(name)
            for producer in set(needed) - set(waits.get(name, ())):
                takers.setdefault(producer, set()).add(name)
    return takers, known, is_whole, is_dynamic
