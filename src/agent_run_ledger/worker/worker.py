"""The loop of a worker: takes runs while it has room, carries them out in threads, and drains when it is told to."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agent_run_ledger.entropy import SystemEntropy
from agent_run_ledger.errors import LedgerError, Misuse, Unavailable, Uncertain
from agent_run_ledger.kernel.store_urls import is_url
from agent_run_ledger.ledger.run_ledger import RunLedger
from agent_run_ledger.ports import RunRow
from agent_run_ledger.worker.carrying import Outcome, carry, is_of_the_store
from agent_run_ledger.worker.picking import LOOK_S, Picker

log = logging.getLogger("agent_run_ledger")

MOST_AT_ONCE: Final = 1_024
MOST_DEATHS: Final = 1_000
_TROUBLE_S: Final = (0.5, 10.0)
"""After a store that could not be asked: the first pause, and the longest one."""
_WAKE_S: Final = 0.1
"""How often the thread of `run` looks whether it is to stop: its signals must find it in no lock."""
_LAST_S: Final = 1.0
"""For how long a question to the store may go on that nobody needs the answer of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works.

    `concurrency`: how many runs at once, each in a thread. `poll_s`: how often it looks where nothing is to do.
    `pending_s`: how long a run that waits for nobody knows what is left alone. `drain_s`: how long runs may go on once
    it is to stop. `most_deaths`: after so many processes in a row that ended in one call of a run it goes into
    QUARANTINE, 0 for never. Misuse("bad_setting") for what cannot be.
    """

    concurrency: int = 4
    poll_s: float = 0.5
    pending_s: float = 60.0
    drain_s: float = 25.0
    most_deaths: int = 10

    def __post_init__(self) -> None:
        """See above."""
        if type(self.concurrency) is not int or not 1 <= self.concurrency <= MOST_AT_ONCE:
            raise Misuse(f"concurrency is a whole number from 1 to {MOST_AT_ONCE:,}", code="bad_setting")
        if type(self.most_deaths) is not int or not 0 <= self.most_deaths <= MOST_DEATHS:
            raise Misuse(f"most_deaths is a whole number from 0 to {MOST_DEATHS:,}", code="bad_setting")
        for name, least in (("poll_s", 0.01), ("pending_s", 0.0), ("drain_s", 0.0)):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not least <= seconds <= 86_400:
                raise Misuse(f"{name} is a number of seconds from {least:g} to a day", code="bad_setting")


class Told(NamedTuple):
    """One thing that a worker did: it took a run ("taken"), or what became of it. `words` say why, where it matters."""

    event: str
    run_id: str
    words: str = ""


@dataclass(slots=True)
class Tally:
    """What a worker did, by outcome. `trouble`: how often the store could not be asked. `left`: not over at the end."""

    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    trouble: int = 0
    left: int = 0


class Worker:
    """Begins the runs of a queue, and goes on with those that were left behind.

    Guarantees: a run is begun by one worker at a time (its attempt's lock says who), whatever workers there are; what a
    worker leaves, killed or drained, the next one goes on with, and pays for nothing recorded twice. A store that
    cannot be asked, or not be opened yet, is asked again, and nothing is lost by it: `tell` hears of it once, and again
    where the cause is another one. A run that raised is failed, and is not tried again by itself; one that this program
    cannot go on with is left as it stood, and so is one whose records are damaged. A run under which process after
    process dies is tried ever more seldom, after all others and alone, and then put into QUARANTINE. `tell` is called
    for what happens, from several threads; what it raises is logged.
    """

    def __init__(
        self,
        ledger: RunLedger,
        *,
        queue: str | None = None,
        settings: WorkerSettings | None = None,
        tell: Callable[[Told], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._settings = settings or WorkerSettings()
        self._tell = tell
        self._queue = ledger.runs_of_queue(queue)
        self._picker = Picker(
            self._queue,
            time.monotonic,
            pending_ms=round(self._settings.pending_s * 1000),
            fraction=SystemEntropy().fraction,
            most_deaths=self._settings.most_deaths,
            refused=self._refused,
            stopped=lambda run_id, reason: self._say(Told("quarantined", run_id, reason)),
        )
        self._lock = threading.Lock()
        self._in_hand: set[str] = set()
        self._again = threading.Event()
        self._stopping = False
        self._closed = False
        self._looking = threading.Thread(name="arl-look", daemon=True)
        self._failure: BaseException | None = None
        self._trouble = ""
        self._tries = 0
        self._unheard = False
        self._kept_s = self._same_s = float("-inf")
        self.tally = Tally()

    @property
    def asks(self) -> bool:
        """Whether a question to the store is still without an answer, after `run` returned: it may take as long."""
        return self._looking.is_alive()

    def stop(self) -> None:
        """Take nothing more, and let `run` return when what is in hand is over, or `drain_s` are. Safe in a signal."""
        self._stopping = True
        self._again.set()

    def run(self, *, until_idle: bool = False) -> Tally:
        """Work until `stop`, or until nothing is left to be begun, and return what was done.

        With `until_idle` a run that nobody of this program can carry out ends it too, once it was tried. What says that
        this store can never be worked on is raised: Refused, Misuse, Tampered as `ports.Store` and its opener say, and
        at the beginning Unavailable("cannot_open"), or "read_only" for a file. So is what a run was told of the whole
        store: that it was replaced, emptied, changed in its schema, or moved away.
        """
        pool = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="run")
        self._looking = threading.Thread(target=self._look, args=(pool, until_idle), name="arl-look", daemon=True)
        self._looking.start()
        try:
            while self._looking.is_alive() and not self._stopping:
                self._looking.join(_WAKE_S)
        finally:
            self.stop()
            self._drain(pool)
        if self._failure is not None:
            raise self._failure
        return self.tally

    def _look(self, pool: ThreadPoolExecutor, until_idle: bool) -> None:
        """Take runs until it is time to stop. In a thread of its own: a server may be silent for long."""
        deaf: Callable[[], None] | None = None
        pause_s = _TROUBLE_S[0]
        try:
            while True:
                self._again.clear()
                if self._stopping:  # asked after that: who stops it sets both
                    break
                try:
                    if deaf is None:
                        deaf = self._queue.on_submitted(self._again.set)
                    took = self._take(pool)
                    if until_idle and not took and self._is_idle():
                        break
                    self._answered()
                    pause_s = _TROUBLE_S[0]
                    self._again.wait(self._settings.poll_s)
                except (Unavailable, Uncertain) as error:
                    if deaf is None and self._is_final(error):
                        raise
                    self._troubled(error)
                    self._again.wait(pause_s)
                    pause_s = min(2 * pause_s, _TROUBLE_S[1])
        except BaseException as error:
            self._failure = error
        finally:
            if deaf is not None:
                deaf()

    def _is_final(self, error: LedgerError) -> bool:
        """Return whether a store that was never opened will not be by waiting."""
        at_server = is_url(self._ledger.db_path)
        return error.code == "cannot_open" or (error.code == "read_only" and not at_server)

    def _troubled(self, error: LedgerError) -> None:
        self.tally.trouble += 1
        self._tries += 1
        if error.code != self._trouble:
            self._trouble = error.code
            self._say(Told("trouble", "", f"the store cannot be asked ({error.code}), and is asked again: {error}"))

    def _answered(self) -> None:
        if self._trouble:
            self._say(Told("answers", "", f"the store was asked in vain {self._tries} times, and answers"))
            self._trouble, self._tries = "", 0

    def _say(self, told: Told) -> None:
        """Tell of it. Who listens and fails at it keeps no run from being carried out; it is logged, once."""
        try:
            self._tell(told)
        except Exception:
            with self._lock:
                again, self._unheard = self._unheard, True
            if not again:
                log.warning("what a worker does is not told to the end: `tell` raised", exc_info=True)

    def _take(self, pool: ThreadPoolExecutor) -> int:
        """Take as many runs as there is room for, and return how many."""
        with self._lock:
            in_hand = frozenset(self._in_hand)
        self._keep(in_hand)
        self._refuse_moved()
        room = self._settings.concurrency - len(in_hand)
        rows = self._picker.pick(room, in_hand) if room > 0 else []
        for row in rows:
            with self._lock:
                if self._closed:  # the answer came too late
                    return 0
                self._in_hand.add(row.run_id)
                pool.submit(self._carry, row)
        return len(rows)

    def _keep(self, in_hand: Collection[str]) -> None:
        """Ask now and then for what is in hand: where a server ended the session of its locks, they are taken back."""
        now_s = time.monotonic()
        if in_hand and now_s - self._kept_s >= LOOK_S:
            self._kept_s = now_s
            self._queue.live(list(in_hand))

    def _refuse_moved(self) -> None:
        """End, now and then asked, with the store: who has nothing to do would not notice that it is another one."""
        now_s = time.monotonic()
        if now_s - self._same_s >= LOOK_S:
            self._queue.refuse_moved()
            self._same_s = now_s

    def _refused(self, run_id: str, error: BaseException) -> None:
        """Count and tell that nothing can be said of a run, since its records cannot be read."""
        with self._lock:
            self.tally.outcomes[Outcome.REFUSED] += 1
        self._say(Told(Outcome.REFUSED.value, run_id, f"{type(error).__name__}: {error}; tried again ever more seldom"))

    def _is_idle(self) -> bool:
        with self._lock:
            if self._in_hand:
                return False
        return self._picker.is_idle()

    def _carry(self, row: RunRow) -> None:
        outcome, words, error = Outcome.INTERRUPTED, "its thread was ended", None
        try:
            self._say(Told("taken", row.run_id))
            outcome, error = self._outcome(row)
            words = "" if error is None else f"{type(error).__name__}: {error}"
        except BaseException as ended:  # SystemExit, KeyboardInterrupt, a cancellation that nobody caught
            words = f"its thread was ended by {type(ended).__name__}: {ended}".removesuffix(": ")
            raise
        finally:
            self._note(row.run_id, outcome, words, error)

    def _outcome(self, row: RunRow) -> tuple[Outcome, BaseException | None]:
        try:
            submission = self._queue.submission(row)
        except (Unavailable, Uncertain) as error:
            return Outcome.INTERRUPTED, error
        except LedgerError as error:
            return Outcome.REFUSED, error
        return carry(self._ledger, row, submission)

    def _note(self, run_id: str, outcome: Outcome, words: str, error: BaseException | None) -> None:
        """Note what became of a run; where it still stands in the queue it is left alone for a while.

        What is said of the whole store then ends the worker: no run of it will fare better.
        """
        refused = outcome is Outcome.REFUSED
        over = outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.WAITS, Outcome.REFUSED)
        if outcome is Outcome.ELSEWHERE or (over and not self._stays(run_id, refused=refused)):
            self._picker.ended(run_id, elsewhere=not over)
        else:
            if is_of_the_store(error):
                self._failure = self._failure or error
                self._stopping = True
            left_s = self._picker.failed(run_id, refused=refused)
            words = f"{words}; tried again in {left_s:g} s".removeprefix("; ")
        with self._lock:
            self._in_hand.discard(run_id)
            self.tally.outcomes[outcome] += 1
        self._say(Told(outcome.value, run_id, words))
        self._again.set()

    def _stays(self, run_id: str, *, refused: bool) -> bool:
        """Return whether a run is to be taken again: a suspended one too, where this program was refused it."""
        try:
            return self._queue.is_open(run_id) if refused else self._queue.is_queued(run_id)
        except LedgerError:
            return True

    def _drain(self, pool: ThreadPoolExecutor) -> None:
        """Wait for what is in hand, as long as it may take; what is not over then stands where it was."""
        until = time.monotonic() + self._settings.drain_s
        with self._lock:
            self._closed = True
        pool.shutdown(wait=False, cancel_futures=False)
        while time.monotonic() < until:
            with self._lock:
                if not self._in_hand:
                    break
            time.sleep(min(0.05, max(0.0, until - time.monotonic())))
        self._looking.join(_LAST_S)
        with self._lock:
            self.tally.left = len(self._in_hand)
