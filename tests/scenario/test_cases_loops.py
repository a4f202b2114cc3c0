"""Loops from public bug reports, as calls that the loop rule judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.kernel.loops import Call, Detector, Level, glimpse_of
from agent_run_ledger.kernel.policy import LoopDetectorPolicy
from tests.unit.loop_calls import call, trip, verdicts

CASES = {
    "LOOP-01": "test_identical_calls_with_a_cosmetic_counter_are_stopped_by_the_fourth",
    "LOOP-03": "test_the_same_failing_call_is_stopped_by_the_fourth_and_the_reason_says_so",
    "LOOP-05": "test_turning_pages_is_no_loop",
    "LOOP-06": "test_asking_again_after_a_user_turn_or_in_another_run_is_no_loop",
}


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_test(shared: Path, case: str) -> None:
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    assert case in {json.loads(line)["id"] for line in lines}
    assert CASES[case] in globals()


@pytest.mark.parametrize("answer", ["noop", "", None, "ok", {"ok": True}, {"output": "noop"}])
def test_identical_calls_with_a_cosmetic_counter_are_stopped_by_the_fourth(answer: Any) -> None:
    looping = [call("bash", answer, cmd="echo noop", label=f"noop{i}") for i in range(220)]
    stopped = trip(looping)
    assert stopped is not None
    assert stopped + 1 <= 4


@pytest.mark.parametrize(
    "failed",
    [call("read", "error: too large", path="/big"), call("read", error="ValueError: too large", path="/big")],
    ids=["returned", "raised"],
)
def test_the_same_failing_call_is_stopped_by_the_fourth_and_the_reason_says_so(failed: Call) -> None:
    stopped = next(one for one in verdicts([failed] * 4) if one.level is Level.QUARANTINE)
    assert "same error repeated" in stopped.words()
    assert "same error repeated" in stopped.explain()


def test_turning_pages_is_no_loop() -> None:
    pages = [
        call("list_invoices", {"invoices": [f"INV-{8 * page + n}" for n in range(8)]}, page=page, page_size=50)
        for page in range(1, 9)
    ]
    assert trip(pages) is None
    assert trip([call("list_invoices", f"page {page}", page=page, page_size=50) for page in range(1, 9)]) is None


@pytest.mark.parametrize("answer", [{"state": "running"}, "all is well here", {"ok": True}])
def test_asking_again_after_a_user_turn_or_in_another_run_is_no_loop(answer: Any) -> None:
    asked = glimpse_of(call("status", answer, job="j1"))
    chat, agents = Detector(LoopDetectorPolicy()), [Detector(LoopDetectorPolicy()) for _ in range(3)]
    levels: list[Level] = []
    for turn in range(6):
        chat.turn()
        levels.append(chat.observe(turn, asked).level)
    levels += [agent.observe(0, asked).level for agent in agents]
    assert set(levels) == {Level.OK}
