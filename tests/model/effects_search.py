"""The exhaustive search: breadth first over all worlds of a setting, with the shortest way to what must not be."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_run_ledger.kernel.effects import ActionState, LedgerState
from tests.model.effects_world import FAR_SIDE, FAULTS, WORKERS, Search, Setting, World, newest_state

SETTLED = frozenset(
    {
        ActionState.SUCCEEDED,
        ActionState.REJECTED,
        ActionState.EXPIRED,
        ActionState.REVOKED,
        ActionState.NOT_EXECUTED,
        ActionState.WRITTEN_OFF,
    }
)
"""A key whose newest member is in one of these waits for nobody."""

TWICE = "two effects for one key"

UNCLAIMED = (None, ActionState.PROPOSED, ActionState.AVAILABLE)
"""Here anybody may reject, revoke or let it expire; the search leaves that out unless a setting asks for it."""


@dataclass
class Verdict:
    """What a search found. `way`: the steps to the first violation; the traps are worlds without a way on."""

    states: int
    violation: str | None = None
    way: tuple[str, ...] = ()
    never_closed: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    never_done: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def __str__(self) -> str:
        """The counterexample, one step a line."""
        if self.violation is None:
            return f"nothing in {self.states:,} states"
        lines = [f"{number:>3}. {step}" for number, step in enumerate(self.way, 1)]
        return "\n".join([f"{self.violation}, after {len(self.way)} steps ({self.states:,} states seen):", *lines])


class _Seen:
    """All worlds by number, the step that first led to each, and the arrows back for the proofs of liveness."""

    def __init__(self, first: World, liveness: bool) -> None:
        self.liveness = liveness
        self.numbers = {first: 0}
        self.worlds = [first]
        self.parents: list[tuple[int, str]] = [(-1, "")]
        self.back: list[list[int]] = [[]]
        self.quiet_back: list[list[int]] = [[]]

    def add(self, world: World, parent: int, name: str) -> int:
        number = self.numbers.get(world)
        if number is None:
            number = self.numbers[world] = len(self.worlds)
            self.worlds.append(world)
            self.parents.append((parent, name))
            self.back.append([])
            self.quiet_back.append([])
        if self.liveness and name not in FAULTS:
            self.back[number].append(parent)
            if name not in FAR_SIDE and name not in WORKERS:
                self.quiet_back[number].append(parent)
        return number

    def way(self, number: int) -> tuple[str, ...]:
        names: list[str] = []
        while number > 0:
            number, name = self.parents[number]
            names.append(name)
        return tuple(reversed(names))


def _forbidden(search: Search, world: World, effects_only: bool) -> str | None:
    if world.receiver.effects > 1:
        return TWICE
    if effects_only:
        return None
    untrue = world.receiver.effects and newest_state(search, world) is ActionState.NOT_EXECUTED
    if untrue and search.setting.witness and search.standing(world).state is LedgerState.OPEN:
        return "not_executed is on record, and it was executed"
    return None


def explore(setting: Setting, *, liveness: bool = False, effects_only: bool = False, limit: int = 400_000) -> Verdict:
    """Search everything that a setting allows; RuntimeError beyond `limit` states, for then nothing was shown.

    With `effects_only` it goes on past broken invariants and false records, to a second effect.
    """
    search = Search(setting)
    seen = _Seen(search.first, liveness)
    number = 0
    while number < len(seen.worlds):
        if number > limit:
            raise RuntimeError(f"more than {limit:,} states: nothing is shown")
        for name, after, broken in search.steps(seen.worlds[number]):
            found = (None if effects_only else broken) or _forbidden(search, after, effects_only)
            if found is not None:
                return Verdict(len(seen.worlds), found, (*seen.way(number), name))
            seen.add(after, number, name)
        number += 1
    verdict = Verdict(len(seen.worlds))
    if liveness:
        _closed_somewhere(search, seen, verdict)
        _done_somewhere(search, seen, verdict)
    return verdict


def _frozen(search: Search, world: World) -> bool:
    """Whether it is a copy from before an admission, of which nothing may ever come, or will be when it asks."""
    return search.standing(world).epoch < world.epoch


def _reaching(back: list[list[int]], goals: list[int]) -> set[int]:
    reached, left = set(goals), list(goals)
    while left:
        for before in back[left.pop()]:
            if before not in reached:
                reached.add(before)
                left.append(before)
    return reached


def _closed_somewhere(search: Search, seen: _Seen, verdict: Verdict) -> None:
    """L1: from every world a settled key is reached without an effect, a delivery, a worker or a fault."""
    settled = [n for n, world in enumerate(seen.worlds) if newest_state(search, world) in SETTLED]
    reached = _reaching(seen.quiet_back, settled)
    begun = [
        n
        for n, world in enumerate(seen.worlds)
        if newest_state(search, world) not in UNCLAIMED and not _frozen(search, world)
    ]
    verdict.never_closed = [seen.way(n) for n in begun if n not in reached][:5]


def _done_somewhere(search: Search, seen: _Seen, verdict: Verdict) -> None:
    """L2: from every world without an effect, with a member and a generation left above all marks, one is reached."""
    done = [n for n, world in enumerate(seen.worlds) if world.receiver.effects]
    reached = _reaching(seen.back, done)
    setting = search.setting
    for n, world in enumerate(seen.worlds):
        rows = search.rows(world)
        mark = max((row.mark for row in rows), default=0)
        room = len(rows) < setting.members and world.receiver.mark <= mark < setting.generations
        over = newest_state(search, world) is ActionState.WRITTEN_OFF
        if room and not over and not _frozen(search, world) and n not in reached:
            verdict.never_done = [*verdict.never_done, seen.way(n)][:5]
