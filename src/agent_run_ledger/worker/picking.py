"""Choosing the next runs of a queue: in the order of submission, none in hand, live elsewhere, or left for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from agent_run_ledger.errors import Unavailable, Uncertain
from agent_run_ledger.ledger.run_queue import RunQueue
from agent_run_ledger.ports import RunRow
from agent_run_ledger.worker.carrying import is_of_the_store
from agent_run_ledger.worker.suspects import Suspects

PAGE: Final = 64
FIRST_PAGE: Final = 8
"""How many runs are read at once at most, and at first, where there is room for less: most looks need no more."""
LOOKED_AT: Final = 200
"""How many runs one look goes through, of each kind; the next one goes on from there."""
LOOK_S: Final = 1.0
"""How far apart looks are at what is suspended, and at what was passed over where that is more than LOOKED_AT."""
ELSEWHERE_S: Final = 1.0
"""For how long a run that is live elsewhere is passed over."""
FIRST_S: Final = 1.0
MOST_S: Final = 60.0
MOST_REFUSED_S: Final = 600.0
"""A run that could not be carried out is passed over for FIRST_S, twice as long each time, at most MOST_S. One that
this program cannot carry out, MOST_REFUSED_S."""
_REMEMBERED_S: Final = 2 * MOST_REFUSED_S
"""For how long after its pause a run that could not be carried out is remembered: it may be over."""

Refusal = Callable[[str, BaseException], None]
"""What is called for a run of which nothing can be said, since its records cannot be read, and with what was raised."""


class Picker:
    """Remembers only what saves it questions: a worker that starts anew picks the same runs.

    What raises as one run is looked at is this run's: `refused` is called once, and the run is left as one that failed.
    What says that the store cannot be asked, or is not the one that it was, is raised.

    A look goes on behind the last run that was looked at, and through a part of those that were passed over before, in
    turns: so many runs that nobody can carry out hold up none behind them, and a look costs as much however many they
    are. Who took a run in vain, since another worker was quicker, begins somewhere in the next few, and the more of
    them the oftener that happens: workers that look at once do not fight over one head. Of the room a part is kept for
    what was suspended and may go on, once in LOOK_S: new submissions without an end do not hold it up. `fraction`: from
    0 up to 1, by chance. `pick` and `is_idle` are for one thread, the others for any.
    """

    def __init__(
        self,
        queue: RunQueue,
        monotonic_s: Callable[[], float],
        *,
        pending_ms: int,
        fraction: Callable[[], float],
        most_deaths: int = 0,
        refused: Refusal = lambda _, __: None,
        stopped: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        self._queue = queue
        self._suspects = Suspects(queue, monotonic_s, most_deaths=most_deaths, stopped=stopped)
        self._tell_refused = refused
        self._fraction = fraction
        self._spread = 1.0
        self._now_s = monotonic_s
        self._pending_ms = pending_ms
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        self._failed_until_s: dict[str, float] = {}
        self._refused: set[str] = set()
        self._forgot_s = self._waiting_s = self._passed_s = float("-inf")
        self._new = 0  # up to here runs were looked at once
        self._passed = 0  # and up to here once more, in this round
        self._waiting = 0
        self._new_first = False
        self._woke = False

    def pick(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return at most `room` runs to take now, in the order of submission; those that were suspended last."""
        self._forget(in_hand)
        suspect = self._suspects.next(in_hand, alone=False) if room > 0 else None
        self._suspects.begin()
        last = [] if suspect is None else [suspect]
        in_hand, room, had = {*in_hand, *(row.run_id for row in last)}, room - len(last), len(in_hand)
        woken, more = self._awake_first(room, in_hand)
        in_hand, room = {*in_hand, *(row.run_id for row in woken)}, room - len(woken)
        self._new_first = not self._new_first
        looks = (self._look_on, self._look_again) if self._new_first else (self._look_again, self._look_on)
        found: list[RunRow] = []
        for look in looks:
            found += look(room - len(found), {*in_hand, *(row.run_id for row in found)})
        found.sort(key=lambda row: row.row_id)
        if more:
            woken += self._awake(room - len(found), {*in_hand, *(row.run_id for row in found)})
        if not (had or found or woken or last) and (suspect := self._suspects.next((), alone=True)) is not None:
            last = [suspect]
        return found + woken + last

    def ended(self, run_id: str, *, elsewhere: bool = False) -> None:
        """Note that a run was carried out as far as it goes, or was taken in vain, since somebody else has it."""
        with self._lock:
            self._forget_failure(run_id)
            if elsewhere:
                self._until_s[run_id] = self._now_s() + ELSEWHERE_S
                self._spread = min(2 * self._spread, PAGE)
            else:
                self._spread = max(1.0, self._spread - 0.5)

    def failed(self, run_id: str, *, refused: bool) -> float:
        """Note that a run could not be carried out and stands where it was; return for how long it is left, seconds.

        `refused`: it cannot be as it is, by this program.
        """
        with self._lock:
            tries = self._tries[run_id] = self._tries.get(run_id, 0) + 1
            left_s = min(MOST_REFUSED_S if refused else MOST_S, FIRST_S * float(1 << min(tries - 1, 10)))
            self._until_s[run_id] = self._failed_until_s[run_id] = self._now_s() + left_s
            (self._refused.add if refused else self._refused.discard)(run_id)
            return left_s

    def is_idle(self) -> bool:
        """Return whether nothing is left to be begun or gone on with, but what this program was refused."""
        after = 0
        while page := self._queue.queued(after_row_id=after, limit=PAGE):
            with self._lock:
                if any(row.run_id not in self._refused for row in page):
                    return False
            after = page[-1].row_id
        return True

    def _look_on(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return runs that nobody here has looked at yet."""
        found, self._new, _ = self._free(self._new, None, room, in_hand)
        return found

    def _look_again(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return runs that were passed over before, or taken and not carried out; from where the last look ended."""
        if self._now_s() - self._passed_s < LOOK_S:
            return []
        found, at, over = self._free(self._passed, self._new, room, in_hand)
        self._passed = 0 if over else at
        if not over and len(found) < room:  # there are many of them
            self._passed_s = self._now_s()
        return found

    def _free(
        self, after: int, until: int | None, room: int, in_hand: Collection[str]
    ) -> tuple[list[RunRow], int, bool]:
        """Return runs behind one row, up to another, that nobody has; where the next look begins; whether that is all.

        At most LOOKED_AT rows are looked at.
        """
        free: list[RunRow] = []
        skipped = int(self._spread * self._fraction())
        size, left = max(FIRST_PAGE, room + skipped), LOOKED_AT
        while left and len(free) < room + skipped:
            size = min(size, PAGE, left)
            page = self._queue.queued(after_row_id=after, limit=size)
            rows = page if until is None else [row for row in page if row.row_id <= until]
            free += self._free_of(rows, in_hand)
            after = rows[-1].row_id if rows else after
            if len(rows) < size:
                return self._chosen(free, room, skipped, after, over=True)
            size, left = 4 * size, left - size
        return self._chosen(free, room, skipped, after, over=False)

    def _free_of(self, rows: Sequence[RunRow], in_hand: Collection[str]) -> list[RunRow]:
        """Return the rows of a page that are not in hand, not left, and live nowhere."""
        asked = [row for row in rows if row.run_id not in in_hand and not self._is_left(row.run_id)]
        live = self._queue.live([row.run_id for row in asked]) if asked else frozenset[str]()
        taken = [row for row in asked if row.run_id in live and self._asked_of(row, self._queue.was_taken_over)]
        live -= {row.run_id for row in taken}
        with self._lock:
            for run_id in live:
                self._until_s[run_id] = self._now_s() + ELSEWHERE_S
        free = [row for row in asked if row.run_id not in live]
        return [row for row in free if self._asked_of(row, lambda row: not self._suspects.keeps(row))]

    def _asked_of(self, row: RunRow, question: Callable[[RunRow], bool]) -> bool:
        """Return the answer to a question about one run; no where its records are damaged, and then it is left."""
        try:
            return question(row)
        except (Unavailable, Uncertain):
            raise
        except Exception as error:
            if is_of_the_store(error):
                raise
            self.failed(row.run_id, refused=True)
            if self._tries.get(row.run_id) == 1:
                self._tell_refused(row.run_id, error)
            return False

    def _chosen(
        self, free: Sequence[RunRow], room: int, skipped: int, after: int, *, over: bool
    ) -> tuple[list[RunRow], int, bool]:
        """Return as many of these as there is room for, and where a look begins that misses none of the others."""
        skipped = max(0, min(skipped, len(free) - room))
        found = [*free[skipped : skipped + room]]
        left = [*free[:skipped], *free[skipped + room :]]
        if not left:
            return found, after, over
        return found, left[0].row_id - 1, False

    def _awake_first(self, room: int, in_hand: Collection[str]) -> tuple[list[RunRow], bool]:
        """Return suspended runs that may go on, for half of the room, and whether more of them may have what is left.

        One place alone goes to them at every second look for them that finds some.
        """
        if room < 1 or self._now_s() - self._waiting_s < LOOK_S:
            return [], False
        self._waiting_s = self._now_s()
        share = room // 2 if room > 1 else int(not self._woke)
        found = self._awake(share, in_hand)
        self._woke = bool(found) and room == 1
        return found, len(found) == share

    def _awake(self, room: int, in_hand: Collection[str]) -> list[RunRow]:
        """Return suspended runs for which something may be new, from where the last look ended."""
        if room < 1:
            return []
        page = self._queue.waiting(after_row_id=self._waiting, limit=LOOKED_AT)
        found: list[RunRow] = []
        for row in page:
            if len(found) >= room:
                return found
            self._waiting = row.row_id
            passed_over = row.run_id in in_hand or self._is_left(row.run_id)
            if not passed_over and self._asked_of(row, self._may_go_on):
                found.append(row)
        if len(page) < LOOKED_AT:
            self._waiting = 0
        return found

    def _may_go_on(self, row: RunRow) -> bool:
        return self._queue.may_go_on(row, pending_ms=self._pending_ms)

    def _is_left(self, run_id: str) -> bool:
        with self._lock:
            return self._until_s.get(run_id, float("-inf")) > self._now_s()

    def _forget(self, in_hand: Collection[str]) -> None:
        """Keep no word of what is not left any more; now and then, for it goes through all of it."""
        now_s = self._now_s()
        if now_s - self._forgot_s < LOOK_S:
            return
        self._forgot_s = now_s
        self._suspects.forget(in_hand)
        with self._lock:
            for run_id in [run_id for run_id, until_s in self._until_s.items() if until_s <= now_s]:
                del self._until_s[run_id]
            over_s = now_s - _REMEMBERED_S
            for run_id in [run_id for run_id, until_s in self._failed_until_s.items() if until_s <= over_s]:
                self._forget_failure(run_id)

    def _forget_failure(self, run_id: str) -> None:
        self._tries.pop(run_id, None)
        self._failed_until_s.pop(run_id, None)
        self._refused.discard(run_id)
