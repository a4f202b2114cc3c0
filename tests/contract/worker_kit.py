"""A worker that works in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agent_run_ledger.worker import Worker


def working(worker: Worker, until: Callable[[], bool]) -> None:
    """Let a worker work until that is so, and stop it."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not until():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        worker.stop()
        thread.join(30)
    assert not thread.is_alive()
