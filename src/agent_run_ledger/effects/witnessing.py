"""Asks the witness about the log's head, outside of every transaction, and remembers what it last said."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.effects import Action, ActionState, LedgerState, WitnessPolicy
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.ports import Store
from agent_run_ledger.ports.effects import Heard, Seen, Witness

log = logging.getLogger("agent_run_ledger")

TRIES: Final = 20
"""How often one look asks where the witness saw others' heads meanwhile. After that it is as if it had not answered."""

_SILENT: Final = Heard(Seen.SILENT)


class Witnessing:
    """Guarantees: `state` is OPEN only after the witness last said that this log is the one it knows; a ledger that it
    called old or forked stays in recovery until it is opened anew. One that others extend is not old: it is in recovery
    only where its head stays below the one that the witness knows. Without a witness nothing is asked, and a restored
    older copy is not noticed. One question at a time, whose answer is that of all who came before it; thread-safe.
    """

    def __init__(self, store: Store, witness: Witness | None) -> None:
        self._store = store
        self._witness = witness
        self._asking = threading.Lock()
        self._begun = self._answered = 0
        self._seen_size = 0
        self._failed = False
        self.state = LedgerState.OPEN if witness is None else LedgerState.HELD

    @property
    def policy(self) -> WitnessPolicy:
        """Which kind of witness there is."""
        return WitnessPolicy.NONE if self._witness is None else self._witness.policy

    def look(self) -> LedgerState:
        """Ask the witness about the head as it is now, and return the state that follows."""
        if self._witness is None:
            return self.state
        begun = self._begun
        with self._asking:
            shown_since = self._answered > begun
            if not shown_since and self.state is not LedgerState.RECOVERY:
                self._begun += 1
                self.state = self._ask(self._witness)
                self._answered = self._begun
            return self.state

    def has_seen(self, leaf_index: int) -> bool:
        """Return whether the witness said that it has seen the leaf. Asks nobody, so a transaction may ask this."""
        return 0 <= leaf_index < self._seen_size

    def covers(self, leaf_index: int) -> bool:
        """Return whether the witness has seen the leaf; asks it where it has not yet. Without a witness: True.

        False also where the log's head cannot be read: the leaf is there, and nobody has shown it.
        """
        if self._witness is None or self.has_seen(leaf_index):
            return True
        try:
            return self.look() is LedgerState.OPEN and self.has_seen(leaf_index)
        except Unavailable:
            return False

    def _ask(self, witness: Witness) -> LedgerState:
        """Show the head. Where the witness knows a larger one, it is no loss if the log has grown to it meanwhile."""
        head = self._store.reader().head()
        for _ in range(TRIES):
            heard = self._heard(witness, head.size, root(head.size, head.frontier))
            if heard.seen is Seen.CURRENT:
                self._seen_size = max(self._seen_size, head.size)
                return LedgerState.OPEN
            if heard.seen is not Seen.AHEAD:
                return LedgerState.HELD if heard.seen is Seen.SILENT else LedgerState.RECOVERY
            shown, head = head.size, self._store.reader().head()
            if head.size <= shown or head.size < heard.size:
                return LedgerState.RECOVERY
        return LedgerState.HELD

    def _heard(self, witness: Witness, size: int, root_hash: bytes) -> Heard:
        """Ask once. A witness that fails, or says what is no answer, has said nothing; the log tells it once."""
        try:
            heard: Any = witness.extend(size, root_hash)
        except Exception as error:  # whatever it is, the witness has not answered
            return self._no_answer(f"{type(error).__name__}: {error}")
        if _is_answer(heard):
            answer: Heard = heard
            return answer
        return self._no_answer(f"an answer of type {type(heard).__name__}")

    def _no_answer(self, why: str) -> Heard:
        if not self._failed:
            self._failed = True
            log.warning("the witness fails, which is taken for silence: %s", why)
        return _SILENT


def waits(row: Action) -> bool:
    """Return whether a row is one that nobody is told of before the witness has seen it."""
    return row.revoked or row.state is ActionState.NOT_EXECUTED


def _is_answer(heard: Any) -> bool:
    return isinstance(heard, Heard) and (type(heard.seen), type(heard.size)) == (Seen, int)
