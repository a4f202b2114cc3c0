"""Notes beside the ledger what really ran, for people and tests to count, and dies where it is told to."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

LOG = Path("calls.log")
PAID = ("ask", "answer")
_lock = threading.Lock()
_here: Counter[str] = Counter()


def note(name: str, *, once: bool = False) -> None:
    """Append one line: `name` ran in this process. `once`: only the first of several in a row.

    AGENT_DIES="ask 3" kills this process, as `kill -9` would, when "ask" is noted for the third time in it.
    AGENT_PACE_S makes every note take so many seconds, so that there is time to kill it by hand.
    """
    time.sleep(float(os.environ.get("AGENT_PACE_S") or 0))
    with _lock:
        _here[name] += 1
        if not once or _here[name] == 1:
            with LOG.open("a") as log:
                log.write(f"{os.getpid()} {name}\n")
        if os.environ.get("AGENT_DIES") == f"{name} {_here[name]}":
            os.kill(os.getpid(), signal.SIGKILL)


def noted() -> str:
    """Say how often a model was asked, in this process and in all."""
    lines = [line.split() for line in LOG.read_text().splitlines()] if LOG.exists() else []
    asked = [pid for pid, *name in lines if " ".join(name) in PAID]
    here = asked.count(str(os.getpid()))
    return f"[the model was asked {here} times in this process, {len(asked)} times in all]"
