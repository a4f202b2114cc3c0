"""Moves a ledger between stores, and lets nothing become live that was not verified."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike

from agent_run_ledger.errors import Tampered
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.ports import Reader
from agent_run_ledger.store.moving import WAIT_S, Abandoned, Moved, abandon, move

__all__ = ["Abandoned", "Moved", "abandon_migration", "migrate"]

abandon_migration = abandon


def migrate(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    progress: Callable[[str, int, int], None] | None = None,
    wait_s: float = WAIT_S,
) -> Moved:
    """Move the whole ledger of a store, named by path or URL, to a place where nothing is; go on with it if it began.

    It stays the same ledger: id, leaves, salts, records and their ids, runs, effects in whatever state they are. Before
    the source retires the target is compared with it row by row and verified as `arl verify` does. `progress` is told
    (what is counted: "rows", "tables compared" or "leaves", how many are done, of how many). Memory: a page of rows of
    at most 4 MiB beyond its last row, and what verify_log needs.

    Not moved: trust file and keys, which lie beside a store and not in it. Errors: see store.moving.move; and
    Tampered("problems") where the target contradicts its log, as then the source did.
    """

    def check(reader: Reader) -> None:
        def tell(done: int, total: int) -> None:
            if progress is not None:
                progress("leaves", done, total)

        report = verify_log(reader, is_copy=False, progress=tell)
        if not report.ok:
            first = report.problems[0]
            place = "" if first.leaf_index is None else f"leaf {first.leaf_index}: "
            raise Tampered(
                f"the ledger contradicts its log in {report.problem_count} place(s) and was not moved; the first: "
                f"{place}{first.text}",
                code="problems",
                hint="give up with --abandon; `arl verify` says whether the source does too",
            )

    return move(source, target, check=check, progress=progress, wait_s=wait_s)
