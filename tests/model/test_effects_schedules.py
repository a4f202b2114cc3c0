"""Every interleaving of workers over real connections, one of which may die anywhere: one approval, one claim."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from agent_run_ledger.errors import Unavailable
from agent_run_ledger.kernel.effects import Event, TargetClass, reducer
from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.testing import check_ledger
from tests.fault.effect_kit import Line, Ready, Ticks, broken, intent, log_of, new_store, ready
from tests.model.effects_schedules import race
from tests.model.effects_turns import (
    BEGIN,
    COMMIT,
    READ,
    TOLD,
    UPDATE,
    Choices,
    Rules,
    Turns,
    every_way,
    play,
)

pytestmark = pytest.mark.fault

EVERYWHERE = {BEGIN, READ, UPDATE, COMMIT, TOLD}


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is such: nothing here is about what a disk keeps."""
    place = Path("/dev/shm")
    with TemporaryDirectory(prefix="arl-turns-", dir=place if os.access(place, os.W_OK) else None) as folder:
        yield Path(folder)


def _whole(path: Path) -> list[Line]:
    """The log of a store that everybody has left, of which everything holds."""
    lines = log_of(path)
    assert list(broken(lines)) == []
    check_ledger(path)
    return lines


def test_of_two_workers_one_gets_the_claim_in_every_interleaving_with_one_death_anywhere(memory: Path) -> None:
    path = new_store(memory / "ledger.db")
    with race(path, 2) as both:
        both.explore(Rules(kills=1))
    # 70 = C(8, 4): four transactions each. A death can be in each of them, before and after each step that it takes.
    assert (both.without_kill, both.schedules) == (70, 906)
    assert both.killed == Counter({BEGIN: 250, READ: 250, UPDATE: 112, COMMIT: 112, TOLD: 112})
    assert {"claimed", "prepared", "other_worker", "neighbours_claim"} <= both.refused.keys()
    claims = [line for line in _whole(path) if line.kind == "Claim"]
    assert len(claims) == len({line.row["action_key"] for line in claims}) <= 906


def test_a_rollback_journal_excludes_as_well_as_a_wal(memory: Path) -> None:
    path = new_store(memory / "ledger.db", durability="extra")
    with race(path, 2, durability="extra") as both:
        both.explore(Rules(kills=1, at=lambda point: point == COMMIT))
    assert (both.without_kill, both.schedules) == (70, 182)
    _whole(path)


def test_of_three_workers_of_whom_the_late_ones_give_up_one_gets_the_claim(memory: Path) -> None:
    path = new_store(memory / "ledger.db")
    with race(path, 3, steals=False) as three:
        three.explore(Rules(kills=1, alike=True))
    assert (three.without_kill, three.schedules) == (10, 162)
    assert three.killed.keys() == EVERYWHERE
    _whole(path)


def test_a_receiver_that_takes_a_permit_twice_is_handed_one_to_one_worker_only(memory: Path) -> None:
    path = new_store(memory / "ledger.db")
    with race(path, 2) as both:
        both.explore(Rules(kills=0), wanted=intent(target_class=TargetClass.F))
    assert both.schedules == 70
    _whole(path)


@pytest.mark.campaign
@pytest.mark.parametrize("kills", [0, 1])
def test_of_three_workers_that_never_give_up_one_gets_the_claim(memory: Path, kills: int) -> None:
    """Workers that have not begun are alike, so the first of them stands for all: 34,650 / 3! without a death."""
    path = new_store(memory / "ledger.db")
    with race(path, 3) as three:
        three.explore(Rules(kills=kills, alike=True))
    assert three.without_kill == 5_775
    assert (three.killed.keys() == EVERYWHERE) is bool(kills)
    _whole(path)


def test_a_slice_of_three_workers_that_never_give_up(memory: Path) -> None:
    path = new_store(memory / "ledger.db")
    with race(path, 3) as three:
        three.explore(Rules(kills=1, alike=True), most=100)
    assert three.schedules == 100
    _whole(path)


def test_who_is_taken_for_blocked_is_blocked(memory: Path) -> None:
    """While one worker is inside of a transaction, another connection does not come past BEGIN."""
    path = new_store(memory / "ledger.db")
    codes = []
    with race(path, 2) as both:
        both.hurry(1)

        def blocked() -> None:
            with pytest.raises(Unavailable) as caught:
                both.claim(1)
            codes.append(caught.value.code)

        turns = both.begin([lambda: both.claim(0), blocked])
        for point in (READ, UPDATE, COMMIT):
            turns.step(0)
            assert turns.at == [point, BEGIN]
        turns.step(1)
        turns.end()
    assert (turns.failed, codes) == ([], ["store_busy"])
    assert [line.kind for line in _whole(path)] == ["Propose", "Approve"]


# -- the naive claim, which the explorer must find --------------------------------------------------------------------

LOOK = "SELECT state FROM actions WHERE action_id = ?"
TAKE = """UPDATE actions SET state = 'claimed', generation = 1, claim_id = ?, claim_key = ?, worker = ?, claimed_ms = 1
WHERE action_id = ?"""
WRITE = "write"


class Naive:
    """Looks whether it is available, and then takes it, without a lock from the one to the other and no condition."""

    def __init__(self, path: Path, actions: Iterator[Ready]) -> None:
        self.double = self.schedules = self.stopped = 0
        self._actions = actions
        self._connections = [apsw.Connection(str(path)) for _ in range(2)]

    def schedule(self, choices: Choices) -> None:
        action, granted = next(self._actions), list[int]()

        def program(who: int) -> None:
            turns.pause(BEGIN)
            ((state,),) = self._connections[who].execute(LOOK, (action.action_id,)).fetchall()
            turns.pause(WRITE)
            if state == "available":
                try:
                    self._connections[who].execute(TAKE, (bytes([who]) * 16, bytes(16), f"w{who}", action.action_id))
                except apsw.ConstraintError:
                    self.stopped += 1
                else:
                    granted.append(who)

        turns = Turns([partial(program, 0), partial(program, 1)], lambda _: None)
        play(turns, choices, Rules(kills=0))
        turns.end()
        assert turns.failed == []
        self.schedules += 1
        self.double += len(granted) == 2

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _approved(path: Path) -> list[Ready]:
    with EffectLedger(path, time=Ticks()) as ledger:
        return [ready(ledger, f"k{at}") for at in range(6)]


def _explored(path: Path, actions: list[Ready]) -> tuple[int, int, int]:
    with closing(Naive(path, iter(actions))) as naive:
        for _ in every_way(naive.schedule):
            pass
        return naive.schedules, naive.double, naive.stopped


def test_a_naive_claim_claims_twice_and_the_explorer_finds_it(memory: Path) -> None:
    """Of the six orders of two looks and two takes, four have both looks first."""
    path = new_store(memory / "ledger.db")
    actions = _approved(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DROP TRIGGER actions_lasting")
    assert _explored(path, actions) == (6, 4, 0)


def test_the_schema_alone_stops_the_naive_claim_too(memory: Path) -> None:
    path = new_store(memory / "ledger.db")
    assert _explored(path, _approved(path)) == (6, 0, 4)


def test_a_schedule_that_does_not_end_as_the_reference_says_is_a_failure(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that let anybody prepare who knows the number of the claim."""
    guards = tuple(guard for guard in reducer.GUARDS[Event.PREPARE] if guard.code != "other_worker")
    monkeypatch.setitem(reducer.GUARDS, Event.PREPARE, guards)
    path = new_store(memory / "ledger.db")
    with race(path, 2) as both, pytest.raises(AssertionError, match="rules let action"):
        both.explore(Rules(kills=0))
    check_ledger(path)
