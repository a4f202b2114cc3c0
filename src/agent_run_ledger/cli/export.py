"""`arl export`: the log as JSON Lines of CloudEvents, to stdout or into a file that appears only when it is whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from agent_run_ledger.cli.options import Db, Json
from agent_run_ledger.cli.output import note, progress, to_json
from agent_run_ledger.cli.words import clean, leaves_words

Run = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only the leaves of this run.")]
Fingerprints = Annotated[
    bool, typer.Option("--fingerprints", help="Also digests of calls, arguments, values and code.")
]
Payloads = Annotated[bool, typer.Option("--payloads", help="Also recorded values.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Into this file [default: stdout].")
]
_EVERY = 256


def export(
    run: Run = None,
    fingerprints: Fingerprints = False,
    payloads: Payloads = False,
    output: Output = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Write the log as JSON Lines: one CloudEvent per leaf, last the checkpoint (size and root). Always JSON."""
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.export import ExportOptions, export_events
    from agent_run_ledger.ledger.views import require_run

    with reading(db) as store:
        reader = store.reader()
        row = None if run is None else require_run(reader, run)
        options = ExportOptions(fingerprints=fingerprints, payloads=payloads)
        total = reader.head().size
        lines = 0
        with _sink(output) as sink, progress("leaves", quiet=as_json or output is None) as show:
            for event in export_events(reader, store.log_id, run=row, options=options):
                sink.write(to_json(event) + "\n")
                lines += 1
                if lines % _EVERY == 0:
                    show(lines, total)
    if output is not None and not as_json:
        note(f"{leaves_words(lines - 1)} and the checkpoint in {clean(output)}")


@contextmanager
def _sink(output: Path | None) -> Generator[TextIO, None, None]:
    """Give stdout, or a new private file beside `output` that takes its name once everything is in it."""
    if output is None:
        yield sys.stdout
        return
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        # Records may hold what only the owner of the store may read: so may the export.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            yield file
        os.replace(partial, output)
    finally:
        partial.unlink(missing_ok=True)
