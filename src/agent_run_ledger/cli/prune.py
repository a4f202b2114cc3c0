"""`arl prune`: old runs that are over are erased as a whole, so that a store does not grow for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Actor, Db, Json, Yes
from agent_run_ledger.kernel.states import RunState

if TYPE_CHECKING:
    from agent_run_ledger.runs.prune import Pruned
    from agent_run_ledger.store import SqliteStore
    from agent_run_ledger.store.sqlite_stats import StoreStats

Before = Annotated[
    str,
    typer.Option("--completed-before", metavar="WHEN", help="Last changed before: 2026-01-31, 12h, 30d or 8w."),
]
KeepLast = Annotated[int, typer.Option("--keep-last", min=0, help="So many of the newest runs stay anyway.")]
State = Annotated[
    RunState, typer.Option("--state", metavar="STATE", help="Runs in this state: completed, cancelled or failed.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be erased.")]
Compact = Annotated[bool, typer.Option("--compact", help="Then give free pages back: needs room for a second copy.")]
WhyErased = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the log. Not for --dry-run.")]


def prune(
    completed_before: Before,
    keep_last: KeepLast = 0,
    state: State = RunState.COMPLETED,
    dry_run: DryRun = False,
    compact: Compact = False,
    reason: WhyErased = "",
    actor: Actor = None,
    yes: Yes = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Erase runs that are over and old: values, inputs, errors and digests. Their story and every proof stay.

    Interrupted, the same command goes on where it was.
    """
    from agent_run_ledger.cli.confirm import confirm
    from agent_run_ledger.cli.erase import refuse_unscrubbed, scrub
    from agent_run_ledger.cli.moments import parse_moment
    from agent_run_ledger.cli.output import progress
    from agent_run_ledger.cli.settings import actor_setting, db_setting
    from agent_run_ledger.cli.stores import deciding
    from agent_run_ledger.cli.words import counted, iso
    from agent_run_ledger.runs.erase import Act, check_act
    from agent_run_ledger.runs.prune import look_at, old_runs
    from agent_run_ledger.runs.prune import prune as carry_out
    from agent_run_ledger.store import SqliteStore, refuse_server

    act = Act(event="prune", reason=reason, actor=actor_setting(actor).value)
    if compact:
        refuse_server(db_setting(db).value, "its free pages are the server's", hint="VACUUM FULL, by its owner")
    if not dry_run:
        check_act(act)
    with deciding(db) as context:
        store, before_ms = context.store, parse_moment(completed_before, context.clock.now_ms())
        row_ids = old_runs(store, before_ms=before_ms, state=state, keep_last=keep_last)
        if dry_run:
            _report(look_at(store, row_ids), before_ms, state, dry_run=True, as_json=as_json)
            return
        if row_ids:
            old = f"{state}, last changed before {iso(before_ms)}"
            confirm(f"Erase {counted(len(row_ids), 'run')} as a whole ({old})?\n{_FOR_EVER}", yes=yes)
        with progress("runs", quiet=as_json) as show:
            report = carry_out(context, row_ids, act, progress=show)
        scrubbed, sizes = scrub(store), None
        if isinstance(store, SqliteStore):
            sizes = _compacted(store, quiet=as_json) if compact else (store.stats(), store.stats())
        _report(report, before_ms, state, dry_run=False, as_json=as_json, sizes=sizes, scrubbed=scrubbed)
        refuse_unscrubbed(store, scrubbed=scrubbed)


_FOR_EVER = "This cannot be undone. Each is refused from then on; its story stays."


def _compacted(store: SqliteStore, *, quiet: bool) -> tuple[StoreStats, StoreStats]:
    from agent_run_ledger.cli.output import note
    from agent_run_ledger.cli.words import size_words

    before = store.stats()
    if not quiet:
        note(f"compacting: needs up to {size_words(2 * before.database_bytes)} of room for a while, and nobody writes")
    store.compact()
    return before, store.stats()


def _report(
    report: Pruned,
    before_ms: int,
    state: RunState,
    *,
    dry_run: bool,
    as_json: bool,
    sizes: tuple[StoreStats, StoreStats] | None = None,
    scrubbed: bool | None = None,
) -> None:
    from agent_run_ledger.cli.output import print_json

    if as_json:
        print_json(_report_json(report, before_ms, state, dry_run=dry_run, sizes=sizes, scrubbed=scrubbed))
    else:
        _print_report(report, dry_run=dry_run, sizes=sizes)


def _report_json(
    report: Pruned,
    before_ms: int,
    state: RunState,
    *,
    dry_run: bool,
    sizes: tuple[StoreStats, StoreStats] | None,
    scrubbed: bool | None,
) -> dict[str, object]:
    from agent_run_ledger.cli.words import iso

    return {
        "dry_run": dry_run,
        "before": iso(before_ms),
        "state": str(state),
        "runs": report.runs,
        "records": report.records,
        "payload_bytes": None if dry_run else report.payload_bytes,
        "run_ids": report.run_ids,
        "skipped_count": report.skipped_count,
        "skipped": [{"run_id": one.run_id, "why": one.why} for one in report.skipped],
        "database_bytes_before": None if sizes is None else sizes[0].database_bytes,
        "database_bytes": None if sizes is None else sizes[1].database_bytes,
        "free_bytes": None if sizes is None else sizes[1].free_pages * sizes[1].page_bytes,
        "scrubbed": scrubbed,
    }


def _print_report(report: Pruned, *, dry_run: bool, sizes: tuple[StoreStats, StoreStats] | None) -> None:
    from agent_run_ledger.cli.erase import KEPT, NOT_REACHED
    from agent_run_ledger.cli.output import say, show_named
    from agent_run_ledger.cli.words import counted, size_words

    what = "would erase" if dry_run else "erased"
    say(f"{what} {counted(report.records, 'record')} in {counted(report.runs, 'run')}")
    lines: list[tuple[str, str]] = []
    if dry_run:
        lines += [("run", run_id) for run_id in report.run_ids]
        if report.runs > len(report.run_ids):
            lines.append(("run", f"and {report.runs - len(report.run_ids):,} more"))
    lines += [("skipped", f"{one.run_id}: {one.why}") for one in report.skipped]
    if report.skipped_count > len(report.skipped):
        lines.append(("skipped", f"and {report.skipped_count - len(report.skipped):,} more"))
    if sizes is not None:
        lines.append(("payload", size_words(report.payload_bytes)))
        lines += _size_lines(*sizes)
        lines += [("kept", KEPT), ("not", NOT_REACHED)]
    show_named(lines)


def _size_lines(before: StoreStats, after: StoreStats) -> list[tuple[str, str]]:
    from agent_run_ledger.cli.words import size_words

    free = after.free_pages * after.page_bytes
    words = size_words(after.database_bytes)
    lines = [("file", f"{words}, of which {size_words(free)} are free and will be used again")]
    if before.database_bytes != after.database_bytes:
        lines.append(("", f"it had {size_words(before.database_bytes)}"))
    elif free:
        lines.append(("", "--compact gives free pages back; it writes the file anew and needs room for that"))
    return lines
