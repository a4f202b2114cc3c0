"""The loop rule: counts the calls of a run that repeat an earlier one and brought nothing new."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from agent_run_ledger.kernel.loops import glimpse as flag
from agent_run_ledger.kernel.loops.glimpse import Glimpse
from agent_run_ledger.kernel.loops.matching import SLIM, Match, Matcher, Seen, same_input, unchanged
from agent_run_ledger.kernel.loops.verdict import OK, Verdict, verdict
from agent_run_ledger.kernel.policy import LoopDetectorPolicy

_RELATED: Final = 0.7
"""Cosine above which two inputs ask about one thing, so that a small answer to both says little the second time."""


class _Repetition(NamedTuple):
    number: int
    turn: int
    """The first of those calls that were all made at once, and count as one."""
    glimpse: Glimpse
    match: Match
    firm: bool
    """The outcome was a content, or the input a similar one: not just a small answer given again."""


class Detector:
    """Judges the calls of one run, in the order of their numbers: equal glimpses give equal verdicts, in any process.

    A repetition is a call whose outcome its tool gave before in the window, for the same input or one that is alike.
    N is the policy's `max_repetitions`; the limits are:

    - *again*: N repetitions of one call, or N + 1 of calls that are only similar to it.
    - *standstill*: 2 N - 1 repetitions of any calls, cycles of any period and the same error for ever new inputs among
      them; 2 N where some are small answers (nothing, `0`, `False`) to related inputs.
    - *poll*: 4 N times the same answer to the same question, of a tool that is declared or recognised as a wait.
    - *unchanged*: 4 N times the same outcome of the same call in the window, whatever came in between.
    - *transient*: 2 N infrastructure errors in a row. They count for no other rule.

    Calls that were made at once count as one: none of them could learn from the others. A call that brought something
    new takes N - 1 repetitions back (at least one). `restart` (an operator released the
    run) and `turn` (the user spoke) begin new counts. Nothing is looked at but glimpses, so observing them again
    rebuilds a detector.
    """

    def __init__(self, policy: LoopDetectorPolicy, window: int | None = None) -> None:
        """Judge by `policy`, over the last `window` calls: the policy's, never fewer than its limits need."""
        self._policy = policy
        self._limit = policy.max_repetitions
        self.window: int = max(policy.window if window is None else window, 4 * self._limit)
        """How many calls are looked back over."""
        size = self.window
        self._matcher = Matcher()
        self._seen: deque[Seen] = deque(maxlen=size)
        self._repetitions: deque[_Repetition] = deque(maxlen=size)
        self._transient: deque[tuple[int, int]] = deque(maxlen=size)
        self._chains: dict[int, tuple[Glimpse, deque[int], float]] = {}
        self._from = 0
        self._turn = 0
        self._members: list[int] = []

    def observe(self, number: int, glimpse: Glimpse, *, at_once: Collection[int] = ()) -> Verdict:
        """Return the verdict after the call with this number. Calls before a restart count no more.

        `at_once`: the numbers of those calls that this one was made at once with, so that it is no answer to them.
        """
        if not all(member in at_once for member in self._members):
            self._turn = number
            self._members.clear()
        self._members.append(number)
        if number < self._from or self._policy.rule == "off":
            return OK
        if self._policy.rule == "inputs":
            return self._by_inputs(number, glimpse)
        if glimpse.flags & flag.TRANSIENT:
            self._transient.append((number, self._turn))
            return _of_transient(self._transient, 2 * self._limit)
        self._transient.clear()
        answer = self._by_outcome(number, glimpse, at_once)
        self._seen.append(Seen(number, glimpse, self._turn))
        return answer

    def restart(self, number: int) -> None:
        """Begin new counts: an operator released the run, and calls numbered below `number` count no more."""
        self._from = number
        self.turn()

    def turn(self) -> None:
        """Begin new counts: the user spoke, and the same call may have another sense now."""
        self._seen.clear()
        self._repetitions.clear()
        self._transient.clear()
        self._chains.clear()

    def _by_outcome(self, number: int, now: Glimpse, at_once: Collection[int]) -> Verdict:
        waiting = _waits(now)
        before = self._unchanged(now, at_once)
        waits = len({one.turn for one in before})
        if before and (waiting or waits >= 4 * self._limit):
            return verdict(
                "poll" if waiting else "unchanged",
                [*(one.number for one in before), number],
                4 * self._limit,
                count=waits,
                similarity=1.0,
                failed=bool(now.flags & flag.FAILED),
            )
        seen = [one for one in self._seen if one.number not in at_once] if at_once else self._seen
        match = self._matcher.match(now, reversed(seen))
        if match is None:
            beside = [one for one in self._seen if one.number in at_once] if at_once else []
            if not now.flags & flag.SILENT and self._matcher.match(now, beside) is None:
                self._news(at_once)
            return OK
        if waiting:
            return OK
        slim = now.flags & SLIM
        firm = not slim or match.similarity > self._policy.threshold
        if not firm and slim & flag.DONE:  # something else was done: that is new
            self._news(at_once)
            return OK
        if not firm and (slim & flag.VETOED or match.similarity <= _RELATED):
            return OK
        self._repetitions.append(_Repetition(number, self._turn, now, match, firm))
        return self._counted(now)

    def _unchanged(self, now: Glimpse, at_once: Collection[int]) -> list[Seen]:
        """Return the calls up to now that asked the same and heard the same, oldest first."""
        before: list[Seen] = []
        for one in reversed(self._seen):
            if one.number not in at_once and one.glimpse.given == now.given and one.glimpse.tool == now.tool:
                if not unchanged(one.glimpse, now):
                    break
                before.append(one)
        return before[::-1]

    def _news(self, at_once: Collection[int]) -> None:
        """Take the oldest turns back, except of calls beside this one: what one branch learns is no news to others."""
        back, turns = max(1, self._limit - 1), set[int]()
        for one in [one for one in self._repetitions if one.number not in at_once]:
            if one.turn in turns or len(turns) < back:
                turns.add(one.turn)
                self._repetitions.remove(one)

    def _counted(self, now: Glimpse) -> Verdict:
        every = self._repetitions
        same = [one for one in every if one.match.same and same_input(one.glimpse, now)]
        alike = [one for one in every if same_input(one.glimpse, now) or self._similar(one.glimpse, now)]
        firm = [one for one in every if one.firm]
        failed = bool(now.flags & flag.FAILED)
        return max(
            (
                _count("again", same, self._limit, failed),
                _count("again", alike, self._limit + 1, failed),
                _count("standstill", firm, 2 * self._limit - 1, failed),
                _count("standstill", every, 2 * self._limit, failed),
            ),
            key=lambda one: (one.level, one.count / one.limit),
        )

    def _similar(self, then: Glimpse, now: Glimpse) -> bool:
        return then.tool == now.tool and self._matcher.similarity(then, now) > self._policy.threshold

    def _by_inputs(self, number: int, now: Glimpse) -> Verdict:
        then, steps, lowest = self._chains.get(now.tool, (now, deque[int](), 1.0))
        similarity = self._matcher.similarity(then, now)
        if not steps or similarity <= self._policy.threshold:
            steps = deque([number], maxlen=self._seen.maxlen)
            self._chains[now.tool] = (now, steps, 1.0)
            return verdict("inputs", steps, self._limit, similarity=1.0) if self._limit == 1 else OK
        steps.append(number)
        lowest = min(lowest, similarity)
        self._chains[now.tool] = (now, steps, lowest)
        return verdict("inputs", steps, self._limit, similarity=lowest)


def _waits(now: Glimpse) -> bool:
    """Whether a call waits for something: declared, or recognised and not failed (a failure may be a loop)."""
    return bool(now.flags & flag.POLL) or now.flags & (flag.WAIT | flag.FAILED) == flag.WAIT


def _count(rule: str, repetitions: Iterable[_Repetition], limit: int, failed: bool) -> Verdict:
    counted = list(repetitions)
    steps = sorted({number for one in counted for number in (one.match.number, one.number)})
    lowest = min((one.match.similarity for one in counted), default=0.0)
    turns = len({one.turn for one in counted})
    return verdict(rule, steps, limit, count=turns, similarity=lowest, failed=failed)


def _of_transient(errors: Iterable[tuple[int, int]], limit: int) -> Verdict:
    counted = list(errors)
    turns = len({turn for _, turn in counted})
    return verdict("transient", [number for number, _ in counted], limit, count=turns, transient=True, failed=True)
