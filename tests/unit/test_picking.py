"""What a look of a worker costs, in runs looked at and questions asked, however many runs nobody can carry out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ports import RunRow
from agent_run_ledger.runs.deaths import Deaths
from agent_run_ledger.worker.picking import ELSEWHERE_S, LOOK_S, LOOKED_AT, MOST_REFUSED_S, PAGE, Picker
from agent_run_ledger.worker.suspects import DEATHS, FIRST_LEFT_S, MOST_LEFT_S, READ

MANY = 10_000
_ROW = RunRow(
    row_id=0, run_uid=b"", run_id="", state=RunState.SUSPENDED, reason="submitted", generation=1, attempt=1,
    created_at_ms=0, updated_at_ms=0, holder="",
)  # fmt: skip


class Queue:
    """A queue in memory that counts what it is asked."""

    def __init__(self, runs: int = 0) -> None:
        self.rows: dict[int, RunRow] = {}
        self.suspended: dict[int, RunRow] = {}
        self.held: set[str] = set()
        self.damaged: set[str] = set()
        self.died: dict[str, Deaths] = {}
        self.stopped: list[str] = []
        self.ago_ms = 0
        self.counts: Counter[str] = Counter()
        self._next = 1
        for _ in range(runs):
            self.submit()

    def submit(self) -> str:
        """Add a run and return its name."""
        row_id, self._next = self._next, self._next + 1
        self.rows[row_id] = replace(_ROW, row_id=row_id, run_id=f"r{row_id}")
        return f"r{row_id}"

    def over(self, row: RunRow) -> None:
        """Take a run out: it is completed."""
        del self.rows[row.row_id]

    def queued(self, *, after_row_id: int = 0, limit: int) -> list[RunRow]:
        """See RunQueue."""
        found: list[RunRow] = []
        row_id = after_row_id
        while len(found) < limit and row_id < self._next:
            row_id += 1
            if row_id in self.rows:
                found.append(self.rows[row_id])
        self.counts["statements"] += 1
        self.counts["rows"] += len(found)
        return found

    def waiting(self, *, after_row_id: int = 0, limit: int) -> list[RunRow]:
        """See RunQueue."""
        self.counts["statements"] += 1
        return [row for row_id, row in sorted(self.suspended.items()) if row_id > after_row_id][:limit]

    def may_go_on(self, row: RunRow, *, pending_ms: int) -> bool:
        """See RunQueue."""
        if row.run_id in self.damaged:
            raise Tampered("its END is gone", code="row_missing")
        return True

    def dies(self, run_id: str, deaths: Deaths) -> None:
        """Let so many processes have died under a run, the last one just now."""
        row_id = int(run_id[1:])
        row, self.died[run_id] = self.rows[row_id], deaths
        attempt = deaths.in_a_row + 1
        self.rows[row_id] = replace(row, state=RunState.RUNNING, reason="", attempt=attempt, generation=attempt)

    def deaths(self, row: RunRow) -> Deaths:
        """See RunQueue."""
        self.counts["deaths"] += 1
        return self.died[row.run_id]

    def since_ms(self, row: RunRow) -> int:
        """See RunQueue."""
        return self.ago_ms

    def is_free_as(self, row: RunRow) -> bool:
        """See RunQueue."""
        return self.rows.get(row.row_id) == row and row.run_id not in self.held

    def stop(self, row: RunRow, *, reason: str) -> bool:
        """See RunQueue."""
        self.stopped.append(reason)
        self.over(row)
        return True

    def was_taken_over(self, row: RunRow) -> bool:
        """See RunQueue."""
        return row.generation > row.attempt

    def live(self, run_ids: Sequence[str]) -> frozenset[str]:
        """See RunQueue."""
        self.counts["statements"] += 1
        return frozenset(run_ids) & self.held

    def costs(self) -> tuple[int, int]:
        """Statements and rows since it was asked last."""
        found = self.counts["statements"], self.counts["rows"]
        self.counts.clear()
        return found


class At:
    """A clock that the test moves."""

    s = 1_000.0

    def __call__(self) -> float:
        return self.s


def picker_of(queue: Queue, at: At, seed: int = 0) -> Picker:
    return Picker(cast(Any, queue), at, pending_ms=0, fraction=Random(seed).random)


def test_many_runs_that_nobody_can_carry_out_hold_up_none_behind_them() -> None:
    """Each is tried once, in its turn; then one that is submitted is picked at once, and what a look costs is flat."""
    queue, at = Queue(MANY), At()
    picker, good, tries = picker_of(queue, at), queue.submit(), 0
    while good not in (names := [row.run_id for row in picker.pick(4, ())]):
        for name in names:
            picker.failed(name, refused=True)
            tries += 1
        at.s += 0.001  # their pauses are over while others wait for their first turn
    assert tries <= 2 * MANY, "of the takes at least every second one is of a run that was not looked at yet"
    statements, rows = queue.costs()
    assert rows <= 2 * (LOOKED_AT + PAGE) * tries / 4
    queue.over(queue.rows[MANY + 1])
    for run_id in [row.run_id for row in queue.rows.values()] * 10:
        picker.failed(run_id, refused=True)  # none of them is due any more
    for _ in range(50):
        at.s += LOOK_S
        name = queue.submit()
        assert [row.run_id for row in picker.pick(2, ())] == [name]
        queue.over(queue.rows[int(name[1:])])
        statements, rows = queue.costs()
        assert rows <= 2 * LOOKED_AT
        assert statements <= 4 * (LOOKED_AT // PAGE + 1)


def test_one_worker_alone_takes_them_in_the_order_of_submission() -> None:
    queue, at = Queue(3 * PAGE), At()
    picker, taken = picker_of(queue, at), list[int]()
    while rows := picker.pick(3, ()):
        for row in rows:
            taken.append(row.row_id)
            queue.over(row)
            picker.ended(row.run_id)
    assert taken == list(range(1, 3 * PAGE + 1))


def test_what_is_refused_is_looked_at_ever_more_seldom_and_never_forgotten() -> None:
    queue, at = Queue(1), At()
    picker, tried = picker_of(queue, at), list[float]()
    for _ in range(2_000):
        at.s += 1.0
        for row in picker.pick(1, ()):
            tried.append(at.s)
            picker.failed(row.run_id, refused=True)
    pauses = [later - sooner for sooner, later in pairwise(tried)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[10:]) == {MOST_REFUSED_S}


def test_what_was_left_behind_is_found_however_much_is_in_front_of_it_and_behind() -> None:
    """A run that was live elsewhere, and whose worker died, while new ones come without an end."""
    queue, at = Queue(1_000), At()
    queue.held = {row.run_id for row in queue.rows.values()}
    picker = picker_of(queue, at)
    while picker.pick(1, ()):
        raise AssertionError("all are live elsewhere")
    for _ in range(10):
        picker.pick(1, ())
        at.s += LOOK_S
    queue.held.remove("r500")
    looks = 0
    while "r500" not in (found := {row.run_id: row for row in picker.pick(1, ())}):
        for row in found.values():
            queue.over(row)
        queue.submit()
        at.s += ELSEWHERE_S / 2
        looks += 1
        assert looks < 40


def test_eight_who_look_at_once_do_not_fight_over_the_head_of_the_queue() -> None:
    """What is taken in vain does not grow like workers times runs. In turns, each with an old answer in its hands."""
    chance, runs, workers, at = Random(7), 400, 8, At()
    queue = Queue(runs)
    pickers = [picker_of(queue, at, seed) for seed in range(workers)]
    hands: list[list[RunRow]] = [[] for _ in pickers]
    vain = done = 0
    while done < runs:
        looked = [picker.pick(1 - len(hand), ()) for picker, hand in zip(pickers, hands, strict=True)]
        for picker, hand, rows in zip(pickers, hands, looked, strict=True):
            for row in rows:
                if row.run_id in queue.held or row.row_id not in queue.rows:
                    vain += 1
                    picker.ended(row.run_id, elsewhere=True)
                else:
                    queue.held.add(row.run_id)
                    hand.append(row)
        for picker, hand in zip(pickers, hands, strict=True):
            if hand and chance.random() < 0.5:
                row = hand.pop()
                picker.ended(row.run_id)
                queue.held.discard(row.run_id)
                queue.over(row)
                done += 1
        at.s += 0.01
    assert vain <= runs / 2, vain


def _turns(room: int, *, waiting: int, looks: int) -> Counter[str]:
    """What was picked while new runs came without an end, and `waiting` ones may go on again and again."""
    queue, at = Queue(PAGE), At()
    for row_id in range(10_001, 10_001 + waiting):
        queue.suspended[row_id] = replace(_ROW, row_id=row_id, run_id=f"w{row_id}", reason="Pending")
    picker, found = picker_of(queue, at), Counter[str]()
    for _ in range(looks):
        rows = picker.pick(room, ())
        assert len(rows) == len({row.run_id for row in rows}) == room
        for row in rows:
            found[row.run_id[0]] += 1
            picker.ended(row.run_id)
            if row.row_id in queue.rows:
                queue.over(row)
                queue.submit()
        at.s += LOOK_S
    return found


def test_new_submissions_without_an_end_do_not_hold_up_what_may_go_on() -> None:
    assert _turns(1, waiting=1, looks=10) == {"w": 5, "r": 5}
    assert _turns(4, waiting=1, looks=10) == {"w": 10, "r": 30}


def test_nor_does_what_may_go_on_hold_up_new_submissions() -> None:
    assert _turns(1, waiting=500, looks=10) == {"w": 5, "r": 5}
    assert _turns(4, waiting=500, looks=10) == {"w": 20, "r": 20}


def test_where_nothing_else_is_to_do_all_the_room_is_for_what_may_go_on() -> None:
    queue, at = Queue(), At()
    for row_id in range(1, 10):
        queue.suspended[row_id] = replace(_ROW, row_id=row_id, run_id=f"w{row_id}", reason="Pending")
    picker, found = picker_of(queue, at), list[str]()
    for _ in range(3):
        found += [row.run_id for row in picker.pick(4, ())]
        at.s += LOOK_S
    assert found == [f"w{row_id}" for row_id in range(1, 10)]


# -- runs under which process after process died ---------------------------------------------------------------------


def _names(picker: Picker, room: int = 1, in_hand: Sequence[str] = ()) -> list[str]:
    return [row.run_id for row in picker.pick(room, in_hand)]


def test_what_died_once_is_taken_at_once_in_its_turn() -> None:
    queue, at = Queue(2), At()
    queue.dies("r1", Deaths(1))
    assert _names(picker_of(queue, at), 2) == ["r1", "r2"]
    assert not queue.counts["deaths"], "nothing is read for it"


def test_what_died_again_and_again_is_left_ever_longer_by_who_starts_anew() -> None:
    """By each worker that starts: none of them has it in its memory."""
    pauses: list[float] = []
    for died in range(2, 14):
        queue, at = Queue(1), At()
        queue.dies("r1", Deaths(died, died, "step"))
        picker, begun_s = picker_of(queue, at), at.s
        while not _names(picker):
            at.s += 0.5
        pauses.append(at.s - begun_s)
    assert pauses[:4] == [FIRST_LEFT_S, 2 * FIRST_LEFT_S, 4 * FIRST_LEFT_S, 8 * FIRST_LEFT_S]
    assert pauses[-1] == MOST_LEFT_S


def test_what_was_left_again_and_again_with_nothing_under_way_is_not_left_for_longer() -> None:
    """By another version of the program, say: the right one is to find it soon."""
    queue, at = Queue(1), At()
    queue.dies("r1", Deaths(50))
    picker = picker_of(queue, at)
    assert _names(picker) == []
    at.s += FIRST_LEFT_S
    assert _names(picker) == ["r1"]


def test_it_is_left_from_its_last_start_on_whatever_clocks_say() -> None:
    for ago_ms, left_s in ((1_500, 0.5), (60_000, 0.0), (-3_600_000, FIRST_LEFT_S)):
        queue, at = Queue(1), At()
        queue.dies("r1", Deaths(2))
        queue.ago_ms = ago_ms
        picker, begun_s = picker_of(queue, at), at.s
        while not _names(picker):
            at.s += 0.25
        assert at.s - begun_s == left_s


def test_it_is_taken_behind_what_was_never_begun() -> None:
    queue, at = Queue(3), At()
    queue.dies("r1", Deaths(2))
    queue.ago_ms = 60_000
    assert _names(picker_of(queue, at), 4) == ["r2", "r3"]


def test_and_in_the_end_however_much_is_submitted() -> None:
    """What was killed beside a run that kills is not held up for ever."""
    queue, at = Queue(PAGE), At()
    queue.dies("r1", Deaths(3, 3, "step"))
    picker, begun_s = picker_of(queue, at), at.s
    while "r1" not in (found := _names(picker)):
        for name in found:
            queue.over(queue.rows[int(name[1:])])
            queue.submit()
        at.s += 0.25
        assert at.s - begun_s < 60
    assert at.s - begun_s >= 2 * 2 * FIRST_LEFT_S, "it waits as long again for an empty hand"


def test_only_one_of_them_is_in_hand_and_only_alone_until_it_waited_long() -> None:
    queue, at = Queue(2), At()
    for name in ("r1", "r2"):
        queue.dies(name, Deaths(2))
    queue.ago_ms = 60_000
    picker = picker_of(queue, at)
    for _ in range(3):
        assert _names(picker, 4, ("x",)) == []
    assert _names(picker, 4) == ["r1"]
    at.s += 100 * FIRST_LEFT_S
    assert _names(picker, 4, ("r1",)) == []
    assert _names(picker, 4, ("r1",)) == []
    assert _names(picker, 4, ("x",)) == ["r2"]


def test_one_that_was_carried_on_since_it_was_noted_is_not_taken() -> None:
    queue, at = Queue(1), At()
    queue.dies("r1", Deaths(2))
    queue.ago_ms = 60_000
    picker = picker_of(queue, at)
    assert _names(picker, 4, ("x",)) == []  # noted: it is due
    at.s += 100 * FIRST_LEFT_S
    queue.held.add("r1")
    assert _names(picker, 4, ("x",)) == []


def test_what_died_in_one_call_too_often_is_stopped_and_told() -> None:
    told: list[tuple[str, str]] = []
    for most, in_call, stopped in ((3, 3, True), (3, 2, False), (0, 99, False)):
        queue, at = Queue(1), At()
        queue.dies("r1", Deaths(5, in_call, "crash"))
        picker = Picker(
            cast(Any, queue),
            at,
            pending_ms=0,
            fraction=float,
            most_deaths=most,
            stopped=lambda *said: told.append(said),
        )
        assert _names(picker) == []
        assert bool(queue.stopped) is stopped
    ((run_id, reason),) = told
    assert run_id == "r1"
    assert reason.startswith(f"{DEATHS}3 processes in a row ended while a call of crash was under way")
    assert "`arl runs release`" in reason


def test_a_look_reads_the_records_of_a_few_and_of_each_once() -> None:
    queue, at = Queue(1_000), At()
    for number in range(1, 1_001):
        queue.dies(f"r{number}", Deaths(9, 9, "step"))
    picker = picker_of(queue, at)
    for look in range(1, 151):
        assert _names(picker, 4) == []
        assert queue.counts["deaths"] <= look * READ
        at.s += LOOK_S
    assert queue.counts["deaths"] == 1_000


def test_a_run_that_was_taken_over_is_free_though_its_holder_lives() -> None:
    queue, at = Queue(2), At()
    queue.held = {"r1", "r2"}
    queue.rows[2] = replace(queue.rows[2], generation=2)
    assert _names(picker_of(queue, at), 4) == ["r2"]


# -- one run that cannot be looked at ----------------------------------------------------------------------------------


def test_what_is_damaged_is_passed_over_told_once_and_left_ever_longer() -> None:
    queue, at = Queue(1), At()
    for row_id in (10_001, 10_002):
        queue.suspended[row_id] = replace(_ROW, row_id=row_id, run_id=f"w{row_id}", reason="Pending")
    queue.damaged.add("w10001")
    told: list[str] = []
    picker = Picker(cast(Any, queue), at, pending_ms=0, fraction=float, refused=lambda run_id, _: told.append(run_id))
    assert _names(picker, 9) == ["r1", "w10002"]
    assert told == ["w10001"]
    lengths = list[float]()
    for _ in range(40):
        at.s += LOOK_S
        picker.pick(9, ("w10002", "r1"))
        lengths.append(picker._until_s.get("w10001", at.s) - at.s)
    assert told == ["w10001"]
    assert max(lengths) > 10


def test_what_says_that_the_store_is_another_one_is_raised() -> None:
    queue, at = Queue(), At()
    queue.suspended[1] = replace(_ROW, row_id=1, run_id="w1", reason="Pending")

    def replaced(*_: object, **__: object) -> bool:
        raise Tampered("another file", code="store_replaced")

    queue.may_go_on = replaced  # type: ignore[method-assign]
    with pytest.raises(Tampered):
        picker_of(queue, at).pick(1, ())


def test_nothing_of_a_run_that_somebody_else_ended_is_remembered_for_ever() -> None:
    queue, at = Queue(1), At()
    picker = picker_of(queue, at)
    assert _names(picker) == ["r1"]
    picker.failed("r1", refused=True)
    queue.rows.clear()
    at.s += 3 * MOST_REFUSED_S
    assert _names(picker) == []
    assert (picker._tries, picker._failed_until_s, picker._refused, picker._until_s) == ({}, {}, set(), {})
    queue.submit()
    queue.dies("r2", Deaths(2))
    assert _names(picker) == []
    queue.rows.clear()
    at.s += 3 * MOST_LEFT_S
    assert _names(picker) == []
    assert picker._suspects._known == {}
