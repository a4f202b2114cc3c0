"""What every command says about a store that is a copy, or whose ledger moved."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_run_ledger.cli.output import note
from agent_run_ledger.cli.words import clean, iso, leaves_words

if TYPE_CHECKING:
    from agent_run_ledger.store import AnyStore, Copied


def copied_words(copied: Copied) -> str:
    """Return when a copy was made, and of how much."""
    return f"made {iso(copied.at_ms)} of a log of {leaves_words(copied.size)}"


def copy_json(store: AnyStore) -> dict[str, object] | None:
    """Return the documented JSON of what a copy was made of; None for a store that is none."""
    copied = store.copied
    return None if copied is None else {"copied_at": iso(copied.at_ms), "copied_size": copied.size}


def moved_words(store: AnyStore) -> str:
    """Return where the ledger of a store went or goes, empty for one that is live."""
    from agent_run_ledger.store import Standing

    move = store.move
    if move.standing is Standing.LIVE:
        return ""
    peer = clean(move.peer)
    return (
        f"is retired, its ledger lives at {peer}" if move.standing is Standing.RETIRED else f"is being moved to {peer}"
    )


def move_json(store: AnyStore) -> dict[str, object] | None:
    """Return the documented JSON of where a store's ledger went or goes; None for one that is live."""
    from agent_run_ledger.store import Standing

    move = store.move
    if move.standing is Standing.LIVE:
        return None
    return {"standing": move.standing.name.lower(), "target": move.peer}


def note_copy(store: AnyStore, *, quiet: bool) -> None:
    """Say on stderr that a store is a copy, or that its ledger moved, where nobody asked for JSON."""
    if not quiet and (moved := moved_words(store)):
        note(f"note: {clean(store.location)} {moved}")
    if store.copied is not None and not quiet:
        note(f"note: {clean(store.location)} is a copy, {copied_words(store.copied)}")


@contextmanager
def log_on_stderr() -> Generator[None, None, None]:
    """Show the warnings that the library logs inside the block as warnings of this program."""
    import logging

    class _Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(f"warning: {clean(record.getMessage())}")

    log, notes = logging.getLogger("agent_run_ledger"), _Notes(logging.WARNING)
    log.addHandler(notes)
    try:
        yield
    finally:
        log.removeHandler(notes)
