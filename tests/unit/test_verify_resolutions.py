"""The auditor's check of calls with unknown outcomes: what a person resolves, once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.verify import verify_log
from tests.unit.forgeries import texts
from tests.unit.memory_log import MemoryLog, Story

K = RecordKind


def stories() -> tuple[MemoryLog, Story, int, int]:
    """A log with a run of two unknown outcomes, and the ids of their records."""
    log = MemoryLog()
    story = Story(log)
    story.start()
    story.begin(2)
    return log, story, story.leave_unknown(), story.leave_unknown()


@pytest.mark.parametrize("kinds", [(), (K.RESULT,), (K.ERROR,)])
def test_an_honest_resolution_has_no_problem(kinds: tuple[RecordKind, ...]) -> None:
    log, story, first, second = stories()
    assert texts(verify_log(log)) == []
    story.resolve(second, *kinds)
    story.decide(RunState.CANCELLED)
    story.resolve(first)
    assert texts(verify_log(log)) == []


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (lambda s, a: [s.resolve(a), s.resolve(a)], "or not any more"),
        (lambda s, a: s.resolve(a + 1), "was not unknown"),
        (lambda s, _: s.resolve(None), "was not unknown"),
        (lambda s, _: s.resolve("x"), "was not unknown"),
        (lambda s, _: s.resolve(True), "was not unknown"),
        (lambda s, a: s.resolve(a, K.RESULT, K.RESULT), "right behind its resolution"),
        (lambda s, a: s.resolve(a, K.RESULT, K.ERROR), "right behind its resolution"),
    ],
)
def test_a_forged_resolution_is_named(forge: Callable[[Story, int], object], words: str) -> None:
    log, story, first, _ = stories()
    forge(story, first)
    (said,) = texts(verify_log(log))
    assert words in said


def test_a_resolution_of_another_run_is_named() -> None:
    log, _, first, _ = stories()
    other = Story(log, "r2")
    other.start()
    other.resolve(first)
    (said,) = texts(verify_log(log))
    assert "was not unknown" in said


def test_a_decision_that_is_gone_is_one_problem() -> None:
    log, story, first, _ = stories()
    index = story.resolve(first, K.RESULT)
    del log.stored[index << 16]
    (said,) = texts(verify_log(log))
    assert "that is not in the store" in said
