"""The right to be a run's live attempt, and where such rights are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RunLock(Protocol):
    """The right to be a run's live attempt. It saves waste; the generation on every write is what is safe.

    One that is no longer referenced must be given back as if it had been released.
    """

    def release(self) -> None:
        """Give the right back; a second call does nothing."""
        ...


class RunLocks(Protocol):
    """Where the rights to be a run's live attempt are kept: a file beside the store, or a session at a server."""

    def lock_run(self, run_id: str) -> RunLock | None:
        """See Store.lock_run."""
        ...

    def is_run_live(self, run_id: str) -> bool:
        """See Store.is_run_live."""
        ...

    def live_runs(self, run_ids: Sequence[str]) -> frozenset[str]:
        """See Store.live_runs."""
        ...

    def close(self) -> None:
        """Give up every lock. A second call does nothing."""
        ...
