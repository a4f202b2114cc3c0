"""How often the store waits for its server: each batch of statements is one message and one wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from agent_run_ledger.store.postgres_wire import Batch


@contextmanager
def counted_trips() -> Iterator[list[int]]:
    """Count the round trips of this process's stores from here on, in the one number of the list."""
    count, send = [0], Batch.send

    def counted(self: Batch) -> None:
        count[0] += 1 if len(self) else 0
        send(self)

    with patch.object(Batch, "send", counted):
        yield count
