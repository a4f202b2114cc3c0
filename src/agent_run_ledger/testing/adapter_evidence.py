"""What the adapter kit's fake models, tools and gates saw, one line each in a file outside of the ledger."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from agent_run_ledger.testing.body_counter import LIFE_VARIABLE

FILE_NAME = "evidence.jsonl"


class What(StrEnum):
    """What was seen: a model asked, a tool's body begun or ended, a gate asked, a chunk sent or received,
    or the network reached for."""

    MODEL = "model"
    TOOL = "tool"
    TOOL_DONE = "tool_done"
    GATE = "gate"
    SENT = "sent"
    GOT = "got"
    NETWORK = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line. `life`: which process it was, from 1 on. `name`: of the tool, or a chunk's text."""

    what: What
    life: int
    name: str = ""
    call_id: str = ""
    text: str = ""
    told: Mapping[str, str] = field(default_factory=dict[str, str])


class Evidence:
    """Lines in an append-only file. A line is one write(2) with O_APPEND: it survives the death of its process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def note(self, what: What, **more: Any) -> None:
        """Write down what was seen in this life."""
        line = orjson.dumps({"what": what, "life": int(os.environ.get(LIFE_VARIABLE, "1")), **more}) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def lines(self, what: What | None = None, *, life: int | None = None) -> list[Seen]:
        """Return what was seen so far, in order; of one kind and one life where they are given."""
        if not self.path.exists():
            return []
        found = [_seen(line) for line in self.path.read_bytes().splitlines()]
        return [one for one in found if what in (None, one.what) and life in (None, one.life)]


def _seen(line: bytes) -> Seen:
    found: dict[str, Any] = orjson.loads(line)
    found["what"] = What(found["what"])
    return Seen(**found)
