"""`arl runs show`: one run as a tree, or one step with its recorded values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json, RunId

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.run_view import RunView
    from agent_run_ledger.store import AnyStore

StepName = Annotated[str | None, typer.Option("--step", metavar="NAME", help="Only this step, with its values.")]
Payloads = Annotated[bool, typer.Option("--payloads", help="Show recorded values, in full.")]
Everything = Annotated[bool, typer.Option("--all", help="Show every call of a long dynamic run.")]


def show(
    run: RunId,
    step: StepName = None,
    payloads: Payloads = False,
    everything: Everything = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show a run: its attempts, its steps with restored and live ones told apart, errors, and people's decisions.

    Of a dynamic run: its calls in order, those made within a call beneath it.
    """
    from agent_run_ledger.cli.copies import note_copy
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.run_view import view_run
    from agent_run_ledger.ledger.views import require_run

    with reading(db) as store:
        note_copy(store, quiet=as_json)
        view = view_run(store, require_run(store.reader(), run))
        if step is None:
            _show_run(store, view, db_setting(db), payloads=payloads, everything=everything, as_json=as_json)
        else:
            _show_step(store, view, step, db_setting(db), full=payloads, as_json=as_json)


def _show_run(
    store: AnyStore, view: RunView, setting: Setting, *, payloads: bool, everything: bool, as_json: bool
) -> None:
    from agent_run_ledger.cli import output
    from agent_run_ledger.cli.copies import copy_json
    from agent_run_ledger.cli.run_json import run_json
    from agent_run_ledger.cli.run_tree import run_tree
    from agent_run_ledger.ledger.account import account_of_run
    from agent_run_ledger.ledger.budget_use import budget_uses
    from agent_run_ledger.ledger.values import read_kept_inputs

    kept = None if view.kept_inputs_id is None else read_kept_inputs(store, view.kept_inputs_id)
    account = account_of_run(store, view.row, by=None)
    budgets = budget_uses(store.reader(), view.row)
    values = store if payloads else None
    if as_json:
        output.print_json(run_json(view, values, account, kept, budgets) | {"copy": copy_json(store)})
    else:
        output.show(run_tree(view, values, account, setting, kept, budgets=budgets, everything=everything))


def _show_step(store: AnyStore, view: RunView, name: str, setting: Setting, *, full: bool, as_json: bool) -> None:
    from agent_run_ledger.cli import output
    from agent_run_ledger.cli.call_tree import calls_tree
    from agent_run_ledger.cli.run_json import call_json, step_json
    from agent_run_ledger.cli.run_tree import step_tree

    run_id = view.row.run_id
    if view.calls is not None:
        calls = [call for call in view.calls.calls if call.name == name]
        if not calls:
            raise _no_step(view, name, [call.name for call in view.calls.calls])
        if as_json:
            output.print_json({"run_id": run_id, "calls": [call_json(call, store) for call in calls]})
        else:
            output.show(calls_tree(calls, view, store, setting, full=full))
        return
    chosen = next((one for one in view.steps if one.definition.name == name), None)
    if chosen is None:
        raise _no_step(view, name, [one.definition.name for one in view.steps])
    if as_json:
        output.print_json({"run_id": run_id, "step": step_json(chosen, view, store)})
    else:
        output.show(step_tree(chosen, view, store, full=full))


def _no_step(view: RunView, name: str, names: list[str]) -> Exception:
    from agent_run_ledger.cli.words import listed
    from agent_run_ledger.errors import Refused

    known = listed(list(dict.fromkeys(names)), rest="")
    return Refused(f"run {view.row.run_id!r} has no step {name!r}", code="no_step", hint=f"it has: {known}")
