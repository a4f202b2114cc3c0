"""Forking: a new run that refers to what another one recorded before a step, and runs that step and what needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agent_run_ledger import codecs
from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import DYNAMIC_KEY, KEPT_INPUTS, SALT_BYTES, Record, RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow, Store, Tx
from agent_run_ledger.probes import reach
from agent_run_ledger.runs.attempt import MAX_STORED_BYTES, Context, holder, start_detail
from agent_run_ledger.runs.fork_dynamic import ForkPoint, dynamic_prefix
from agent_run_ledger.runs.inherited import keys_for
from agent_run_ledger.runs.inputs import Inputs
from agent_run_ledger.runs.leaf_check import record_of_run
from agent_run_ledger.runs.opened_run import SCOPE_KEY
from agent_run_ledger.runs.operate import no_run
from agent_run_ledger.runs.other_run import store_replaced
from agent_run_ledger.runs.prefix import FORK_KEY, Prefix, prefix_in


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFork:
    """A fork that was made: its row, what it refers to, and the steps it will run."""

    row: RunRow
    prefix: Prefix
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parent:
    """What a fork takes over: where its inputs' digests stand with which salt, and the program of the last start."""

    row: RunRow
    inputs: Mapping[str, Any]
    salt: bytes
    last_start: Mapping[str, Any]
    inherited: Prefix | None
    dynamic: Mapping[str, Any] | None


def fork_run(
    context: Context,
    run_id: str,
    *,
    from_step: str | None = None,
    from_call: int | None = None,
    new_run_id: str,
    inputs: Inputs | None,
) -> NewFork:
    """Make the run `new_run_id`, which refers to the results of `run_id` that do not depend on `from_step`.

    Of a dynamic run: to all that was recorded before the first call of `from_step` was begun, or the call that the
    record `from_call` is of.

    Guarantees: the new run lands whole or not at all, in one leaf; the other run may be in any state, also at work,
    and nothing of it changes. Without `inputs` the fork belongs to the inputs of the other run. Refused: "no_run",
    "no_step", "run_exists", and "erased" where the other run's START is erased; of a dynamic run see `dynamic_prefix`.
    """
    parent = _read_parent(context.store, run_id)
    if parent.dynamic is not None:
        point = ForkPoint(step=from_step, record_id=from_call)
        key = bytes.fromhex(parent.dynamic[SCOPE_KEY])
        prefix = dynamic_prefix(context.store, parent.row, parent.inherited, point, scope_key=key)
        return NewFork(row=_commit(context, parent, new_run_id, prefix, inputs), prefix=prefix, runs=())
    if from_step is None or from_call is not None:
        raise Misuse("a pipeline is forked at a step", code="bad_fork", hint="give from_step=, and no call")
    dependencies = _dependencies(parent.last_start)
    if from_step not in dependencies:
        known = ", ".join(dependencies)
        raise Refused(f"run {run_id!r} has no step {from_step!r}", code="no_step", hint=f"it has: {known}")
    rerun = dependants_of(from_step, dependencies)
    recorded = _recorded(context.store, parent)
    prefix = Prefix(
        run_id=parent.row.run_id,
        run_uid_hex=parent.row.run_uid.hex(),
        from_step=from_step,
        records={name: recorded[name] for name in dependencies if name in recorded and name not in rerun},
    )
    row = _commit(context, parent, new_run_id, prefix, inputs)
    return NewFork(row=row, prefix=prefix, runs=tuple(name for name in dependencies if name not in prefix.records))


def dependants_of(step: str, dependencies: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the step and all that depend on it, directly or through others."""
    found = {step}
    grown = True
    while grown:
        more = {name for name, needed in dependencies.items() if name not in found and found.intersection(needed)}
        grown = bool(more)
        found |= more
    return found


def _read_parent(store: Store, run_id: str) -> _Parent:
    row = store.reader().find_run(run_id)
    if row is None:
        raise no_run(run_id)
    detail, salt = start_detail(store, row)
    last = detail
    if row.last_start_record_id is not None and row.last_start_record_id != row.start_record_id:
        record = record_of_run(store, row, row.last_start_record_id, RecordKind.START)
        content, _ = codecs.unpack_without(record.encoding, record.payload, KEPT_INPUTS)
        last = cast("Mapping[str, Any]", content)
    return _Parent(row=row, inputs=detail["inputs"], salt=salt, last_start=last, inherited=prefix_in(detail),
                   dynamic=detail.get(DYNAMIC_KEY))  # fmt: skip


def _dependencies(start: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by step, in the order of registration, the names of all it depends on."""
    steps: list[tuple[str, str, list[str], str]] = start["steps"]
    return {name: needed for name, _, needed, _ in steps}


def _recorded(store: Store, parent: _Parent) -> dict[str, int]:
    """Return by step the record that the parent's latest attempt used, else the latest it has or refers to."""
    keys = keys_for(store, parent.row, parent.inherited)
    used = _used(store, parent.row)
    chosen = {key.name: key.record_id for key in keys}
    return chosen | {key.name: key.record_id for key in keys if key.record_id in used}


def _used(store: Store, row: RunRow) -> frozenset[int]:
    if row.end_record_id is None:
        return frozenset()
    end = record_of_run(store, row, row.end_record_id, RecordKind.END)
    content: Any = codecs.unpack(end.encoding, end.payload)
    return frozenset(content["used"])


def _commit(context: Context, parent: _Parent, new_run_id: str, prefix: Prefix, inputs: Inputs | None) -> RunRow:
    run_uid, now_ms = context.entropy.uuid7(), context.clock.now_ms()
    # The salt of the digests is that of the record they stand in: digests that are taken over keep theirs.
    salt = parent.salt if inputs is None else context.entropy.token(SALT_BYTES)
    start = _record(
        RecordKind.START,
        run_uid,
        salt,
        now_ms,
        {
            "run_id": new_run_id,
            "inputs": parent.inputs if inputs is None else inputs.stored(salt),
            "steps": parent.last_start["steps"],
            "policy": parent.last_start["policy"],
            "max_parallel": parent.last_start["max_parallel"],
            "holder": holder(),
            FORK_KEY: prefix.stored(),
            **{key: parent.last_start[key] for key in ("order_only",) if key in parent.last_start},
            # Of where the other run was started nothing is taken over: the fork was not started there.
            **({} if parent.dynamic is None else {DYNAMIC_KEY: {SCOPE_KEY: parent.dynamic[SCOPE_KEY]}}),
        },
    )
    reason = f"forked from {prefix.run_id!r} at step {prefix.from_step!r}; not executed yet"
    ended: dict[str, object] = {"results": {}, "used": [], "code_changed": [], "reason": reason}
    end = _record(RecordKind.END, run_uid, context.entropy.token(SALT_BYTES), now_ms, ended)

    def write(tx: Tx) -> RunRow:
        if tx.find_run(new_run_id) is not None:
            taken = f"there is already a run {new_run_id!r}"
            raise Refused(taken, code="run_exists", hint="give the fork another run id")
        if tx.standing(parent.row.row_id).run_uid != parent.row.run_uid:
            raise store_replaced(context.store, parent.row)
        begun = parent.row.start_record_id
        if begun is not None and context.store.reader().record(begun).erased:  # since we read it
            raise _erased(parent.row.run_id)
        return _write(tx, parent.row, new_run_id, start, end, reason)

    reach("record.before")
    row = context.store.transact(context.entropy.uuid7(), write)
    reach("record.after")
    return row


def _record(kind: RecordKind, run_uid: bytes, salt: bytes, now_ms: int, content: dict[str, object]) -> Record:
    packed = codecs.pack(content, limit_bytes=MAX_STORED_BYTES)
    return Record(
        kind=kind,
        run_uid=run_uid,
        salt=salt,
        attempt=1,
        started_at_ms=now_ms,
        ended_at_ms=now_ms,
        value_sha256=packed.value_sha256,
        encoding=packed.encoding,
        payload=packed.payload,
    )


def _write(tx: Tx, parent: RunRow, new_run_id: str, start: Record, end: Record, reason: str) -> RunRow:
    """Write a run that began and was suspended: two changes that the tables allow, so that readers need no new rule."""
    held_by = holder()
    row = tx.insert_run(run_uid=start.run_uid, run_id=new_run_id, holder=held_by, forked_from_row_id=parent.row_id)
    record_ids = [
        tx.add_record(
            row.row_id,
            record,
            Change(type="run", id=row.run_uid, old=old, new=new, generation=row.generation, mac=record_mac(record)),
        )
        for record, old, new in (
            (start, "none", str(RunState.RUNNING)),
            (end, str(RunState.RUNNING), str(RunState.SUSPENDED)),
        )
    ]
    tx.update_run(
        row,
        state=RunState.SUSPENDED,
        reason=reason,
        generation=row.generation,
        attempt=row.attempt,
        holder=held_by,
        start_record_id=record_ids[0],
        last_start_record_id=record_ids[0],
        end_record_id=record_ids[1],
    )
    return tx.get_run(row.row_id)


def _erased(run_id: str) -> Refused:
    return Refused(f"run {run_id!r} is erased: what it began with is not known any more", code="erased")
