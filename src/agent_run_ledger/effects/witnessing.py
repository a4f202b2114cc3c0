"""Asks the witness about the log's head, outside of every transaction, and remembers what it last said."""

from __future__ import annotations

import threading

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.effects import LedgerState, WitnessPolicy
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.ports import Store
from agent_run_ledger.ports.effects import Seen, Witness

_STATES = {
    Seen.CURRENT: LedgerState.OPEN,
    Seen.SILENT: LedgerState.HELD,
    Seen.AHEAD: LedgerState.RECOVERY,
    Seen.FORKED: LedgerState.RECOVERY,
}


class Witnessing:
    """Guarantees: `state` is OPEN only after the witness last said that this log is the one it knows; a ledger that it
    called old or forked stays in recovery until it is opened anew. Without a witness nothing is asked, and a restored
    older copy is not noticed. Thread-safe.
    """

    def __init__(self, store: Store, witness: Witness | None) -> None:
        self._store = store
        self._witness = witness
        self._lock = threading.Lock()
        self._seen_size = 0
        self.state = LedgerState.OPEN if witness is None else LedgerState.HELD

    @property
    def policy(self) -> WitnessPolicy:
        """Which kind of witness there is."""
        return WitnessPolicy.NONE if self._witness is None else self._witness.policy

    def look(self) -> LedgerState:
        """Ask the witness about the head as it is now, and return the state that follows."""
        if self._witness is None:
            return self.state
        head = self._store.reader().head()
        said = self._witness.extend(head.size, root(head.size, head.frontier))
        with self._lock:
            if self.state is not LedgerState.RECOVERY:
                self.state = _STATES[said]
                if said is Seen.CURRENT:
                    self._seen_size = max(self._seen_size, head.size)
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
