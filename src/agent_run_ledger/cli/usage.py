"""`arl usage`: what one run, or all runs of the store, spent, restored and cannot account for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.account import By, Entry

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.account import Account
    from agent_run_ledger.store import AnyStore

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run, by step [default: the whole store].")]
Rows = Annotated[By | None, typer.Option("--by", help="Rows by step, model, run, or day (UTC).")]
Children = Annotated[bool, typer.Option("--children", help="With all runs that were started within the run.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only what ended since: 2026-11-30, 2026-11-30T08:00Z, 24h, 7d, 2w."),
]


def usage(
    run: Run = None,
    by: Rows = None,
    since: Since = None,
    children: Children = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show tokens and cost: spent, restored from records, and uncertain. What nobody said is "?" (in JSON null)."""
    from agent_run_ledger.cli.moments import parse_moment
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading

    since_ms = None if since is None else parse_moment(since, time.time_ns() // 1_000_000)
    if run is not None and since_ms is not None:
        raise Misuse("--since is about the whole store", code="usage", hint="give a run or --since")
    if run is None and children:
        raise Misuse("--children is about one run", code="usage", hint="give the run within which the others were")
    place = db_setting(db)
    with reading(db) as store:
        if run is None:
            _usage_of_store(store, place, by=by, since_ms=since_ms, as_json=as_json)
        else:
            _usage_of_run(store, place, run, by=by, children=children, as_json=as_json)


def _usage_of_run(store: AnyStore, place: Setting, run: str, *, by: By | None, children: bool, as_json: bool) -> None:
    from agent_run_ledger.cli.output import say
    from agent_run_ledger.cli.words import counted
    from agent_run_ledger.ledger.account import account_of_family, account_of_run
    from agent_run_ledger.ledger.views import require_run

    row = require_run(store.reader(), run)
    by = by or (By.RUN if children else By.STEP)
    account = (account_of_family if children else account_of_run)(store, row, by=by)
    _report(place, account, _in_order(account, by, one_run=True), run=run, by=by, since_ms=None, as_json=as_json)
    within = 0 if children or as_json else len(store.reader().children_of(row.row_id))
    if within:
        say(f"{counted(within, 'run')} within it, whose usage is their own: --children adds them.")


def _usage_of_store(store: AnyStore, place: Setting, *, by: By | None, since_ms: int | None, as_json: bool) -> None:
    from agent_run_ledger.cli.output import progress
    from agent_run_ledger.ledger.account import account_of_store

    with progress("runs", quiet=as_json) as show:
        account = account_of_store(store, by=by, since_ms=since_ms, progress=show)
    _report(place, account, _in_order(account, by, one_run=False), run=None, by=by, since_ms=since_ms, as_json=as_json)


def _report(
    place: Setting, account: Account, rows: list[tuple[str, Entry]], *, run: str | None, by: By | None,
    since_ms: int | None, as_json: bool,
) -> None:  # fmt: skip
    from agent_run_ledger.cli.account_json import account_json, rows_json
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.words import iso

    since = None if since_ms is None else iso(since_ms)
    if as_json:
        print_json({"run": run, "since": since, "by": by, **account_json(account), "rows": rows_json(rows)})
    else:
        _print(place, account, rows, by, "" if since is None else f" since {since}")


def _in_order(account: Account, by: By | None, *, one_run: bool) -> list[tuple[str, Entry]]:
    """Return the rows: days in their order, runs newest first, steps of a run as they came, else the dearest first."""
    rows = list(account.rows.items())
    if by is By.DAY:
        return sorted(rows)
    if by is By.RUN or (by is By.STEP and one_run):
        return rows
    return sorted(rows, key=lambda row: (row[1].spent.cost_usd or 0, row[1].spent.tokens or 0), reverse=True)


def _print(place: Setting, account: Account, rows: list[tuple[str, Entry]], by: By | None, since: str) -> None:
    from agent_run_ledger.cli.account_words import MAX_ROWS, notes_on, rows_table, totals_table
    from agent_run_ledger.cli.next_steps import with_store
    from agent_run_ledger.cli.output import say, show, text
    from agent_run_ledger.cli.words import counted

    total = account.total
    if not (total.spent.calls or total.restored.calls or total.uncertain.calls):
        say(f"No usage is recorded in {counted(account.runs, 'run')}{since}.")
    else:
        if by is not None and rows:
            show(rows_table(by, rows[:MAX_ROWS]))
            if len(rows) > MAX_ROWS:
                say(f"and {len(rows) - MAX_ROWS:,} more (all with --json)")
            say("")
        show(totals_table(total))
        say("")
    for line in notes_on(account, rows[:MAX_ROWS]):
        show(text(with_store(line, place), "dim"))
