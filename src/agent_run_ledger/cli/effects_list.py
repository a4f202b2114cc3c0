"""`arl effects list`: the operator's inbox, what waits longest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.effects.states import ActionState

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.effect_inbox import Waiting

PAGE = 20
InDoubt = Annotated[bool, typer.Option("--doubt", help="Only what is in doubt: unresolved, or its worker is silent.")]
States = Annotated[
    list[ActionState] | None,
    typer.Option("--state", metavar="STATE", help=f"Only this state; may come again: {', '.join(ActionState)}."),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only members of this key.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")]


def list_effects(
    doubt: InDoubt = False,
    state: States = None,
    key: Key = None,
    limit: Limit = PAGE,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List open actions, what waits longest first: its age, its evidence, and what may be done next by whom."""
    from agent_run_ledger.cli.copies import copy_json, note_copy
    from agent_run_ledger.cli.effects_json import action_json
    from agent_run_ledger.cli.folding import say_folded
    from agent_run_ledger.cli.output import note, print_json
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.effect_inbox import read_doubts, read_inbox

    if doubt and state:
        raise Misuse("--doubt says which states", code="usage", hint="give one of --doubt and --state")
    with reading(db) as store:
        if doubt:
            found = read_doubts(store, key=key, limit=limit + 1)
        else:
            found = read_inbox(store, state or (), key=key, limit=limit + 1)
        where, copy = store.location, copy_json(store)
        note_copy(store, quiet=as_json)
    page, more, setting = found[:limit], len(found) > limit, db_setting(db)
    if as_json:
        print_json({"actions": [action_json(one, setting) for one in page], "more": more, "copy": copy})
        return
    if not page:
        what = "nothing in doubt" if doubt else f"no {' or '.join(state)} actions" if state else "no open actions"
        say_folded(f"{what} in {clean(where)}" + (f" under {clean(key)}" if key is not None else ""))
        return
    _print(page, setting)
    if more:
        note(f"there are more: --limit {min(1000, 10 * limit)}")


def _print(page: list[Waiting], setting: Setting) -> None:
    """Print the actions, and where to read on."""
    from agent_run_ledger.cli.effects_words import SHORT_DIGITS, age_words, evidence_words, next_words, state_words
    from agent_run_ledger.cli.next_steps import next_command
    from agent_run_ledger.cli.output import note, show_rows

    names = ("AGE", "ACTION", "KEY", "STATE", "TARGET", "CLASS", "GEN", "EVIDENCE", "NEXT")
    rows = [
        (
            age_words(one),
            one.action.action_id.hex()[:SHORT_DIGITS],
            one.action.action_key,
            state_words(one),
            one.action.terms.audience,
            str(one.action.terms.target_class),
            "-" if one.action.generation is None else str(one.action.generation),
            "; ".join(evidence_words(one.action)) or "none",
            next_words(one),
        )
        for one in page
    ]
    show_rows(names, rows, right=("GEN",))
    note(f"the whole story of one: {next_command(setting, 'effects', 'show', page[0].action.action_id.hex())}")
