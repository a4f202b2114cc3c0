"""The documented JSON of one run and of one step (docs/reference/cli.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from agent_run_ledger.cli.account_json import account_json, usage_json
from agent_run_ledger.cli.budgets import budgets_json
from agent_run_ledger.cli.words import iso
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.scopes import elements
from agent_run_ledger.ledger.run_view import AttemptView, DecisionView, RunView, StepView
from agent_run_ledger.ledger.values import ReadValue, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_run_ledger.ledger.account import Account
    from agent_run_ledger.ledger.budget_use import BudgetUse
    from agent_run_ledger.ledger.call_view import CallView, ChildView
    from agent_run_ledger.ledger.views import RecordView
    from agent_run_ledger.ports import InFlight, Store
    from agent_run_ledger.runs.prefix import Origin, Prefix

HAS_VALUE = (RecordKind.RESULT, RecordKind.ERROR, RecordKind.RESCUED)


def run_json(
    view: RunView,
    store: Store | None,
    account: Account,
    kept: Mapping[str, ReadValue] | None = None,
    budgets: Mapping[str, BudgetUse] | None = None,
) -> dict[str, object]:
    """Return one run with its account, budgets and kept inputs; with a store, the recorded values too."""
    row = view.row
    return {
        "run_id": row.run_id,
        "run_uid": row.run_uid.hex(),
        "state": str(row.state),
        "reason": row.reason,
        "live_attempt": view.live,
        "attempt": row.attempt,
        "generation": row.generation,
        "created_at": iso(row.created_at_ms),
        "updated_at": iso(row.updated_at_ms),
        "inputs": list(view.input_names),
        "kept_inputs": None if kept is None else {name: value.stored for name, value in kept.items()},
        "erased": view.erased,
        "policy": view.policy,
        "max_parallel": view.max_parallel,
        "attempts": [attempt_json(attempt) for attempt in view.attempts],
        "decisions": [decision_json(decision) for decision in view.decisions],
        "code_changed": list(view.code_changed),
        "usage": account_json(account),
        "kind": "pipeline" if view.calls is None else "dynamic",
        "budgets": budgets_json(budgets or {}),
        "steps": [step_json(step, view, store) for step in view.steps],
        "calls": [] if view.calls is None else [call_json(call, store) for call in view.calls.calls],
        "effects": [asdict(line) for line in view.effects.values()],
        "parent": view.parent,
        "children": [child_json(child) for child in view.children],
        "forked_from": None if view.prefix is None else prefix_json(view.prefix),
        "forks": [
            {"run_id": fork.run_id, "state": str(fork.state), "from_step": fork.from_step} for fork in view.forks
        ],
    }


def prefix_json(prefix: Prefix) -> dict[str, object]:
    """Return what a fork refers to."""
    return {
        "run_id": prefix.run_id,
        "run_uid": prefix.run_uid_hex,
        "from_step": prefix.from_step,
        "records": [{"step": name, "record_id": record_id} for name, record_id in prefix.records.items()],
        "calls": list(prefix.calls),
        "others": list(prefix.others),
    }


def origin_json(origin: Origin) -> dict[str, object]:
    """Return which run recorded what a fork refers to."""
    return {"recorded_in": origin.recorded_in, "referenced_by": list(origin.referenced_by)}


def attempt_json(attempt: AttemptView) -> dict[str, object]:
    """Return one attempt."""
    return {
        "attempt": attempt.number,
        "generation": attempt.generation,
        "holder": {"pid": attempt.holder.pid, "host": attempt.holder.host},
        "started_at": iso(attempt.started_at_ms),
        "ended_at": None if attempt.ended_at_ms is None else iso(attempt.ended_at_ms),
        "end": str(attempt.end),
        "reason": attempt.reason,
        "is_fork": attempt.is_fork,
        "is_submission": attempt.is_submission,
    }


def decision_json(decision: DecisionView) -> dict[str, object]:
    """Return what a person did."""
    return {
        "event": decision.event,
        "reason": decision.reason,
        "actor": decision.actor,
        "attempt": decision.attempt,
        "at": iso(decision.at_ms),
        **({} if decision.records is None else {"records": decision.records}),
    }


def step_json(step: StepView, view: RunView, store: Store | None) -> dict[str, object]:
    """Return one step with all its records; with a store, their values too."""
    definition = step.definition
    return {
        "step": definition.name,
        "defined": step.defined,
        "version": definition.version,
        "depends_on": list(definition.depends_on),
        "code_hex": definition.code_hex,
        "state": str(step.state),
        "record_id": None if step.current is None else step.current.record_id,
        "in_flight": [_mark_json(mark) for mark in step.in_flight],
        "records": [record_json(record, store) for record in step.records],
    }


def record_json(record: RecordView, store: Store | None) -> dict[str, object]:
    """Return one record; with a store, its value in the stored form and whether this program can build it."""
    found: dict[str, object] = {
        "record_id": record.record_id,
        "leaf_index": record.leaf_index,
        "kind": record.kind.name.lower(),
        "attempt": record.attempt,
        "tries": record.tries,
        "started_at": iso(record.started_at_ms),
        "ended_at": iso(record.ended_at_ms),
        "duration_ms": duration_ms(record),
        "stored_bytes": record.stored_bytes,
        "because": list(record.because),
        "error": record.error,
        "erased": record.erased,
        "usage": usage_json(record.usage),
        "origin": None if record.origin is None else origin_json(record.origin),
    }
    if store is not None and record.kind in HAS_VALUE:
        found |= _value_json(read_value(store, record.record_id))
    return found


def call_json(call: CallView, store: Store | None) -> dict[str, object]:
    """Return one call of a dynamic run with all its records; with a store, their values too.

    `scope` is where it was made and `inner` the scope within its body, both hex: what was called in it has a `scope`
    that begins with `inner`.
    """
    current = call.current
    return {
        "step": call.name,
        "scope": call.scope.hex(),
        "scope_path": _path_json(call.scope),
        "inner": None if call.inner is None else call.inner.hex(),
        "occurrence": call.occurrence,
        "own": call.is_own,
        "state": str(call.standing),
        "effect": call.effect or None,
        "record_id": None if current is None else current.record_id,
        "unknown": call.unknown_id,
        "resolved": [
            {
                "call": one.call,
                "decision_id": one.decision_id,
                "outcome": one.outcome,
                "reason": one.reason,
                "actor": one.actor,
                "at": iso(one.at_ms),
            }
            for one in call.resolutions
        ],
        "in_flight": None
        if call.mark is None
        else {**_mark_json(call.mark), "repeatable": call.mark.repeatable, "after": call.mark.after_record_id},
        "records": [
            {
                **record_json(record, store),
                "unknown": record.unknown,
                "resolves": record.resolves,
                "after": record.after,
            }
            for record in call.records
        ],
    }


def child_json(child: ChildView) -> dict[str, object]:
    """Return a run that was started within another one."""
    return {
        "run_id": child.run_id,
        "state": str(child.state),
        "live_attempt": child.live,
        "results": child.results,
        "scope": None if child.scope is None else child.scope.hex(),
        "scope_path": None if child.scope is None else _path_json(child.scope),
        "record_id": child.start_record_id,
    }


def _path_json(scope: bytes) -> list[dict[str, object]] | None:
    """Return the elements of a scope from outside in; None for bytes that are none."""
    try:
        found = elements(scope)
    except ValueError:
        return None
    return [
        {"kind": kind.name.lower(), **({} if branch is None else {"group": branch.group, "number": branch.number})}
        for kind, branch in found
    ]


def duration_ms(record: RecordView) -> int | None:
    """Return how long the call took; None where it was abandoned (its record is of the next start) or a clock set."""
    if record.kind is RecordKind.ABANDONED or record.ended_at_ms < record.started_at_ms:
        return None
    return record.ended_at_ms - record.started_at_ms


def _value_json(value: ReadValue) -> dict[str, object]:
    return {"value": value.stored, "value_form": "stored", "decodes": value.decoded, "value_note": value.why}


def _mark_json(mark: InFlight) -> dict[str, object]:
    return {
        "lane": mark.lane,
        "attempt": mark.attempt,
        "tries": mark.tries,
        "started_at": iso(mark.started_at_ms),
    }
