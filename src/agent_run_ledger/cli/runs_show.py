"""`arl runs show`: one run as a tree, or one step with its recorded values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, RunId

if TYPE_CHECKING:
    from agent_run_ledger.store import SqliteStore

StepName = Annotated[str | None, typer.Option("--step", metavar="NAME", help="Only this step, with its values.")]
Payloads = Annotated[bool, typer.Option("--payloads", help="Show recorded values, in full.")]


def show(run: RunId, step: StepName = None, payloads: Payloads = False, db: Db = None, as_json: Json = False) -> None:
    """Show a run: its attempts, its steps with restored and live ones told apart, errors, and people's decisions."""
    from agent_run_ledger.cli.stores import reading

    with reading(db) as store:
        _show(store, run, step=step, payloads=payloads, as_json=as_json)


def _show(store: SqliteStore, run_id: str, *, step: str | None, payloads: bool, as_json: bool) -> None:
    from agent_run_ledger.cli import output
    from agent_run_ledger.cli.copies import copy_json, note_copy
    from agent_run_ledger.cli.run_json import run_json, step_json
    from agent_run_ledger.cli.run_tree import run_tree, step_tree
    from agent_run_ledger.cli.words import listed
    from agent_run_ledger.errors import Refused
    from agent_run_ledger.ledger.account import account_of_run
    from agent_run_ledger.ledger.run_view import view_run
    from agent_run_ledger.ledger.values import read_kept_inputs
    from agent_run_ledger.ledger.views import require_run

    note_copy(store, quiet=as_json)
    view = view_run(store, require_run(store.reader(), run_id))
    if step is None:
        kept = None if view.kept_inputs_id is None else read_kept_inputs(store, view.kept_inputs_id)
        account = account_of_run(store, view.row, by=None)
        if as_json:
            output.print_json(run_json(view, store if payloads else None, account, kept) | {"copy": copy_json(store)})
        else:
            output.show(run_tree(view, store if payloads else None, account, kept))
        return
    chosen = next((one for one in view.steps if one.definition.name == step), None)
    if chosen is None:
        known = listed([one.definition.name for one in view.steps], rest="")
        raise Refused(f"run {run_id!r} has no step {step!r}", code="no_step", hint=f"it has: {known}")
    if as_json:
        output.print_json({"run_id": run_id, "step": step_json(chosen, view, store)})
    else:
        output.show(step_tree(chosen, view, store, full=payloads))
