"""Opens LangGraph's SQLite saver as its documentation does, and tells its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langgraph.checkpoint.sqlite import SqliteSaver
from protocol import Life


@contextmanager
def opened_saver(life: Life) -> Iterator[SqliteSaver]:
    """Yield the saver of this life with its tables made."""
    with SqliteSaver.from_conn_string(life.path("langgraph.sqlite")) as saver:
        saver.setup()

        def ask(question: str) -> object:
            return saver.conn.execute(question).fetchone()[0]

        life.uses(
            journal_mode=ask("PRAGMA journal_mode"),
            synchronous=ask("PRAGMA synchronous"),
            sqlite=ask("SELECT sqlite_version()"),
        )
        yield saver
