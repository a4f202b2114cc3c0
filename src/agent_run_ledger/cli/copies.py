"""What every command says about a store that is a copy."""

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


def note_copy(store: AnyStore, *, quiet: bool) -> None:
    """Say on stderr that a store is a copy, where it is one and nobody asked for JSON."""
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
