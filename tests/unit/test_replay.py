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
        replay.tracks["r"].unknown, replay.tracks["r"].resolved_id = frozenset({5}), (7 << 16) - 1
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


def unknown_at(*record_ids: int, state: str = "running") -> Replay:
    """A run with calls whose outcomes are unknown, in a state."""
    replay = begun()
    for record_id in record_ids:
        replay.tracks["r"].in_flight += 1
        assert replay.step_change("r", "started", "unknown", 1, kind=K.ABANDONED, record_id=record_id) == []
    replay.tracks["r"].state = state
    return replay


def resolve(replay: Replay, record_id: int, resolves: int | None) -> list[str]:
    return replay.step_change("r", "unknown", "resolved", 1, kind=K.DECISION, record_id=record_id, resolves=resolves)


def outcome(replay: Replay, record_id: int, new: str = "recorded") -> list[str]:
    kind = K.RESULT if new == "recorded" else K.ERROR
    return replay.step_change("r", "resolved", new, 1, kind=kind, record_id=record_id)


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("new", ["recorded", "failed"])
def test_a_resolution_and_its_outcome_come_in_any_state_and_conclude_no_call(state: RunState, new: str) -> None:
    replay = unknown_at(5, state=str(state))
    replay.tracks["r"].in_flight = 2
    assert resolve(replay, 7 << 16, 5) == []
    assert outcome(replay, 7 << 16 | 1, new) == []
    track = replay.tracks["r"]
    assert (track.in_flight, track.state, track.unknown, track.last_leaf) == (2, str(state), frozenset(), 7)


@pytest.mark.parametrize(
    ("standing", "resolves", "wrong"),
    [((), 5, True), ((), None, True), ((5,), 6, True), ((5,), -1, True), ((5, 6), 6, False), ((5,), None, False)],
)
def test_only_a_call_whose_outcome_is_unknown_is_resolved(
    standing: tuple[int, ...], resolves: int | None, wrong: bool
) -> None:
    assert bool(resolve(unknown_at(*standing), 7 << 16, resolves)) is wrong


def test_a_call_is_resolved_once() -> None:
    replay = unknown_at(5, 6)
    assert resolve(replay, 7 << 16, 5) == []
    assert resolve(replay, 8 << 16, 5) == ["a call was resolved whose outcome was not unknown, or not any more"]
    assert resolve(replay, 9 << 16, 6) == []


@pytest.mark.parametrize("place", [7 << 16, 7 << 16 | 2, 8 << 16, 8 << 16 | 1])
def test_an_outcome_stands_right_behind_its_resolution(place: int) -> None:
    replay = unknown_at(5)
    assert resolve(replay, 7 << 16, 5) == []
    assert "right behind its resolution" in outcome(replay, place)[0]


def test_a_resolution_has_one_outcome_and_none_comes_without_one() -> None:
    replay = unknown_at(5)
    assert outcome(replay, 6 << 16)[0].endswith("right behind its resolution")
    assert resolve(replay, 7 << 16, 5) == []
    assert outcome(replay, 7 << 16 | 1) == []
    assert outcome(replay, 7 << 16 | 1, "failed") != []
    assert outcome(replay, 7 << 16 | 2) != []


def test_an_unknown_outcome_concludes_a_call_in_flight() -> None:
    replay = begun()
    assert step_change(replay, "started", "unknown", K.ABANDONED) == ["a call was concluded that was not in flight"]


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
