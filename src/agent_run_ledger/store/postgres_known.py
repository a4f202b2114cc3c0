"""What a process knows of a log at a server: which of its own leaves are durable, and which a crash may have taken."""

from __future__ import annotations

from collections.abc import Mapping

from agent_run_ledger.errors import Tampered
from agent_run_ledger.ports import Head
from agent_run_ledger.store.leaves import Leaf
from agent_run_ledger.store.postgres_wire import Answer, Batch


class Known:
    """Guarantees: a log that lost what was durable is not written to, and one that lost no more than that is.

    A leaf that was committed and synced is durable, and so is all that stands before it. What was committed without
    `sync`, by this process or by others, a crash of the server or a standby that takes over may take away: it is no
    evidence of anything. Used behind the lock of the writer only.
    """

    def __init__(self) -> None:
        self._durable: Leaf | None = None
        self._loose: Leaf | None = None
        self._proven = True
        self.losses = 0
        """How often own leaves were lost which were not synced."""

    def connected(self) -> None:
        """Note that the log is seen through a new connection: the server, or what it has, may be another one."""
        self._proven = False

    def committed(self, leaf: Leaf, *, sync: bool) -> None:
        """Note that a leaf was committed."""
        if sync:
            self._durable, self._loose = leaf, None
        else:
            self._loose = leaf

    def ask(self, batch: Batch, q: Mapping[str, str]) -> list[Answer]:
        """Ask, behind the lock, for what `check` looks at: nothing but on a new connection."""
        known = [] if self._proven else [leaf for leaf in (self._durable, self._loose) if leaf is not None]
        return [batch.add(q["select_events"], (leaf.index, leaf.index + 1, 1)) for leaf in known]

    def check(self, head: Head, answers: list[Answer], location: str) -> None:
        """Tampered("store_replaced") where a durable leaf is not there, or another one stands in its place."""
        durable, loose = self._durable, self._loose
        there = {(row[0], row[1]) for answer in answers for row in answer.fetchall()}
        if durable is not None:
            if head.size <= durable.index:
                raise _replaced(f"{location} has {head.size} leaves, and had {durable.index + 1}")
            if answers and (durable.index, durable.op_id) not in there:
                raise _replaced(f"{location} has another leaf {durable.index} than this process wrote")
        if answers and loose is not None and (loose.index, loose.op_id) not in there:
            self.losses, self._loose = self.losses + 1, None
        self._proven = True


def _replaced(said: str) -> Tampered:
    return Tampered(
        f"{said}: an older copy was put back, or a standby took over that did not have it",
        code="store_replaced",
        hint="this process writes nothing more here; find out which server or copy is the right one, run `arl verify` "
        "there, then start the process again: what it had recorded and is not there is lost and runs again",
    )
