"""Replay: each change of a run or a call that no table allows is named, and no honest history is."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.replay import RUN_KINDS, Replay
from agent_run_ledger.kernel.states import RUN_TRANSITIONS, CallState, RunEvent, RunState, next_run_state

K = RecordKind


def begun(generation: int = 1, state: str = "running") -> Replay:
    replay = Replay()
    assert replay.run_change("r", "none", "running", 1, kind=K.START, record_id=0) == []
    replay.tracks["r"].generation = generation
    replay.tracks["r"].state = state
    return replay


def run_change(replay: Replay, old: str, new: str, generation: int, kind: RecordKind | None) -> list[str]:
    return replay.run_change("r", old, new, generation, kind=kind, record_id=7 << 16)


def step_change(replay: Replay, old: str, new: str, kind: RecordKind | None, generation: int = 1) -> list[str]:
    return replay.step_change("r", old, new, generation, kind=kind, record_id=7 << 16)


def test_the_pairs_of_the_replay_are_those_of_the_state_table() -> None:
    pairs = {("none" if old is None else str(old), str(new)) for (old, _), new in RUN_TRANSITIONS.items()}
    assert set(RUN_KINDS) == pairs


def test_every_cell_of_state_state_and_record() -> None:
    by = {
        K.START: [RunEvent.START],
        K.END: [RunEvent.COMPLETE, RunEvent.FAIL, RunEvent.SUSPEND],
        K.DECISION: [RunEvent.QUARANTINE, RunEvent.RELEASE, RunEvent.TAKEOVER, RunEvent.CANCEL],
    }
    accepted, lawful = set(), set()
    for old, new, kind in itertools.product([None, *RunState], RunState, [None, *RecordKind]):
        said = "none" if old is None else str(old)
        replay = Replay() if old is None else begun(3, said)
        if run_change(replay, said, str(new), 1 if old is None else 4, kind) == []:
            accepted.add((old, new, kind))
        if kind is not None and any(next_run_state(old, event) is new for event in by.get(kind, [])):
            lawful.add((old, new, kind))
        assert replay.tracks["r"].state == str(new)
    assert accepted == lawful
    assert len(lawful) == 18


def test_a_state_that_was_not_is_named() -> None:
    assert run_change(begun(), "failed", "running", 2, K.START) == [
        "the run is said to have been failed, and it was running"
    ]
    assert "was none" in run_change(Replay(), "failed", "running", 2, K.START)[0]


@pytest.mark.parametrize(
    ("old", "new", "generation", "kind", "wrong"),
    [
        ("running", "failed", 5, K.END, False),
        ("running", "failed", 6, K.END, False),
        ("running", "failed", 4, K.END, True),
        ("running", "running", 6, K.START, False),
        ("running", "running", 5, K.START, True),
        ("failed", "running", 6, K.START, False),
        ("failed", "running", 5, K.START, True),
        ("running", "running", 6, K.DECISION, False),
        ("running", "running", 5, K.DECISION, True),
        ("running", "quarantined", 5, K.DECISION, False),
        ("running", "quarantined", 4, K.DECISION, True),
    ],
)
def test_the_generation_never_falls_and_rises_with_an_attempt(
    old: str, new: str, generation: int, kind: RecordKind, wrong: bool
) -> None:
    assert bool(run_change(begun(5, old), old, new, generation, kind)) is wrong


@pytest.mark.parametrize(("generation", "wrong"), [(0, True), (1, False), (2, True)])
def test_a_run_begins_with_generation_one(generation: int, wrong: bool) -> None:
    assert bool(run_change(Replay(), "none", "running", generation, K.START)) is wrong


def test_every_cell_of_a_call() -> None:
    accepted = set()
    for old, new, kind in itertools.product([*CallState, "other"], [*CallState, "other"], [None, *RecordKind]):
        replay = begun()
        replay.tracks["r"].in_flight = 1
        if step_change(replay, str(old), str(new), kind) == []:
            accepted.add((str(old), str(new), kind))
    assert accepted == {
        ("none", "started", None),
        ("started", "recorded", K.RESULT),
        ("started", "failed", K.ERROR),
        ("started", "abandoned", K.ABANDONED),
        ("started", "rescued", K.RESCUED),
        ("started", "unknown", K.ABANDONED),
        ("unknown", "resolved", K.DECISION),
        ("resolved", "recorded", K.RESULT),
        ("resolved", "failed", K.ERROR),
        ("recorded", "erased", K.DECISION),
    }


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("in_flight", [0, 2])
def test_an_erasure_comes_in_any_state_and_concludes_no_call(state: RunState, in_flight: int) -> None:
    replay = begun(1, str(state))
    replay.tracks["r"].in_flight = in_flight
    assert step_change(replay, "recorded", "erased", K.DECISION) == []
    assert (replay.tracks["r"].in_flight, replay.tracks["r"].state) == (in_flight, str(state))
    assert (replay.tracks["r"].erasure_id, replay.tracks["r"].last_leaf) == (7 << 16, 7)
    assert step_change(replay, "recorded", "erased", None)


@pytest.mark.parametrize("state", RunState)
def test_calls_start_only_while_the_run_runs_and_end_whenever(state: RunState) -> None:
    replay = begun(1, str(state))
    replay.tracks["r"].in_flight = 1
    assert (step_change(replay, "none", "started", None) == []) is (state is RunState.RUNNING)
    assert step_change(replay, "started", "recorded", K.RESULT) == []


def test_a_call_of_another_generation_or_of_no_run_is_named() -> None:
    assert step_change(begun(2), "none", "started", None, 1) == ["a call of generation 1 in a run of generation 2"]
    assert step_change(begun(1), "none", "started", None, 2) == ["a call of generation 2 in a run of generation 1"]
    assert step_change(Replay(), "none", "started", None) == ["a call of a run that never began"]


@given(st.lists(st.booleans(), max_size=40))
def test_calls_in_flight_are_those_started_and_not_concluded(starts: list[bool]) -> None:
    replay, in_flight = begun(), 0
    for start in starts:
        if start:
            assert step_change(replay, "none", "started", None) == []
            in_flight += 1
        else:
            wrong = step_change(replay, "started", "failed", K.ERROR)
            assert (wrong == ["a call was concluded that was not in flight"]) is (in_flight == 0)
            in_flight = max(0, in_flight - 1)
        assert replay.tracks["r"].in_flight == in_flight


def test_a_track_keeps_what_the_row_must_say() -> None:
    replay = Replay()
    replay.run_change("r", "none", "running", 1, kind=K.START, record_id=0 << 16)
    replay.run_change("r", "running", "failed", 1, kind=K.END, record_id=5 << 16 | 1)
    track = replay.tracks["r"]
    assert (track.attempt, track.first_start_id, track.last_start_id, track.end_record_id) == (1, 0, 0, 5 << 16 | 1)
    replay.run_change("r", "failed", "failed", 2, kind=K.DECISION, record_id=6 << 16)
    assert (track.attempt, track.end_record_id, track.last_leaf) == (1, 5 << 16 | 1, 6)
    replay.run_change("r", "failed", "running", 3, kind=K.START, record_id=8 << 16)
    assert (track.attempt, track.first_start_id, track.last_start_id, track.end_record_id) == (2, 0, 8 << 16, None)
