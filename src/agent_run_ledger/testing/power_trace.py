"""What a life did to the files of its ledger, act by act, and what it was promised in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ActKind(StrEnum):
    """What can happen to a file or to the directory that names it."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"
    SYNC_DIRECTORY = "sync the directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskAct:
    """One act that the operating system has confirmed. `size` in bytes is what a truncation left."""

    kind: ActKind
    name: str = ""
    offset: int = 0
    content: bytes = b""
    size: int = 0

    def __str__(self) -> str:
        """Return the act in words."""
        match self.kind:
            case ActKind.WRITE:
                return f"write {len(self.content)} bytes at {self.offset} of {self.name}"
            case ActKind.TRUNCATE:
                return f"truncate {self.name} to {self.size} bytes"
            case ActKind.SYNC_DIRECTORY:
                return str(self.kind)
            case _:
                return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A transaction whose caller was told that it is committed, after so many acts of the disk."""

    after_acts: int
    op_id: bytes
    synced: bool


@dataclass(slots=True, kw_only=True)
class PowerTrace:
    """A recorded life. `before` is what lay in the directory when it began, by name: all of it durable.

    `opened` has, per log id, the number of acts after which a store was opened for writing for the first time: from
    then on it exists.
    """

    before: Mapping[str, bytes]
    acts: list[DiskAct] = field(default_factory=list[DiskAct])
    acknowledged: list[Acknowledged] = field(default_factory=list[Acknowledged])
    opened: dict[bytes, int] = field(default_factory=dict[bytes, int])
