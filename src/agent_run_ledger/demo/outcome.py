"""What a finished demonstration hands out: one JSON object, and the provenance at the end of its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_run_ledger.demo.audit.neutral import code, inline
from agent_run_ledger.demo.facts import LifeFacts, Mark, Proof, Tally
from agent_run_ledger.demo.job import Job
from agent_run_ledger.demo.reviewers import TOKEN_FORMULA

PROVENANCE = "## Provenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything a finished demonstration knows about itself."""

    job: Job
    reviewer: str
    state: str
    tally: Tally
    proof: Proof
    next_commands: tuple[str, ...]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return the facts as plain JSON values; every number is measured, times are milliseconds."""
    tally, job = outcome.tally, outcome.job
    return {
        "run_id": job.run_id,
        "state": outcome.state,
        "label": job.label,
        "reviewer": outcome.reviewer,
        "tokens_estimated": tally.tokens_estimated,
        "folder": str(job.folder),
        "database": str(job.database),
        "report": str(job.report),
        "meter": str(job.meter),
        "lives": [_life_json(life) for life in tally.lives],
        "steps": [
            {
                "number": step.number,
                "name": step.name,
                "subject": step.subject,
                "lives": [str(mark) for mark in step.marks],
                "tokens": step.tokens,
                "took_ms": step.took_ms,
            }
            for step in tally.steps
        ],
        "tokens_in_records": tally.tokens_in_records,
        "recorded_steps_paid_again": list(tally.recorded_paid_again),
        "unrecorded_steps_paid_again": list(tally.unrecorded_paid_again),
        "proof": {"log_size": outcome.proof.log_size, "root_hex": outcome.proof.root_hex, "verified": True},
        "next": list(outcome.next_commands),
    }


def provenance(outcome: Outcome) -> str:
    """Return the section that says how this report came to be; it alone differs between runs over the same tree."""
    return "\n".join(_provenance(outcome)) + "\n"


def with_provenance(text: str, section: str) -> str:
    """Return the report with the section as its end, in place of an earlier one."""
    return f"{text.partition(f'{chr(10)}{PROVENANCE}{chr(10)}')[0].rstrip()}\n\n{section}"


def _life_json(life: LifeFacts) -> dict[str, Any]:
    return {
        "life": life.number,
        "ended": life.ended,
        "wall_ms": life.wall_ms,
        "steps_live": life.steps_live,
        "steps_restored": life.steps_restored,
        "killed_in": life.killed_in,
        "model_calls": life.model_calls,
        "calls_without_answer": life.calls_without_answer,
        "tokens": {
            "paid": life.tokens_paid,
            "spent": life.tokens_spent,
            "uncertain": life.tokens_uncertain,
            "restored": life.tokens_restored,
        },
    }


def _provenance(outcome: Outcome) -> Iterator[str]:
    tally = outcome.tally
    yield PROVENANCE
    yield ""
    yield f"- Run {code(outcome.job.run_id)} in {code(outcome.job.database.name)}, state {outcome.state}."
    yield (
        f"- Log of {outcome.proof.log_size} leaves, root {code(outcome.proof.root_hex)}; it was verified when this "
        "line was written."
    )
    for index, life in enumerate(tally.lives):
        yield (
            f"- Attempt {life.number}: {life.ended}; {life.steps_live} steps ran and were recorded, "
            f"{life.steps_restored} were restored; {life.tokens_paid:,} tokens paid, "
            f"{life.tokens_restored:,} restored, {life.tokens_uncertain:,} uncertain."
        )
        restored = [step.name for step in tally.steps if step.marks[index] is Mark.RESTORED]
        if restored:
            yield f"  Restored: {', '.join(restored)}."
    if tally.tokens_estimated:
        yield f"- Tokens are estimated: {TOKEN_FORMULA}."
    yield f"- Reviewer: {inline(outcome.reviewer)}."
