"""`arl backup`: writes a marked copy of the store into a new file, and checks it before it gets its name."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import print_json, progress, say
from agent_run_ledger.cli.words import clean, counted, duration_words, iso, leaves_words, size_words
from agent_run_ledger.errors import Tampered

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.verify import Report
    from agent_run_ledger.ports import Reader
    from agent_run_ledger.store import BackupReport, SqliteStore

Destination = Annotated[str, typer.Argument(metavar="DESTINATION", help="The new file; it must not exist.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not read the copy again, and keep it whatever it is.")]


_SERVER = "pg_basebackup or pg_dump; a copy that is restored does not know that it is one, only a witness does"


def backup(destination: Destination, no_verify: NoVerify = False, db: Db = None, as_json: Json = False) -> None:
    """Copy the store as it is at one moment while runs go on; the copy has no authority and says that it is one."""
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.store import only_in_file

    began_s = time.monotonic()
    with reading(db) as store:
        file = only_in_file(store, "a backup of it is the server's to make", hint=_SERVER)
        made, verified = _make(file, destination, verify=not no_verify, quiet=as_json)
        where = store.location
    took_ms = round((time.monotonic() - began_s) * 1000)
    if as_json:
        print_json(_json(made, where, took_ms, verified))
    else:
        _print(made, took_ms, verified, db_setting(db))


def _make(store: SqliteStore, destination: str, *, verify: bool, quiet: bool) -> tuple[BackupReport, Report | None]:
    """Make the backup with a bar for its pages, then one for the leaves that are checked."""
    from agent_run_ledger.ledger.verify import verify_log

    reports: list[Report] = []
    with ExitStack() as bar:
        show_pages = bar.enter_context(progress("pages", quiet=quiet))

        def check(reader: Reader) -> None:
            bar.close()
            with progress("leaves", quiet=quiet) as show_leaves:
                report = verify_log(reader, log_id=store.log_id, is_copy=True, progress=show_leaves)
            if not report.ok:
                first = report.problems[0]
                place = "" if first.leaf_index is None else f"leaf {first.leaf_index}: "
                raise Tampered(
                    f"the copy contradicts its log in {counted(report.problem_count, 'place')} and was not kept; "
                    f"the first: {place}{first.text}",
                    code="problems",
                    hint="`arl verify` says whether the store does too; --no-verify copies it as it is",
                )
            reports.append(report)

        made = store.backup(destination, progress=show_pages, check=check if verify else None)
    return made, reports[0] if reports else None


def _json(made: BackupReport, where: str, took_ms: int, verified: Report | None) -> dict[str, object]:
    return {
        "db": where,
        "destination": made.destination,
        "log_id": made.log_id.hex(),
        "leaves": made.size,
        "root_hex": made.root.hex(),
        "made_at": iso(made.made_at_ms),
        "bytes": made.file_bytes,
        "duration_ms": took_ms,
        "verified": verified is not None,
        "records": None if verified is None else verified.records,
        "runs": None if verified is None else verified.runs,
    }


def _print(made: BackupReport, took_ms: int, verified: Report | None, setting: Setting) -> None:
    from agent_run_ledger.cli.next_steps import next_command

    say(f"copy     {clean(made.destination)}")
    say(f"log id   {made.log_id.hex()}")
    say(f"leaves   {made.size:,}")
    say(f"root     {made.root.hex()}")
    say(f"size     {size_words(made.file_bytes)} in {duration_words(took_ms)}")
    if verified is None:
        say("checked  no (--no-verify)")
    else:
        rows = f"{counted(verified.records, 'record')}, {counted(verified.runs, 'run')}"
        say(f"checked  ok: {leaves_words(verified.leaves)} with that of the copy, {rows}")
    say("")
    say("Note this outside both; it holds for the store and for the copy:")
    say(next_command(setting, "verify", "--since", f"{made.size}:{made.root.hex()}"))
