"""What an agent program really did, beside the ledger: an append-only file that outlives every kill."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.meter import append, read_lines

TRACE_FILE = "trace.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line. `at`: its place in the file, over all lives. `path`: where in the program.

    `what`: the agent's side writes call, entered, item, returned, raised, refused, closed, left and end; a body writes
    began, ended and failed, with its name and arguments. `text`: the value, the error or the code, as text.
    """

    at: int
    life: int
    path: str
    what: str
    text: str = ""
    body: str = ""


@dataclass(slots=True)
class Trace:
    """Write one life's lines. `kill_at_line`: after so many lines the process kills itself."""

    folder: Path
    life: int
    kill_at_line: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lines: int = 0
    _serials: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def write(self, path: str, what: str, text: str = "", body: str = "") -> None:
        """Append one line, and die if it is this one's turn."""
        with self._lock:
            append(self.folder / TRACE_FILE, self.life, path, what, _line(text), _line(body))
            self._lines += 1
            if self._lines == self.kill_at_line:
                os.kill(os.getpid(), signal.SIGKILL)

    def serial(self) -> str:
        """A word that no other body of any life has."""
        return f"{self.life}.{next(self._serials)}"


def read_trace(folder: Path) -> list[Event]:
    """Return every whole line of all lives."""
    return [
        Event(at=at, life=int(life), path=path, what=what, text=text, body=body)
        for at, (life, path, what, text, body) in enumerate(read_lines(folder / TRACE_FILE))
    ]


def bodies_begun(events: list[Event]) -> Counter[str]:
    """How often a body began, by its name and arguments."""
    return Counter(event.body for event in events if event.what == "began")


def by_path(events: list[Event], life: int) -> Mapping[str, list[Event]]:
    """One life's events, in order, by their place in the program."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if event.life == life:
            found.setdefault(event.path, []).append(event)
    return found


def _line(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")
