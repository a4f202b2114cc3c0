"""What an attempt committed without waiting for a disk, and what to do where a server that crashed has lost it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_run_ledger.errors import Superseded, Unavailable
from agent_run_ledger.ports import InFlight, RunRow, Tx
from agent_run_ledger.runs.batches import Started, Written
from agent_run_ledger.runs.budgets import Accounts


class Loose:
    """Guarantees: no call is concluded whose start is not on record, and no attempt goes on with what was lost."""

    def __init__(self, location: str, row: RunRow) -> None:
        self._location = location
        self._row = row
        self._losses: int | None = None
        """At which number of losses the first record was written that no synced commit stands behind; None for none."""

    def committed(self, written: Written, *, sync: bool) -> None:
        """Note what a commit wrote. One that was synced keeps all that was written before it, too."""
        if sync:
            self._losses = None
        elif self._losses is None and written.last_id:
            self._losses = written.losses

    def put_back(
        self,
        tx: Tx,
        ending: Sequence[Started],
        mark_of: Callable[[Started], InFlight],
        add_start: Callable[[], None],
        accounts: Accounts | None,
        *,
        live: bool,
    ) -> None:
        """Put on record once more the starts, of calls that are `ending`, which were lost.

        Unavailable("recorded_lost") where records were lost that the program went on with. Superseded where the run was
        stopped meanwhile, when nothing may start in it any more.
        """
        row = self._row
        if self._losses not in (None, tx.losses):
            raise Unavailable(
                f"{self._location} lost what attempt {row.attempt} of run {row.run_id!r} had recorded",
                code="recorded_lost",
                hint="run the same thing: what is on record is restored, and the rest runs again",
            )
        doubtful = [start for start in ending if start.losses != tx.losses]
        if not doubtful:
            return
        marked = {mark.lane: _call_of(mark) for mark in tx.in_flight(row.row_id)}
        for start in doubtful:
            if marked.get(start.lane) == _call_of(mark_of(start)):
                continue
            if not live:
                raise Superseded(
                    f"the start of step {start.identity.name!r} of run {row.run_id!r} was lost, and that was stopped",
                    hint="this process must stop; its unrecorded results are not part of the run",
                )
            if accounts is not None:
                accounts.count(start.identity.name, start.reserve)
            add_start()


def _call_of(mark: InFlight) -> tuple[str, int, int, int, int]:
    """Return what tells the call of a mark from others of its lane."""
    return mark.name, mark.occurrence, mark.tries, mark.generation, mark.started_at_ms
