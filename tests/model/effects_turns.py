"""Threads that take turns at named points, and every order in which they can, one schedule after the other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

BEGIN, READ, UPDATE, COMMIT, TOLD = "begin", "read", "update", "commit", "told"
"""The points of one transaction: before BEGIN, before it reads, before it writes, before COMMIT, and committed."""

INSIDE = frozenset({READ, UPDATE, COMMIT})
"""Who stands here has the write lock: nobody else can run on from BEGIN."""

PATIENCE_S = 60.0


class Killed(BaseException):
    """The worker is gone; nothing of it may catch this."""


class Turns:
    """Runs the programs of workers, one at a time, each until its next point or its end."""

    def __init__(self, programs: Sequence[Callable[[], None]], die: Callable[[int], None]) -> None:
        """`die` is called in the thread of who is killed, before the thread unwinds."""
        self.at: list[str | None] = [None] * len(programs)
        self.begun = [False] * len(programs)
        self.failed: list[BaseException] = []
        self._die = die
        self._kill = [False] * len(programs)
        self._go = [threading.Semaphore(0) for _ in programs]
        self._back = threading.Semaphore(0)
        self._mine = threading.local()
        self._threads = [
            threading.Thread(target=self._live, args=(who, program), daemon=True)
            for who, program in enumerate(programs)
        ]

    def start(self) -> None:
        """Bring every worker to its first point."""
        for thread in self._threads:
            thread.start()
            self._wait()

    def pause(self, point: str) -> None:
        """Stand at a point until it is the calling worker's turn; a thread that is no worker goes on at once."""
        who = getattr(self._mine, "who", None)
        if who is None:
            return
        self.at[who] = point
        self._back.release()
        self._go[who].acquire()
        if self._kill[who]:
            self._die(who)
            raise Killed

    def step(self, who: int, *, kill: bool = False) -> None:
        """Let one worker run to its next point or its end; or die where it stands."""
        self.begun[who] = True
        self._kill[who] = kill
        self._go[who].release()
        self._wait()

    def end(self) -> None:
        """Kill whoever still stands somewhere, and wait for all."""
        for who, point in enumerate(self.at):
            if point is not None:
                self.step(who, kill=True)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if stuck := [who for who, thread in enumerate(self._threads) if thread.is_alive()]:
            raise AssertionError(f"workers {stuck} did not end; they stand at {self.at}")

    def _live(self, who: int, program: Callable[[], None]) -> None:
        self._mine.who = who
        try:
            program()
        except Killed:
            pass
        except BaseException as error:
            if not self._kill[who]:  # what unwinding raises on a connection that is gone is nobody's concern
                self.failed.append(error)
        self.at[who] = None
        self._back.release()

    def _wait(self) -> None:
        if not self._back.acquire(timeout=PATIENCE_S):
            raise AssertionError(f"a worker is stuck; they stand at {self.at}")


@dataclass(slots=True, kw_only=True)
class Choices:
    """One way through a tree of choices: the first ones given, each later one the first that there is."""

    given: Sequence[int] = ()
    made: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def of(self, count: int) -> int:
        """Return a number below `count`."""
        at = len(self.made)
        chosen = self.given[at] if at < len(self.given) else 0
        self.made.append((chosen, count))
        return chosen


def every_way(run: Callable[[Choices], None]) -> Iterator[Choices]:
    """Run through a tree of choices until every way was gone once. The same choices must lead to the same tree."""
    given: list[int] | None = []
    while given is not None:
        choices = Choices(given=given)
        run(choices)
        yield choices
        made = list(choices.made)
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        given = [*(chosen for chosen, _ in made[:-1]), made[-1][0] + 1] if made else None


@dataclass(slots=True, kw_only=True)
class Rules:
    """What a schedule may be. `kills`: how many workers may die. `at`: where; None for everywhere.

    `alike`: workers that have not begun are interchangeable, and the first of them stands for all.
    """

    kills: int
    at: Callable[[str], bool] | None = None
    alike: bool = False


def play(turns: Turns, choices: Choices, rules: Rules) -> Counter[str]:
    """Bring all workers to their ends in the chosen order and return where workers were killed.

    Whoever is blocked at BEGIN, because another one is inside of a transaction, cannot be chosen. Who was just told
    runs on by itself: until its next BEGIN it touches nothing that another one could see.
    """
    turns.start()
    killed: Counter[str] = Counter()
    while options := _options(turns, rules, sum(killed.values())):
        who, kill = options[choices.of(len(options))] if len(options) > 1 else options[0]
        if kill:
            killed[str(turns.at[who])] += 1
        turns.step(who, kill=kill)
    return killed


def _options(turns: Turns, rules: Rules, killed: int) -> list[tuple[int, bool]]:
    alive = [who for who, point in enumerate(turns.at) if point is not None]
    alone = [who for who in alive if turns.at[who] in INSIDE or turns.at[who] == TOLD]
    if len([who for who in alone if turns.at[who] in INSIDE]) > 1:
        raise AssertionError(f"two workers are inside of a transaction: {turns.at}")
    runnable = alone or alive
    if rules.alike:
        fresh = [who for who in runnable if not turns.begun[who]]
        runnable = [who for who in runnable if turns.begun[who]] + fresh[:1]
    may_die = [who for who in runnable if killed < rules.kills and (rules.at is None or rules.at(str(turns.at[who])))]
    return [(who, False) for who in runnable] + [(who, True) for who in may_die]
