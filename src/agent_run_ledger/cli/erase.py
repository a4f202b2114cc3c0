"""`arl erase`: what was recorded of a run, or of some steps of it, is gone for good, and every proof still holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Actor, Db, Json, Reason, RunId, Yes

if TYPE_CHECKING:
    from agent_run_ledger.ports import Store
    from agent_run_ledger.runs.erase import Plan

Steps = Annotated[
    list[str] | None,
    typer.Option("--step", metavar="NAME", help="Only this step and those that take its result; may come again."),
]
Only = Annotated[bool, typer.Option("--only", help="Only the named steps, not those that take their results.")]

KEPT = "run id, state and its reason, step names, attempts, times, sizes of the log, usage, and people's decisions"
KEPT_OF_A_PART = f"what the run was started with, its other steps, and of these steps: {KEPT}"
NOT_REACHED = "backups, exports and copies made before, and what a file system or disk keeps of old blocks"
_SERVER_KEEPS = (
    "note: the server freed the rows; its write-ahead log, its standbys and its free pages keep old bytes for a while"
)
SCRUB_TRIES = 5
_PAUSE_S = 0.2


def erase(
    run: RunId,
    reason: Reason,
    step: Steps = None,
    only: Only = False,
    actor: Actor = None,
    yes: Yes = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Erase what was recorded of a run: values, inputs, errors and the digests of all of them.

    The log still verifies, and what is erased is never run again: its calls are refused.
    """
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.output import progress
    from agent_run_ledger.cli.settings import actor_setting
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.errors import Misuse
    from agent_run_ledger.runs.erase import Act, Selection, check_act, erase_run, plan_erasure

    if only and not step:
        raise Misuse("--only says something of --step, which is missing", code="usage", hint="give --step NAME")
    act = Act(event="erase", reason=reason, actor=actor_setting(actor).value)
    selection = Selection(steps=tuple(step) if step else None, only=only)
    check_act(act)
    with deciding(db) as context:
        plan = plan_erasure(context.store, run, selection)
        if plan.records:
            confirm(question(plan), yes=yes)
        with progress("records", quiet=as_json) as show:
            erased = erase_run(context, run, selection, act, progress=show)
        store = context.store
        scrubbed = scrub(store)
        _report(erased.plan, act.reason, act.actor, erased.payload_bytes, scrubbed=scrubbed, as_json=as_json)
        refuse_unscrubbed(store, scrubbed=scrubbed)


def question(plan: Plan) -> str:
    """Return what a person is asked before records are erased."""
    from agent_run_ledger.cli.words import clean, counted

    what = "all of it, with what it was started with" if plan.steps is None else _steps_words(plan.steps)
    lines = [f"Erase {counted(plan.records, 'record')} of run {clean(plan.row.run_id)} ({what})?"]
    if plan.dependants:
        lines.append(f"Not named, but they take results of named steps: {_named(plan.dependants)}.")
    if plan.steps is not None:
        lines.append("What the run was started with stays, as do its other steps.")
    lines.append("This cannot be undone. Erased calls are refused, never run again.")
    if plan.forks:
        lines.append(f"Forks of this run keep records of their own: {_named(plan.forks)}.")
    if plan.children:
        lines.append(f"Runs that were started within it keep records of their own: {_named(plan.children)}.")
    if plan.waiting:
        lines.append(f"It was started within {_named(plan.waiting)}, which is not over and needs it to go on.")
    return "\n".join(lines)


def scrub(store: Store) -> bool:
    """Empty the store's side files of what was erased; False where readers hold it up for a second, or at a server."""
    from agent_run_ledger.store import is_url

    for _ in range(1 if is_url(store.location) else SCRUB_TRIES):
        if store.scrub():
            return True
        time.sleep(_PAUSE_S)
    return False


def refuse_unscrubbed(store: Store, *, scrubbed: bool) -> None:
    """Raise Unavailable where old pages are still in the -wal file; of a server, only say what it keeps."""
    from agent_run_ledger.cli.output import note
    from agent_run_ledger.errors import Unavailable
    from agent_run_ledger.store import is_url

    location = store.location
    if is_url(location):
        note(_SERVER_KEEPS)
    elif not scrubbed:
        raise Unavailable(
            f"what was erased is gone from {location}, but {location}-wal may still hold old pages: others are reading",
            code="not_scrubbed",
            hint="end what reads the store and give the same command again: it then empties the file",
        )


def _named(names: tuple[str, ...]) -> str:
    from agent_run_ledger.cli.words import clean, listed

    return clean(listed(names, rest=""))


def _steps_words(steps: tuple[str, ...]) -> str:
    return f"{'step' if len(steps) == 1 else 'steps'} {_named(steps)}"


def _report(plan: Plan, reason: str, actor: str, payload_bytes: int, *, scrubbed: bool, as_json: bool) -> None:
    from agent_run_ledger.cli.output import print_json, show_named
    from agent_run_ledger.cli.words import counted, size_words

    kept = KEPT if plan.steps is None else KEPT_OF_A_PART
    if as_json:
        print_json(
            {
                "run_id": plan.row.run_id,
                "event": "erase",
                "steps": None if plan.steps is None else list(plan.steps),
                "dependants": list(plan.dependants),
                "records": plan.records,
                "payload_bytes": payload_bytes,
                "forks": list(plan.forks),
                "children": list(plan.children),
                "waiting": list(plan.waiting),
                "kept": kept,
                "not_reached": NOT_REACHED,
                "scrubbed": scrubbed,
                "reason": reason,
                "actor": actor,
            }
        )
        return
    what = "all of it" if plan.steps is None else _steps_words(plan.steps)
    nothing = "" if plan.records else " (there was nothing more to erase)"
    lines = [
        ("erased", f"{counted(plan.records, 'record')} in 1 run: {plan.row.run_id}, {what}{nothing}"),
        ("payload", size_words(payload_bytes)),
        ("kept", kept),
        ("not", NOT_REACHED),
    ]
    if plan.forks:
        lines.append(("forks", f"erase on their own what these hold: {_named(plan.forks)}"))
    if plan.children:
        lines.append(("within", f"runs started within it, to be erased on their own: {_named(plan.children)}"))
    show_named(lines)
