"""What the next `execute` would do with each step, and which argument paths are why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from agent_run_ledger.ports import RecordKey, RunRow, Store
from agent_run_ledger.runs.calls import ROOT_SCOPE
from agent_run_ledger.runs.inherited import keys_for, prefix_of
from agent_run_ledger.runs.leaf_check import load_value
from agent_run_ledger.runs.prefix import Origin, Prefix, lineage, origin_of
from agent_run_ledger.runs.recorded import Recorded, Sources
from agent_run_ledger.runs.resolver import Resolver


class Verdict(StrEnum):
    """What would happen to a step. ERASED: its record or the run's start was erased, so the run is refused."""

    RESTORED = "restored"
    RUNS = "runs"
    DEPENDS = "depends"
    ERASED = "erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExplanation:
    """One step: what would happen, and why.

    `because`: paths that differ from its latest record, such as `environment.prompt`, `arguments.report.year`,
    `version` or `code` (changed code is reused, with a warning). `waits_for`: steps whose results decide. `origin`:
    for a restored step of a fork, which other run recorded it; None for a record of the run's own.
    """

    name: str
    verdict: Verdict
    because: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    origin: Origin | None = None


def explain_new(resolver: Resolver) -> list[StepExplanation]:
    """Return one explanation per step of a run that has not begun, in the order they would run."""
    explained: list[StepExplanation] = []
    for index in resolver.plan.order:
        taken = tuple(resolver.steps[at].name for at in resolver.results_taken(index))
        verdict = Verdict.DEPENDS if taken else Verdict.RUNS
        explained.append(StepExplanation(name=resolver.steps[index].name, verdict=verdict, waits_for=taken))
    return explained


def explain_steps(store: Store, row: RunRow, resolver: Resolver) -> list[StepExplanation]:
    """Return one explanation per step in the order they would run. Nothing is written and no body runs."""
    start_is_erased = row.start_record_id is not None and store.reader().record(row.start_record_id).erased
    prefix = None if start_is_erased else prefix_of(store, row)
    recorded = Recorded(store, keys_for(store, row, prefix), quiet=True)
    known: dict[int, RecordKey] = {}
    explained: list[StepExplanation] = []
    for index in resolver.plan.order:
        name = resolver.steps[index].name
        if start_is_erased or recorded.erased(ROOT_SCOPE, name, 0) is not None:
            explained.append(StepExplanation(name=name, verdict=Verdict.ERASED))
            continue
        taken = resolver.results_taken(index)
        missing = [resolver.steps[i].name for i in taken if i not in known]
        if missing:
            explained.append(StepExplanation(name=name, verdict=Verdict.DEPENDS, waits_for=tuple(missing)))
            continue
        identity = resolver.identity(index, lambda i: known[i].value_sha256)
        hit = recorded.take(identity, resolver.steps[index].code)
        if hit is not None:
            known[index] = hit
            changed = ("code",) if name in recorded.code_changed else ()
            origin = _origin(store, row, prefix, hit.record_id)
            explained.append(StepExplanation(name=name, verdict=Verdict.RESTORED, because=changed, origin=origin))
            continue
        because = recorded.why_not(identity, _sources(store, row, resolver, index, known)) or []
        explained.append(StepExplanation(name=name, verdict=Verdict.RUNS, because=tuple(because)))
    return explained


def _origin(store: Store, row: RunRow, prefix: Prefix | None, record_id: int) -> Origin | None:
    if prefix is None or record_id not in prefix.record_ids:
        return None
    reader = store.reader()
    return origin_of(reader, lineage(reader, row), reader.record(record_id).run_row_id)


def _sources(store: Store, row: RunRow, resolver: Resolver, index: int, known: dict[int, RecordKey]) -> Sources:
    return {
        parameter: (resolver.steps[at].name, partial(load_value, store, row.run_id, known[at].record_id))
        for parameter, at in resolver.result_arguments(index)
    }
