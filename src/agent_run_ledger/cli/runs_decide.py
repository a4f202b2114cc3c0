"""`arl runs quarantine|release|takeover|cancel`: what people decide about a run, each act recorded with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.cli.options import Actor, Db, Json, Reason, RunId, Yes
from agent_run_ledger.kernel.states import RunEvent, RunState

if TYPE_CHECKING:
    from agent_run_ledger.ports import RunRow, Store

_CANCEL_ASKS = "Cancel run {run}? That is for ever: nothing will start it again."
_TAKEOVER_ASKS = (
    "Take run {run} over? If another attempt still lives, it can write nothing more from now on: results it has not"
    " recorded by then are lost, and what they cost is uncertain. The next execute() goes on at once, and what that"
    " attempt had started runs again, but for tools that may not be repeated: their outcome is unknown then."
)

_DONE = {
    RunEvent.QUARANTINE: "is in QUARANTINE: every start is refused until `{release}`",
    RunEvent.RELEASE: "is released: the next execute() goes on where it was",
    RunEvent.TAKEOVER: "is taken over: an attempt that held it can write nothing more, and the next execute() goes on",
    RunEvent.CANCEL: "is cancelled for ever; what is recorded stays readable, and can be forked",
}


def quarantine(run: RunId, reason: Reason, actor: Actor = None, db: Db = None, as_json: Json = False) -> None:
    """Put a run into QUARANTINE: a living attempt starts nothing more, and every start is refused until a release."""
    _decide(run, RunEvent.QUARANTINE, reason=reason, actor=actor, db=db, as_json=as_json)


def release(run: RunId, reason: Reason, actor: Actor = None, db: Db = None, as_json: Json = False) -> None:
    """Release a run from QUARANTINE, so that the next execute() goes on where it was."""
    _decide(run, RunEvent.RELEASE, reason=reason, actor=actor, db=db, as_json=as_json)


def takeover(
    run: RunId, reason: Reason, actor: Actor = None, yes: Yes = False, db: Db = None, as_json: Json = False
) -> None:
    """Take a stuck run over: the attempt that holds it can write nothing more, and the next execute() goes on."""
    _confirm(_TAKEOVER_ASKS, run, yes=yes)
    _decide(run, RunEvent.TAKEOVER, reason=reason, actor=actor, db=db, as_json=as_json)


def cancel(
    run: RunId, reason: Reason, actor: Actor = None, yes: Yes = False, db: Db = None, as_json: Json = False
) -> None:
    """Cancel a run for ever; a body that runs may finish and its result is kept, but nothing new starts."""
    _confirm(_CANCEL_ASKS, run, yes=yes)
    _decide(run, RunEvent.CANCEL, reason=reason, actor=actor, db=db, as_json=as_json)


def _decide(run_id: str, event: RunEvent, *, reason: str, actor: str | None, db: str | None, as_json: bool) -> None:
    from agent_run_ledger.cli.next_steps import run_command
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.settings import actor_setting, db_setting
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.cli.words import clean, listed
    from agent_run_ledger.runs.operate import decide

    who = actor_setting(actor).value
    with deciding(db) as context:
        row = decide(context, run_id, event, reason=reason, actor=who)
        running = _bodies_left(context.store, row)
    if as_json:
        print_json({**_decision_json(row, event, reason, who), "still_running": running})
        return
    release = run_command(db_setting(db), "release", run_id, "--reason ...")
    say(f"run {clean(run_id)} {_DONE[event].format(release=release)}")
    if running:
        say(f"left to finish, their results kept as evidence ({len(running)}): {clean(listed(running))}")


def _bodies_left(store: Store, row: RunRow) -> list[str]:
    """Return the steps whose bodies may still run after a cancel or a quarantine; a live attempt starts no others."""
    from agent_run_ledger.ledger.views import is_live

    if row.state not in (RunState.CANCELLED, RunState.QUARANTINED) or is_live(store, row) is False:
        return []
    return [mark.name for mark in store.reader().in_flight(row.row_id)]


def _decision_json(row: RunRow, event: RunEvent, reason: str, actor: str) -> dict[str, object]:
    return {
        "run_id": row.run_id,
        "event": str(event),
        "state": str(row.state),
        "generation": row.generation,
        "attempt": row.attempt,
        "reason": reason,
        "actor": actor,
    }


def _confirm(question: str, run_id: str, *, yes: bool) -> None:
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.words import clean

    confirm(question.format(run=clean(run_id)), yes=yes)
