"""Runs under which process after process died: left for a growing time, taken last and one at a time, then stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from agent_run_ledger.ledger.run_queue import RunQueue
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.deaths import Deaths, may_have_died_again

FIRST_LEFT_S: Final = 2.0
MOST_LEFT_S: Final = 600.0
"""After the second death in a row a run is left for FIRST_LEFT_S since its START, and twice as long after each further
one in the same call. Where no call was under way nobody may have died: an attempt that another version of the program
left as it stood looks the same, and the right one must not come too late for it."""
READ: Final = 16
"""Of how many runs one look reads what their attempts came to; the next look goes on."""
DEATHS: Final = "deaths: "
"""How the reason of such a quarantine begins."""
_SUSPECT: Final = 2
"""One death tells nothing of a run: its worker was killed, or the machine was. Two in a row may."""


@dataclass(slots=True)
class _Known:
    """What is known of a run as it stands: how often its process died, and from when on it may be taken again."""

    row: RunRow
    deaths: Deaths
    left_s: float
    due_s: float


class Suspects:
    """Guarantees: what is on record of a run decides, so that who starts anew is as careful as who died; of these runs
    one worker has one at a time. One is taken where nothing else is to do, and in any case once it waited twice as
    long as it had to. For one thread.
    """

    def __init__(
        self,
        queue: RunQueue,
        monotonic_s: Callable[[], float],
        *,
        most_deaths: int,
        stopped: Callable[[str, str], None],
    ) -> None:
        self._queue = queue
        self._now_s = monotonic_s
        self._most = most_deaths
        self._stopped = stopped
        self._known: dict[str, _Known] = {}
        self._due: dict[str, _Known] = {}
        self._reads = 0

    def begin(self) -> None:
        """Begin a look: it finds again what is due."""
        self._due.clear()
        self._reads = READ

    def keeps(self, row: RunRow) -> bool:
        """Return whether a run that nobody works on is not to be taken as others are. Whether it is due is noted."""
        if not may_have_died_again(row):
            return False
        known = self._known.get(row.run_id)
        if known is None or known.row.generation != row.generation:
            if not self._reads:
                return True
            self._reads -= 1
            known = self._known[row.run_id] = self._read(row)
        if known.deaths.in_a_row < _SUSPECT:
            return False
        if self._most and known.deaths.in_call >= self._most:
            self._stop(known)
        elif known.due_s <= self._now_s():
            self._due[row.run_id] = known
        return True

    def next(self, in_hand: Collection[str], *, alone: bool) -> RunRow | None:
        """Return the one of those due that is to be taken now. `alone`: nothing else is in hand, or was found."""
        if not self._due or any(self._is_suspect(run_id) for run_id in in_hand):
            return None
        first = min(self._due.values(), key=lambda known: known.due_s)
        if not alone and self._now_s() < first.due_s + first.left_s:
            return None
        del self._due[first.row.run_id]
        return first.row if self._queue.is_free_as(first.row) else None

    def forget(self, kept: Collection[str]) -> None:
        """Forget all that had time enough to be taken, but what is in hand."""
        until_s = self._now_s() - 2 * MOST_LEFT_S
        for run_id in [one for one, known in self._known.items() if known.due_s < until_s and one not in kept]:
            del self._known[run_id]

    def _is_suspect(self, run_id: str) -> bool:
        known = self._known.get(run_id)
        return known is not None and known.deaths.in_a_row >= _SUSPECT

    def _read(self, row: RunRow) -> _Known:
        deaths = self._queue.deaths(row)
        left_s = min(MOST_LEFT_S, FIRST_LEFT_S * float(1 << min(max(0, deaths.in_call - _SUSPECT), 10)))
        over_s = max(0.0, self._queue.since_ms(row) / 1000)  # below 0 where the clocks of hosts differ
        return _Known(row, deaths, left_s, self._now_s() + max(0.0, left_s - over_s))

    def _stop(self, known: _Known) -> None:
        deaths = known.deaths
        reason = (
            f"{DEATHS}{deaths.in_call} processes in a row ended while a call of {deaths.call} was under way, and "
            "none said why: was the memory short, or does it end its process? When that is mended, `arl runs release` "
            "lets the run go on with a new count"
        )
        if self._queue.stop(known.row, reason=reason):
            self._stopped(known.row.run_id, reason)
        del self._known[known.row.run_id]
