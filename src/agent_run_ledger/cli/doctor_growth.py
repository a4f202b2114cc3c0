"""What `arl doctor` says about the growth of a store: what is in it, how fast more comes, and what could go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agent_run_ledger.cli.words import clean, counted, iso, leaves_words, size_words
from agent_run_ledger.ledger.growth import DAY_MS, growth_of
from agent_run_ledger.ports import Reader

if TYPE_CHECKING:
    from agent_run_ledger.cli.doctor_checks import Findings
    from agent_run_ledger.store import StoreStats, TableSize

MUCH_FREE = 0.25
MUCH_FREE_BYTES = 16 * 1024 * 1024
OLD_DAYS = 90
MOST_TABLES = 20
_NOUNS = frozenset({"result", "start", "error", "end", "decision"})


def look_at_growth(found: Findings, stats: StoreStats, reader: Reader, now_ms: int) -> None:
    """Note kinds of records, states of runs, free pages, how the log grew until `now_ms`, and what may be pruned."""
    found.numbers |= {"records_by_kind": stats.records_by_kind, "runs_by_state": stats.runs_by_state}
    found.add("ok", "records", _kinds(stats.records_by_kind) or "none yet")
    found.add("ok", "runs", _listed(stats.runs_by_state) or "none yet")
    _look_at_free_pages(found, stats)
    _look_at_log(found, stats, reader, now_ms)
    _look_at_oldest(found, stats, now_ms)


def look_at_sizes(found: Findings, sizes: Sequence[TableSize]) -> None:
    """Note what the largest tables and indexes take."""
    found.numbers["bytes_by_table"] = {one.name: one.page_bytes for one in sizes}
    found.numbers["unused_by_table"] = {one.name: one.unused_bytes for one in sizes}
    words = ", ".join(f"{clean(one.name)} {size_words(one.page_bytes)}" for one in sizes[:MOST_TABLES])
    found.add("ok", "sizes", words)


def _look_at_free_pages(found: Findings, stats: StoreStats) -> None:
    free_bytes = stats.free_pages * stats.page_bytes
    much = free_bytes >= MUCH_FREE_BYTES and stats.free_pages >= MUCH_FREE * stats.pages
    words = f"{stats.free_pages:,} of {stats.pages:,} of {size_words(stats.page_bytes)} each"
    if much:
        found.add("note", "free pages", words, "new records fill them first; `arl prune --compact` gives them back")
    else:
        found.add("ok", "free pages", words)


def _look_at_log(found: Findings, stats: StoreStats, reader: Reader, now_ms: int) -> None:
    total = stats.database_bytes + stats.wal_bytes
    growth = growth_of(reader, now_ms)
    per_leaf = total / stats.leaves if stats.leaves else 0.0
    ahead = None if growth.next_30_days is None else round(growth.next_30_days * per_leaf)
    found.numbers |= {
        "leaves_last_day": growth.last_day,
        "leaves_last_7_days": growth.last_7_days,
        "leaves_last_30_days": growth.last_30_days,
        "bytes_per_leaf": round(per_leaf),
        "bytes_next_30_days": ahead,
    }
    found.add(
        "ok",
        "log",
        f"{leaves_words(growth.last_day)} in the last day, {growth.last_7_days:,} in 7 days, "
        f"{growth.last_30_days:,} in 30 days",
    )
    if stats.records:
        per_run = size_words(round(total / stats.runs)) if stats.runs else "?"
        sizes = f"{size_words(round(total / stats.records))} per record, {per_run} per run so far"
        going_on = (
            "too young to say for 30 days" if ahead is None else f"about {size_words(ahead)} in 30 days like this"
        )
        found.add("ok", "growth", f"{sizes}; {going_on}")


def _look_at_oldest(found: Findings, stats: StoreStats, now_ms: int) -> None:
    oldest = stats.oldest_kept
    found.numbers["oldest_prunable_ms"] = None if oldest is None else oldest.completed_at_ms
    if oldest is None:
        return
    words = f"{clean(oldest.run_id)} completed {iso(oldest.completed_at_ms)}; its records are kept"
    if now_ms - oldest.completed_at_ms < OLD_DAYS * DAY_MS:
        found.add("ok", "oldest run", words)
    else:
        before = iso(now_ms - OLD_DAYS * DAY_MS)[:10]
        found.add(
            "note", "oldest run", words, f"not needed? `arl prune --completed-before {before}` erases such records"
        )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _kinds(counts: Mapping[str, int]) -> str:
    """Return numbers of kinds of records: nouns take a plural, "abandoned", "rescued" and "other" do not."""
    return ", ".join(counted(count, name) if name in _NOUNS else f"{count:,} {name}" for name, count in counts.items())
