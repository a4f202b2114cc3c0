"""`arl runs list`: the runs of a store, newest first, a page at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.kernel.states import RunState

if TYPE_CHECKING:
    from rich.text import Text

    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.account import Account
    from agent_run_ledger.ledger.views import RunSummary

PAGE = 20
State = Annotated[RunState | None, typer.Option("--state", help="Only runs in this state.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")]
Usage = Annotated[bool, typer.Option("--usage", help="Also what each run spent: tokens and cost.")]
Before = Annotated[str | None, typer.Option("--before", metavar="RUN", help="Only runs older than this one.")]


def list_command(
    state: State = None,
    limit: Limit = PAGE,
    before: Before = None,
    usage: Usage = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first, with the state they are recorded in and whether an attempt of them lives now."""
    from agent_run_ledger.cli.account_json import account_json
    from agent_run_ledger.cli.copies import copy_json, note_copy
    from agent_run_ledger.cli.output import print_json, say
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.cli.words import clean
    from agent_run_ledger.ledger.account import account_of_run
    from agent_run_ledger.ledger.views import list_runs

    with reading(db) as store:
        found = list_runs(store, state=state, before=before, limit=limit + 1)
        where, copy = store.location, copy_json(store)
        note_copy(store, quiet=as_json)
        page, more = found[:limit], len(found) > limit
        accounts = [account_of_run(store, one.row, by=None) for one in page] if usage else []
    if as_json:
        runs = [summary_json(summary) for summary in page]
        if usage:
            runs = [{**run, "usage": account_json(account)} for run, account in zip(runs, accounts, strict=True)]
        print_json({"runs": runs, "next_before": page[-1].row.run_id if more else None, "copy": copy})
        return
    if not page:
        what = f"{'' if state is None else f'{state} '}runs"
        say(f"no {what} in {clean(where)}" if before is None else f"no {what} older than {clean(before)}")
        return
    _print_table(page, accounts)
    if more:
        _point_on(db_setting(db), page[-1].row.run_id, state=state, limit=limit, usage=usage)


def summary_json(summary: RunSummary) -> dict[str, object]:
    """Return the documented JSON of one run at a glance."""
    from agent_run_ledger.cli.words import iso

    row = summary.row
    return {
        "run_id": row.run_id,
        "run_uid": row.run_uid.hex(),
        "state": str(row.state),
        "reason": row.reason,
        "live_attempt": summary.live,
        "attempt": row.attempt,
        "generation": row.generation,
        "steps_recorded": summary.steps_recorded,
        "steps_total": summary.steps_total,
        "kind": None if summary.dynamic is None else "dynamic" if summary.dynamic else "pipeline",
        "parent": summary.parent,
        "children": summary.children,
        "forked_from": summary.forked_from,
        "erased": summary.erased,
        "holder": {"pid": summary.holder.pid, "host": summary.holder.host},
        "created_at": iso(row.created_at_ms),
        "updated_at": iso(row.updated_at_ms),
    }


def state_words(state: RunState, live: bool | None, *, taken_over: bool = False) -> str:
    """Return the state as people should read it: a run that nobody works on is not just "running"."""
    if state is RunState.RUNNING:
        if taken_over and live is not False:
            return "running (taken over)"
        return {True: "running", False: "running (no live attempt)", None: "running (live attempt unknown)"}[live]
    return f"{state} (a body still runs)" if live else str(state)


STATE_STYLES = {
    RunState.RUNNING: "cyan",
    RunState.COMPLETED: "green",
    RunState.FAILED: "red",
    RunState.QUARANTINED: "bold red",
    RunState.CANCELLED: "yellow",
    RunState.SUSPENDED: "yellow",
}


def _print_table(page: list[RunSummary], accounts: Sequence[Account]) -> None:
    """Print the page; with accounts, one for each run, what it spent too."""
    from agent_run_ledger.cli.account_words import spent_cells
    from agent_run_ledger.cli.output import fits, new_table, show, text, without_last_column
    from agent_run_ledger.cli.words import ago_words, first_line

    forks = any(summary.forked_from is not None for summary in page)
    kinds = any(summary.dynamic or summary.children for summary in page)
    more, spent = ("FORKED FROM",) if forks else (), ("TOKENS", "COST") if accounts else ()
    kind = ("KIND",) if kinds else ()
    table = new_table(
        "RUN", *kind, "STATE", "ATTEMPT", "STEPS", *spent, "UPDATED", *more,
        right=("ATTEMPT", "STEPS", "TOKENS", "COST"),
    )  # fmt: skip
    now_ms = time.time_ns() // 1_000_000
    for at, summary in enumerate(page):
        row = summary.row
        state = text(state_words(row.state, summary.live), STATE_STYLES[row.state])
        if summary.erased:
            state.append(" · erased", "dim")
        if row.reason:
            state.append_text(text(f" · {first_line(row.reason)}", "dim"))
        total = "?" if summary.steps_total is None else str(summary.steps_total)
        steps = text(summary.steps_recorded if summary.dynamic else f"{summary.steps_recorded}/{total}")
        cells = [text(row.run_id), *([_kind(summary)] if kinds else []), state, text(row.attempt), steps]
        cells += map(text, spent_cells(accounts[at].total.spent) if accounts else ())
        cells.append(text(ago_words(row.updated_at_ms, now_ms)))
        table.add_row(*cells, *([text(summary.forked_from or "")] if forks else []))
    # Beside what runs spent there may be no room for where they come from; `runs show` and --json say it too.
    show(without_last_column(table) if forks and accounts and not fits(table) else table)


def _kind(summary: RunSummary) -> Text:
    """Return of which kind a run is, and how many runs were started within it."""
    from agent_run_ledger.cli.output import text
    from agent_run_ledger.cli.words import counted

    kind = "?" if summary.dynamic is None else "dynamic" if summary.dynamic else "pipeline"
    return text(f"{kind}, {counted(summary.children, 'run')} within" if summary.children else kind)


def _point_on(store: Setting, run_id: str, *, state: RunState | None, limit: int, usage: bool) -> None:
    from agent_run_ledger.cli.next_steps import next_command, shell_word
    from agent_run_ledger.cli.output import note

    same = [*([] if state is None else ["--state", str(state)]), *([] if limit == PAGE else ["--limit", str(limit)])]
    same += ["--usage"] if usage else []
    # One word, so that a run id may begin with "-".
    before = f"--before={shell_word(run_id)}" if run_id.startswith("-") else f"--before {shell_word(run_id)}"
    note(f"more: {next_command(store, 'runs', 'list', *same, before)}")
