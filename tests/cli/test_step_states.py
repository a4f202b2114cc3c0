"""Where a step stood, judged from records: the table of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_run_ledger.kernel.digests import short_digest
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.step_states import StepDefinition, StepState, settle
from agent_run_ledger.ledger.views import RecordView

SALT = b"s" * 32
OLD, NEW = b"o" * 32, b"n" * 32


def _step(name: str, *needs: str) -> StepDefinition:
    return StepDefinition(name=name, version="1", depends_on=needs, code_hex="")


def _record(record_id: int, attempt: int, kind: RecordKind = RecordKind.RESULT, **more: object) -> RecordView:
    plain = RecordView(
        record_id=record_id,
        leaf_index=record_id,
        kind=kind,
        step="",
        attempt=attempt,
        tries=1,
        started_at_ms=0,
        ended_at_ms=0,
        stored_bytes=0,
        fingerprint=b"",
        value_sha256=OLD,
        code_hex="",
        because=(),
        error="",
        erased=False,
        salt=SALT,
        arguments={},
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def _states(
    steps: list[StepDefinition],
    records: dict[str, list[RecordView]],
    attempt: int,
    *,
    used: set[int] | None = None,
    in_flight: set[str] | None = None,
    running: bool = False,
) -> dict[str, StepState]:
    settled = settle(steps, records, attempt=attempt, used=used, in_flight=in_flight or set(), running=running)
    return {name: one.state for name, one in settled.items()}


@pytest.mark.parametrize(
    ("records", "attempt", "state"),
    [
        ([], 1, StepState.WAITING),
        ([_record(1, 1)], 1, StepState.LIVE),
        ([_record(1, 1)], 2, StepState.RESTORED),
        ([_record(1, 1), _record(2, 2)], 2, StepState.LIVE),
        ([_record(1, 1), _record(2, 2)], 1, StepState.LIVE),
        ([_record(1, 2)], 1, StepState.WAITING),
        ([_record(1, 1, RecordKind.ERROR)], 1, StepState.FAILED),
        ([_record(1, 1, RecordKind.ERROR)], 2, StepState.WAITING),
        ([_record(1, 1, RecordKind.ERROR), _record(2, 1)], 1, StepState.LIVE),
        ([_record(1, 1), _record(2, 2, RecordKind.ERROR)], 2, StepState.FAILED),
        ([_record(1, 1, RecordKind.RESCUED)], 1, StepState.RESCUED),
        ([_record(1, 1, RecordKind.ABANDONED)], 1, StepState.UNCERTAIN),
        ([_record(1, 1, RecordKind.ABANDONED), _record(2, 2)], 2, StepState.LIVE),
    ],
)
def test_one_step(records: list[RecordView], attempt: int, state: StepState) -> None:
    assert _states([_step("a")], {"a": records}, attempt) == {"a": state}


@pytest.mark.parametrize(("running", "state"), [(True, StepState.RUNNING), (False, StepState.UNCERTAIN)])
def test_a_start_mark_is_a_running_step_or_an_uncertain_one(running: bool, state: StepState) -> None:
    records = {"a": [_record(1, 1)]}
    assert _states([_step("a")], records, 2, in_flight={"a"}, running=running) == {"a": state}


def test_the_records_a_completed_run_rests_on_decide() -> None:
    records = {"a": [_record(1, 1), _record(2, 2)], "b": [_record(3, 1)]}
    steps = [_step("a"), _step("b")]
    assert _states(steps, records, 3, used={1}) == {"a": StepState.RESTORED, "b": StepState.KEPT}
    settled = settle(steps, records, attempt=3, used={1}, in_flight=(), running=False)
    assert settled["a"].record == records["a"][0]


def test_a_step_behind_a_failed_one_was_not_reached() -> None:
    steps = [_step("a"), _step("b", "a"), _step("c", "b")]
    records = {
        "a": [_record(1, 1), _record(4, 2, RecordKind.ERROR)],
        "b": [_record(2, 1)],
        "c": [_record(3, 1)],
    }
    assert _states(steps, records, 2) == {"a": StepState.FAILED, "b": StepState.KEPT, "c": StepState.KEPT}


def test_restoring_runs_down_the_graph_whatever_the_order_of_definition() -> None:
    steps = [_step("c", "b"), _step("b", "a"), _step("a")]
    records = {"a": [_record(1, 1)], "b": [_record(2, 1)], "c": [_record(3, 1)]}
    assert set(_states(steps, records, 2).values()) == {StepState.RESTORED}


@pytest.mark.parametrize(
    ("result", "taken", "state"),
    [(OLD, OLD, StepState.RESTORED), (NEW, OLD, StepState.KEPT), (NEW, NEW, StepState.RESTORED)],
)
def test_a_dependency_with_a_newer_result_must_be_the_one_that_was_taken(
    result: bytes, taken: bytes, state: StepState
) -> None:
    steps = [_step("a"), _step("b", "a")]
    arguments = {"x": short_digest(SALT, "a.x", taken)}
    records = {
        "a": [_record(1, 1), _record(3, 2, value_sha256=result)],
        "b": [_record(2, 1, arguments=arguments)],
    }
    assert _states(steps, records, 2) == {"a": StepState.LIVE, "b": state}


@pytest.mark.parametrize(
    "stored",
    [None, "x", 5, {}, [5], [[]], [["a", "1", [], "00", "more"]], [["a", "1", "b", "00"]], [["a", "1", None, "00"]]],
)
def test_a_graph_that_is_none_is_no_step(stored: object) -> None:
    assert StepDefinition.parse_all(stored) == ()


def test_a_graph_is_read_as_it_was_written() -> None:
    (step,) = StepDefinition.parse_all([["b", "2", ["a"], "0011"]])
    assert step == StepDefinition(name="b", version="2", depends_on=("a",), code_hex="0011")
