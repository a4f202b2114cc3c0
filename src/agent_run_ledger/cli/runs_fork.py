"""`arl runs fork`: a new run that refers to what another one recorded before a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, RunId
from agent_run_ledger.errors import Misuse

if TYPE_CHECKING:
    from agent_run_ledger.runs.fork import NewFork

FromStep = Annotated[
    str | None, typer.Option("--from-step", metavar="STEP", help="The first step that the fork is to run itself.")
]
FromCall = Annotated[
    int | None, typer.Option("--from-call", metavar="N", help="Of a dynamic run: the first call that it makes itself.")
]
NewRunId = Annotated[
    str | None, typer.Option("--as", metavar="NEW_RUN", help="The fork's run id [default: a new UUIDv7].")
]


def fork(
    run: RunId,
    from_step: FromStep = None,
    from_call: FromCall = None,
    new_run: NewRunId = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Fork a run: the new run refers to the results that do not depend on the step, and runs the others itself.

    Of a dynamic run it refers to all that was recorded before the call was begun: the first of the step, or one call.
    """
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.ledger.run_ledger import check_run_id, made_run_id
    from agent_run_ledger.runs.fork import fork_run

    if (from_step is None) == (from_call is None):
        raise Misuse("where to fork has to be said once", code="usage", hint="give --from-step NAME, or --from-call N")
    new_run_id = made_run_id() if new_run is None else check_run_id(new_run)
    with deciding(db) as context:
        forked = fork_run(context, run, from_step=from_step, from_call=from_call, new_run_id=new_run_id, inputs=None)
    if as_json:
        print_json(_fork_json(forked))
    else:
        for line in _words(forked):
            say(line)


def _fork_json(forked: NewFork) -> dict[str, object]:
    from agent_run_ledger.cli.run_json import prefix_json

    return {
        "run_id": forked.row.run_id,
        "run_uid": forked.row.run_uid.hex(),
        "state": str(forked.row.state),
        "forked_from": prefix_json(forked.prefix),
        "runs": list(forked.runs),
    }


def _words(forked: NewFork) -> list[str]:
    from agent_run_ledger.cli.words import clean, counted, listed

    prefix = forked.prefix
    if not prefix.records and not forked.runs:
        return [
            clean(line)
            for line in (
                f"run {forked.row.run_id} is forked from run {prefix.run_id} at a call of {prefix.from_step}",
                f"{counted(len(prefix.calls), 'result')} referenced; what comes after them is made anew",
                f"the next `with ledger.run(...)` of run {forked.row.run_id}, with the inputs of run {prefix.run_id}, "
                "goes on there",
            )
        ]
    referenced, runs = list(prefix.records), forked.runs
    known = f"{counted(len(referenced), 'result')} referenced{': ' if referenced else ''}{listed(referenced)}"
    return [
        clean(line)
        for line in (
            f"run {forked.row.run_id} is forked from run {prefix.run_id} at step {prefix.from_step}",
            f"{known}; to run ({len(runs)}): {listed(runs)}",
            f"the next execute() of run {forked.row.run_id}, with the inputs of run {prefix.run_id}, goes on there",
        )
    ]
