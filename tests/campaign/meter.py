"""The ground truth beside the ledger: an append-only file with a line for each body that began, returned or raised."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FILE_NAME = "meter.log"
_WHOLE = "."


class Event(StrEnum):
    """What a line says of a body."""

    BEGAN = "began"
    RETURNED = "returned"
    RAISED = "raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: in which life and process, of which run and step, which call, what happened in which try."""

    life: int
    pid: int
    run: str
    name: str
    key: str
    event: Event
    tries: int


class Meter:
    """Each line is one write(2) with O_APPEND: lines of threads and processes never mix, and outlive their process."""

    def __init__(self, folder: Path, life: int) -> None:
        self._path = folder / FILE_NAME
        self._life = life

    def write(self, run: str, name: str, key: str, event: Event, tries: int) -> None:
        """Append one line."""
        append(self._path, self._life, os.getpid(), run, name, key, event, tries)


def append(path: Path, *fields: object) -> None:
    """Append a line of these fields, none of which holds a tab or a line break, in one write."""
    line = "\t".join(("", *map(str, fields), _WHOLE))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"\n{line}\n".encode())
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[list[str]]:
    """Return the fields of each whole line; none where there is no file.

    At the border of two pages a reader can see a line half written, and a kill can leave it so: then whatever the line
    was to announce did not happen, and the next line begins with a line break of its own.
    """
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [fields[1:-1] for line in lines if len(fields := line.split("\t")) > 1 and fields[-1] == _WHOLE]


def read_meter(folder: Path, *, life: int) -> list[Line]:
    """Return the lines of one life, in order."""
    found: list[Line] = []
    for number, pid, run, name, key, event, tries in read_lines(folder / FILE_NAME):
        if int(number) == life:
            found.append(
                Line(life=life, pid=int(pid), run=run, name=name, key=key, event=Event(event), tries=int(tries))
            )
    return found
