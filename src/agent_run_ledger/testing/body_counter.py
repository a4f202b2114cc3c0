"""Counts executed bodies in a file that keeps one line per body, whatever happens to the process."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

from agent_run_ledger import codecs
from agent_run_ledger.errors import LedgerError, Tampered

LIFE_VARIABLE = "ARL_LIFE"
"""Which life of a scenario this process is, counted from 1; the harness sets it."""

FILE_NAME = "bodies.log"
_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One executed body: its name, 16 hexadecimal characters for its arguments, and the life in which it ran."""

    name: str
    arguments: str
    life: int


class BodyCounter:
    """Keeps lines in an append-only file.

    Guarantees: a line is one write(2) with O_APPEND, so lines of several threads and processes never mix, and a line
    that was written survives the death of its process (not a power cut: nothing is synced). Call `ran` as the first
    thing of a body: then the file says how often each body *began*, which is what costs.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def ran(self, name: str, *arguments: object) -> None:
        """Write down that the body `name` runs with these arguments."""
        line = f"{os.environ.get(LIFE_VARIABLE, '1')}\t{_digest(arguments)}\t{name.encode('unicode_escape').decode()}\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[Ran]:
        """Return everything written so far, in order; empty without a file. A line that is none raises Tampered."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return [_parse(line, self.path) for line in file]
        except FileNotFoundError:
            return []

    def count(self, *, life: int | None = None) -> Counter[str]:
        """Return how often each body ran, in one life or in all of them."""
        return Counter(line.name for line in self.lines() if life is None or line.life == life)


def _digest(arguments: tuple[object, ...]) -> str:
    try:
        return codecs.value_digest(arguments).hex()[:16]
    except LedgerError:  # no digest, NaN for example: it ran all the same
        return "-" * 16


def _parse(line: str, path: str) -> Ran:
    fields = line.rstrip("\n").split("\t", _FIELDS - 1)
    if len(fields) != _FIELDS or not fields[0].isdecimal():
        raise Tampered(f"{path} holds a line that no BodyCounter wrote: {line!r}", code="bad_body_counter")
    name = fields[2].encode("ascii").decode("unicode_escape")
    return Ran(name=name, arguments=fields[1], life=int(fields[0]))
