"""`arl runs resolve`: what a person found out about a call with an unknown outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Actor, Db, Json, Reason, RunId
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from agent_run_ledger.runs.resolve import Finding, Outcome, Resolved

Call = Annotated[str, typer.Argument(metavar="CALL", help="The call's number, as `arl runs show` shows it.")]
Result = Annotated[str | None, typer.Option("--result", metavar="JSON", help="It happened, and returned this.")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="It failed: the agent sees this error.")]
NotDone = Annotated[bool, typer.Option("--not-done", help="It did not happen: it may be made again.")]
Input = Annotated[int | None, typer.Option("--input-tokens", metavar="N", help="Input tokens it used.")]
Output = Annotated[int | None, typer.Option("--output-tokens", metavar="N", help="Output tokens it used.")]
Cost = Annotated[str | None, typer.Option("--cost-usd", metavar="X", help="What it cost, in US dollars.")]


def resolve(
    run: RunId,
    call: Call,
    reason: Reason,
    result: Result = None,
    error: Error = None,
    not_done: NotDone = False,
    input_tokens: Input = None,
    output_tokens: Output = None,
    cost_usd: Cost = None,
    actor: Actor = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Say what became of a call whose outcome is unknown: it returned something, it failed, or it was not done.

    Look where the call would have left a trace first. Recorded with reason and actor; nothing runs by it.
    """
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.settings import actor_setting
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.runs.resolve import Finding, resolve_call
    from agent_run_ledger.runs.usage import noted_usage

    outcome, value = _said(result, error, not_done=not_done)
    usage = noted_usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
    who = actor_setting(actor).value
    finding = Finding(outcome=outcome, value=value, reason=reason, actor=who, usage=usage)
    with deciding(db) as context:
        resolved = resolve_call(context, run, call, finding)
    if as_json:
        print_json(_resolved_json(resolved, finding))
    else:
        _print(resolved, finding)


def _said(result: str | None, error: str | None, *, not_done: bool) -> tuple[Outcome, object]:
    """Return the outcome and its value; a result is plain JSON, as an agent's tool would return it."""
    import orjson

    from agent_run_ledger.runs.resolve import Outcome

    if (result is not None) + (error is not None) + not_done != 1:
        raise Misuse(
            "what became of the call has to be said once",
            code="usage",
            hint="give one of --result JSON, --error TEXT and --not-done",
        )
    if error is not None:
        return Outcome.ERROR, RuntimeError(error)
    if result is None:
        return Outcome.NOT_DONE, None
    try:
        return Outcome.RESULT, orjson.loads(result)
    except orjson.JSONDecodeError as wrong:
        raise Misuse(
            f"--result is no JSON: {wrong}", code="usage", hint="""a text stands in quotes: --result '"sent"'"""
        ) from None


def _resolved_json(resolved: Resolved, finding: Finding) -> dict[str, object]:
    from agent_run_ledger.cli.account_json import usage_json

    return {
        "run_id": resolved.row.run_id,
        "event": "resolve",
        "call": resolved.record_id,
        "step": resolved.step,
        "outcome": str(finding.outcome),
        "record_id": resolved.outcome_id,
        "decision_id": resolved.decision_id,
        "usage": usage_json(finding.usage),
        "reason": finding.reason,
        "actor": finding.actor,
    }


_WORDS = {
    "result": "it returned what you said",
    "error": "it failed with what you said",
    "not_done": "it was not done",
}
_NEXT = {
    "result": "restores that result",
    "error": "raises that error",
    "not_done": "makes it again",
}


def _print(resolved: Resolved, finding: Finding) -> None:
    from agent_run_ledger.cli.output import say
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.kernel.states import RunState

    run = clean(resolved.row.run_id)
    say(f"call {resolved.record_id} of run {run} ({clean(resolved.step)}) is resolved: {_WORDS[finding.outcome]}")
    if resolved.row.state is RunState.CANCELLED:
        say(f"run {run} is cancelled, so that this changes nothing but what is known of it")
        return
    say(f"the next attempt of run {run} {_NEXT[finding.outcome]}; if the run went on before, not knowing, it stays so")
