"""What the lab tells a process to do, and what that process reports: each one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from agent_run_ledger.errors import LedgerError


class Role(StrEnum):
    """What a process of the lab is there for."""

    SEED = "seed"
    """Make the database, propose the request, approve it."""
    CLAIM = "claim"
    """Claim it for this worker."""
    PREPARE = "prepare"
    """Claim it, and write down the intention to send it."""
    LOOK = "look"
    """Read where it stands."""
    COPY = "copy"
    """Copy a database file that nobody has open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One process: its role, the database, the worker's name, and what time it is, in ticks, for its whole life.

    Of a database at a server the name is without its password: a process finds the whole URL in its environment.

    `die_at` names the probe at which it kills itself; with `wait` it opens the database, says so, and waits for a
    line. `copy_to` is where a copy goes.
    """

    role: Role
    database: str
    worker: str
    tick: int
    die_at: str = ""
    wait: bool = False
    copy_to: str = ""

    def line(self) -> str:
        """Return the order as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(line: str) -> Order:
        """Return the order that `line` gave."""
        parts: dict[str, Any] = json.loads(line)
        parts["role"] = Role(parts["role"])
        return Order(**parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a process did or found. `accepted`: whether its claim was, None for one that claimed nothing or died.

    `code` says why a claim was refused. `journal_mode` and `synchronous` are what SQLite said on the connection that
    it writes through ("" and 0 for a process that opened none); at a server "server", and its synchronous_commit.
    `not_protected`: what the ledger's status warns of.
    """

    accepted: bool | None = None
    code: str = ""
    state: str = ""
    status: str = ""
    journal_mode: str = ""
    synchronous: int | str = 0
    not_protected: tuple[str, ...] = ()


class Incomplete(LedgerError):
    """The lab could not be carried through: what it observed says nothing. What it wrote stays."""

    code = "lab_incomplete"
    exit_code = 2
