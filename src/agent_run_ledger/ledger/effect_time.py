"""By which clock the effects of a store are judged: the one that all its hosts share, else this machine's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent_run_ledger.effects.system_time import CheckedTime, SystemTime
from agent_run_ledger.kernel.effects.reading import Sample
from agent_run_ledger.ports import Store
from agent_run_ledger.ports.effects import TimeSource


class SharedTime:
    """See ports.effects.TimeSource: Unix time by the server's clock, beside the time since this machine's start.

    Hosts whose clocks differ by a moment would else take each other's marks for clocks that went back. A leap of the
    server's clock is noticed by a host whose own mark is the latest one.
    """

    def __init__(self, now_ms: Callable[[], int], machine: TimeSource) -> None:
        self._now_ms = now_ms
        self._machine = machine

    def sample(self) -> Sample:
        """See ports.effects.TimeSource.sample."""
        return replace(self._machine.sample(), wall_ms=self._now_ms())


def time_of(store: Store, given: TimeSource | None = None) -> CheckedTime:
    """Return the time source that was given, else the one that the store's hosts share, else this machine's."""
    if given is not None:
        return CheckedTime(given)
    shared: Callable[[], int] | None = getattr(store, "shared_now_ms", None)
    return CheckedTime(SystemTime() if shared is None else SharedTime(shared, SystemTime()))
