"""Erased records in a log: fine where a decision explains them as they stand, and a problem in every other case."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.verify import verify_log
from tests.unit.forgeries import change_record, honest, only_problem, rewrite, texts
from tests.unit.memory_log import MemoryLog, Story


def _run() -> tuple[MemoryLog, Story]:
    """A run of two attempts with records at leaves 0, 2, 3, 5 (two: START and ABANDONED), 7 and 8."""
    log = MemoryLog()
    story = Story(log)
    story.start()  # 0
    story.begin()  # 1
    story.conclude(RecordKind.ERROR, begin=1)  # 2
    story.conclude(begin=1)  # 3
    story.decide(RunState.RUNNING, takeover=True)  # 4
    story.start()  # 5
    story.begin()  # 6
    story.conclude()  # 7
    story.end()  # 8
    return log, story


START, ERROR, RESULT, START_2, ABANDONED, RESULT_2, END = 0, 2 << 16, 3 << 16, 5 << 16, 5 << 16 | 1, 7 << 16, 8 << 16
ALL = (START, ERROR, RESULT, START_2, ABANDONED, RESULT_2)


def test_every_proof_holds_after_everything_that_can_be_is_erased() -> None:
    log, story = _run()
    before = verify_log(log)
    story.erase(*ALL)
    report = verify_log(log)
    assert report.ok, report.problems
    assert (report.erased, report.records, before.erased) == (6, before.records + 1, 0)


def test_erasures_one_after_another_name_each_record_once() -> None:
    log, story = _run()
    story.erase(ERROR, START_2)
    story.erase(RESULT, ABANDONED, name="prune")
    story.erase(START, RESULT_2)
    report = verify_log(log)
    assert report.ok, report.problems
    assert report.erased == 6


@pytest.mark.parametrize("more", [1, 300])
def test_an_erasure_in_a_long_log_of_many_runs_adds_up(more: int) -> None:
    log = honest(more)
    story = Story(log, "r3")
    places = [place for place, stored in log.stored.items() if stored.run_row_id == story.row_id]
    story.erase(*places[::2])
    story.erase(*places[1::2])
    report = verify_log(log)
    assert report.ok, report.problems
    assert report.erased == len(places)


def _null(log: MemoryLog, place: int) -> None:
    change_record(log, place, salt=b"")


def _put_back(log: MemoryLog, before: MemoryLog, place: int) -> None:
    log.stored[place] = before.stored[place]


FORGERIES: dict[str, tuple[Callable[[MemoryLog, MemoryLog], object], str]] = {
    "a salt taken by hand": (lambda log, _: _null(log, RESULT_2), "is erased, and no decision says so"),
    "a record put back": (lambda log, was: _put_back(log, was, RESULT), "it erased 2 records, and 1 of them"),
    "an erased record deleted": (lambda log, _: log.stored.pop(RESULT), "a record that is not in the store"),
    "a payload put back": (lambda log, _: change_record(log, RESULT, payload=b"x"), "what is left of the records"),
    "another name": (lambda log, _: change_record(log, RESULT, name="other"), "what is left of the records"),
    "another usage": (lambda log, _: change_record(log, ERROR, usage=b"[]"), "what is left of the records"),
    "another kind": (lambda log, _: change_record(log, ERROR, kind=RecordKind.RESULT), "by a record RESULT"),
    "an end erased": (lambda log, _: _null(log, END), "a record END is erased"),
    "another run's": (lambda log, _: change_record(log, RESULT, run_uid=b"x" * 16), "to another run than its change"),
    "no text": (lambda log, _: change_record(log, RESULT, name=b"step"), "cannot be read"),
    "the decision erased": (lambda log, _: _null(log, 9 << 16), "a record DECISION is erased"),
    "the decision gone": (lambda log, _: log.stored.pop(9 << 16), "a record that is not in the store"),
}


@pytest.mark.parametrize("forgery", list(FORGERIES))
def test_every_forgery_about_erased_records_is_found(forgery: str) -> None:
    log, story = _run()
    before, _ = _run()
    story.erase(ERROR, RESULT)
    assert verify_log(log).ok
    forge, words = FORGERIES[forgery]
    forge(log, before)
    report = verify_log(log)
    assert not report.ok
    assert any(words in text for text in texts(report)), texts(report)


@pytest.mark.parametrize("said", [{"count": 3}, {"count": 1}, {"kept_sha256": "00" * 32}, {"ranges": [[0, ERROR]]},
                                  {"event": "cancel"}, {"event": "prune"}, {"ranges": None}])  # fmt: skip
def test_a_decision_that_says_what_is_not_so_is_a_problem(said: dict[str, Any]) -> None:
    log, story = _run()
    story.erase(ERROR, RESULT, **said)
    report = verify_log(log)
    assert not report.ok
    assert report.problems[0].leaf_index == 9 or report.problems[0].leaf_index in (2, 3)


def test_a_decision_explains_nothing_that_was_erased_of_another_run() -> None:
    log, story = _run()
    other = Story(log, "r2")
    other.start()
    change_record(log, 9 << 16, salt=b"", payload=b"", fingerprint=(9 << 16).to_bytes(8, "big"))
    story.erase(ERROR, RESULT, count=3, ranges=[[ERROR, 9 << 16]])
    report = verify_log(log)
    assert any(b"r2".hex() in text and "no decision" in text for text in texts(report))


def test_a_change_to_erased_without_the_record_of_a_decision_is_a_problem() -> None:
    log, story = _run()
    story.erase(ERROR)
    rewrite(log, 9, lambda envelope: envelope["changes"][0].update(old="started", new="recorded"))
    assert not verify_log(log).ok


def test_the_name_of_a_run_is_held_against_its_erasure_when_its_start_is_erased() -> None:
    log, story = _run()
    story.erase(*ALL)
    log.rows["another"] = replace(log.rows.pop("r1"), run_id="another")
    assert only_problem(verify_log(log)).text == "the row of run 'another' says run_id 'another', the log 'r1'"


def test_what_is_erased_while_the_log_is_read_is_followed() -> None:
    """The records were read before they were erased, the decision comes after them."""
    log, story = _run()
    for _ in range(300):
        Story(log, f"filler {_}").start()
    erased = False

    def meanwhile(done: int, total: int) -> None:
        nonlocal erased
        if not erased:
            erased = True
            story.erase(START, RESULT)

    report = verify_log(log, progress=meanwhile)
    assert report.ok, report.problems
    assert verify_log(log).ok


def test_a_record_erased_just_after_the_last_look_is_followed_to_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run begins when all rows are compared, and is erased while its leaf is read: the decision lies behind that."""
    log, _ = _run()
    late = Story(log, "late")
    whole_ids, whole_records, started = log.run_row_ids, log.leaf_records, list[int]()

    def begin_behind_the_last_row(*, before_row_id: int | None, limit: int) -> list[int]:
        found = whole_ids(before_row_id=before_row_id, limit=limit)
        if not found:
            started.append(late.start())
        return found

    def erase_first(*, first: int, stop: int) -> Any:
        if started == [first]:
            late.erase(first << 16)
        return whole_records(first=first, stop=stop)

    monkeypatch.setattr(log, "run_row_ids", begin_behind_the_last_row)
    monkeypatch.setattr(log, "leaf_records", erase_first)
    report = verify_log(log)
    assert report.ok, report.problems
    assert (report.erased, report.leaves) == (1, 11)


def test_the_mac_of_a_decision_is_checked_before_it_is_believed() -> None:
    log, story = _run()
    index = story.erase(ERROR)
    stored = log.stored[index << 16]
    content = json.loads(stored.record.payload) | {"count": 2, "ranges": [[ERROR, RESULT]]}
    forged = replace(stored.record, payload=json.dumps(content).encode())
    assert record_mac(forged) != record_mac(stored.record)
    log.stored[index << 16] = replace(stored, record=forged)
    change_record(log, RESULT, salt=b"")
    found = texts(verify_log(log))
    assert any("not the one whose MAC" in text for text in found)
    assert sum("no decision says so" in text for text in found) == 2
