"""verify_log: silent about every honest log, and loud, precise and tireless about every other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.regrown import RegrownTree
from agent_run_ledger.ledger.verify import MAX_PROBLEMS, Report, verify_log
from tests.unit.forgeries import change_record, change_row, honest, only_problem, put, rewrite, texts
from tests.unit.memory_log import MemoryLog, Story


def test_an_honest_log_has_no_problems() -> None:
    log = honest()
    report = verify_log(log, log_id=log.log_id)
    assert report.problems == ()
    assert report.ok
    assert (report.leaves, report.records, report.runs) == (20, len(log.stored), 3)
    assert report.root_hex == root(20, log.frontier).hex()
    assert report.log_id_hex == log.log_id.hex()


@pytest.mark.parametrize("more", [235, 236, 237, 492, 600])
def test_an_honest_log_with_tiles_has_no_problems(more: int) -> None:
    log = honest(more)
    report = verify_log(log)
    assert report.problems == ()
    assert report.leaves == 20 + more
    assert report.root_hex == root(log.size, log.frontier).hex()


def test_the_second_level_of_tiles_is_compared_too() -> None:
    log = MemoryLog()
    for index in range(66_000):
        log.append_leaf(b"", b"%d" % index)
    tree = RegrownTree(log)
    assert [wrong for leaf in log.hashes if (wrong := tree.append(leaf))] == []
    assert tree.frontier() == log.frontier
    assert tree.stray_tiles(lambda: log.size) == []
    log.tiles[1, 0] = log.tiles[1, 0][:-1] + b"\0"
    tree = RegrownTree(log)
    found = [wrong for leaf in log.hashes if (wrong := tree.append(leaf))]
    assert found == [["tile 0 of level 1 does not have the nodes above its leaves"]]


def test_an_empty_log_is_honest() -> None:
    report = verify_log(MemoryLog())
    assert report == Report(
        leaves=0, records=0, runs=0, log_id_hex="", root_hex=root(0, ()).hex(), problems=(), problem_count=0
    )


# One forgery each: what it does, the leaf that is named, and the words.

Forgery = Callable[[MemoryLog], object]

ENVELOPES: dict[str, tuple[Forgery, int, str]] = {
    "a space": (lambda log: put(log, 2, log.leaves[2].envelope.replace(b",", b", ", 1)), 2, "canonical"),
    "another order": (
        lambda log: put(log, 2, b'{"v":1,' + log.leaves[2].envelope[1:].replace(b',"v":1', b"")),
        2,
        "canonical",
    ),
    "a repeated key": (lambda log: put(log, 2, log.leaves[2].envelope[:-1] + b',"v":1}'), 2, "canonical"),
    "no JSON": (lambda log: put(log, 2, b"{"), 2, "not JSON"),
    "no object": (lambda log: put(log, 2, b"[1]"), 2, "canonical"),
    "another field": (lambda log: rewrite(log, 2, lambda e: e.update(zzz=1)), 2, "other fields"),
    "a field less": (lambda log: rewrite(log, 2, lambda e: e.pop("epoch")), 2, "other fields"),
    "no changes": (lambda log: rewrite(log, 2, lambda e: e.update(changes=[])), 2, "other fields"),
    "another version": (lambda log: rewrite(log, 2, lambda e: e.update(v=2)), 2, "version 2 is not known"),
    "no version": (lambda log: rewrite(log, 2, lambda e: e.update(v=True)), 2, "version True is not known"),
    "another log": (lambda log: rewrite(log, 2, lambda e: e.update(log_id="0" * 32)), 2, "belongs to log 0000"),
    "another op_id": (lambda log: rewrite(log, 2, lambda e: e.update(op_id="0" * 32)), 2, "op_id"),
    "a time before": (lambda log: rewrite(log, 2, lambda e: e.update(time_ms=1_001)), 2, "time_ms is 1001, after 1002"),
    "a time that is no integer": (
        lambda log: rewrite(log, 2, lambda e: e.update(time_ms=1e6 + 0.5)),
        2,
        "time_ms is 1000000.5",
    ),
    "an epoch below": (lambda log: rewrite(log, 2, lambda e: e.update(epoch=-1)), 2, "epoch is -1"),
}

CHANGES: dict[str, dict[str, Any]] = {
    "another field": {"note": "x"},
    "an unknown type": {"type": "effect"},
    "an id of another length": {"id": "00"},
    "an id in capitals": {"id": "A" * 32},
    "a state that is no text": {"old": 1},
    "a new state that is no text": {"new": None},
    "a generation that is no integer": {"generation": 1.5},
    "a generation that is a truth value": {"generation": True},
    "a MAC that is no text": {"mac": 1},
}

RECORDS: dict[str, tuple[Forgery, int, str]] = {
    "a record less": (lambda log: log.stored.pop(2 << 16), 2, "a record that is not in the store"),
    "another payload": (lambda log: change_record(log, 2 << 16, payload=b'"free"'), 2, "is not the one whose MAC"),
    "another salt": (lambda log: change_record(log, 2 << 16, salt=b"x" * 32), 2, "is not the one whose MAC"),
    "a salt that is gone": (
        lambda log: change_record(log, 2 << 16, salt=None),
        2,
        "is erased, and no decision says so",
    ),
    "a name that is no text": (lambda log: change_record(log, 2 << 16, name=b"step"), 2, "is not the one whose MAC"),
    "another name": (lambda log: change_record(log, 2 << 16, name="steq"), 2, "is not the one whose MAC"),
    "another run": (
        lambda log: change_record(log, 2 << 16, run_uid=b"r2".rjust(16, b"\0")),
        2,
        "is not the one whose MAC",
    ),
    "a record more": (lambda log: copy_record(log, 2 << 16, 2 << 16 | 5), 2, "where the leaf has no change"),
    "a record of a start": (lambda log: copy_record(log, 2 << 16, 2 << 16 | 1), 2, "a record and no MAC"),
    "a record beyond the head": (lambda log: copy_record(log, 2 << 16, 99 << 16), 99, "a record outside the log"),
    "a record before the log": (lambda log: copy_record(log, 2 << 16, -1 << 16), -1, "a record outside the log"),
}

TREE: dict[str, tuple[Forgery, int | None, str]] = {
    "another envelope": (
        lambda log: rewrite(log, 300, lambda e: e.update(time_ms=1_300), reseal=False),
        511,
        "tile 1 of level 0 does not have the nodes",
    ),
    "another last envelope": (
        lambda log: put(log, 519, log.leaves[518].envelope, reseal=False),
        None,
        "the head's frontier is not that of its 520 leaves",
    ),
    "another node": (
        lambda log: log.tiles.update({(0, 0): bytes(8160)}),
        255,
        "tile 0 of level 0 does not have the nodes above its leaves",
    ),
    "another root of a tile": (
        lambda log: log.tile_root_rows.update({(0, 0): bytes(32)}),
        255,
        "tile 0 of level 0 does not have the root of its leaves",
    ),
    "a tile less": (lambda log: log.tiles.pop((0, 1)), 511, "tile 1 of level 0 is missing"),
    "a tile more": (
        lambda log: log.tile_root_rows.update({(0, 2): bytes(32)}),
        None,
        "1 tiles of level 0 stand beyond",
    ),
    "a tile of another level": (lambda log: log.tile_root_rows.update({(1, 0): bytes(32)}), None, "1 tiles of level 1"),
    "a tile far above": (lambda log: log.tile_root_rows.update({(7, 3): bytes(32)}), None, "1 tiles of level 7"),
    "another frontier": (
        lambda log: setattr(log, "frontier", (bytes(32), *log.frontier[1:])),
        None,
        "the head's frontier",
    ),
    "another head time": (lambda log: setattr(log, "time_ms", 5), None, "the head's time is 5 ms"),
    "another head epoch": (lambda log: setattr(log, "epoch", 3), None, "the head's epoch is 3"),
}

ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "state": ({"state": RunState.RUNNING}, "says state 'running', the log 'completed'"),
    "generation": ({"generation": 9}, "says generation 9, the log 2"),
    "attempt": ({"attempt": 9}, "says attempt 9, the log 2"),
    "first START": ({"start_record_id": 3 << 16}, f"says first START record {3 << 16}, the log 0"),
    "last START": ({"last_start_record_id": None}, "says last START record None"),
    "END": ({"end_record_id": 7 << 16}, f"says END record {7 << 16}, the log {13 << 16 | 1}"),
}


def copy_record(log: MemoryLog, place: int, to: int) -> None:
    log.stored[to] = replace(log.stored[place], record_id=to)


@pytest.mark.parametrize(("forge", "leaf", "words"), ENVELOPES.values(), ids=ENVELOPES)
def test_an_envelope_that_is_not_exactly_v1_is_named(forge: Forgery, leaf: int, words: str) -> None:
    log = honest()
    forge(log)
    first = verify_log(log, log_id=log.log_id).problems[0]
    assert first.leaf_index == leaf
    assert words in first.text


@pytest.mark.parametrize("fields", CHANGES.values(), ids=CHANGES)
def test_a_change_that_is_not_exactly_v1_is_named(fields: dict[str, Any]) -> None:
    log = honest()
    rewrite(log, 4, lambda envelope: envelope["changes"][0].update(fields))
    first = verify_log(log).problems[0]
    assert (first.leaf_index, first.text) == (4, "a change has other fields than envelope v1")


def test_a_change_that_is_no_object_is_named() -> None:
    log = honest()
    rewrite(log, 4, lambda envelope: envelope.update(changes=["x"]))
    assert "a change has other fields" in texts(verify_log(log))[0]


def test_the_first_leaf_decides_which_log_it_is_unless_that_is_said() -> None:
    log = honest()
    assert verify_log(log).log_id_hex == log.log_id.hex()
    report = verify_log(log, log_id=b"M" * 16)
    assert report.problem_count == 20
    assert "belongs to log 4c4c" in texts(report)[0]


@pytest.mark.parametrize("place", [0, 2 << 16, 8 << 16, 11 << 16, 11 << 16 | 1, 13 << 16 | 1])
def test_a_record_that_is_gone_is_one_problem(place: int) -> None:
    log = honest()
    del log.stored[place]
    problem = only_problem(verify_log(log))
    assert problem.leaf_index == place >> 16
    assert "has the MAC of a record that is not in the store" in problem.text


def test_a_wrong_head_is_one_problem() -> None:
    log = honest()
    log.frontier = (bytes(32), *log.frontier[1:])
    assert only_problem(verify_log(log)).leaf_index is None


@pytest.mark.parametrize(("forge", "leaf", "words"), RECORDS.values(), ids=RECORDS)
def test_a_record_that_is_not_the_leafs_is_named(forge: Forgery, leaf: int, words: str) -> None:
    log = honest()
    forge(log)
    problems = verify_log(log).problems
    assert any(problem.leaf_index == leaf and words in problem.text for problem in problems), problems


def test_a_record_under_another_runs_change_is_named() -> None:
    log = honest()
    rewrite(log, 17, lambda envelope: envelope["changes"][0].update(id=b"r3".rjust(16, b"\0").hex()))
    assert "belongs to another run than its change" in texts(verify_log(log))[0]


@pytest.mark.parametrize(("forge", "leaf", "words"), TREE.values(), ids=TREE)
def test_a_tree_that_does_not_grow_from_the_leaves_is_named(forge: Forgery, leaf: int | None, words: str) -> None:
    log = honest(500)
    forge(log)
    problems = verify_log(log).problems
    assert any(problem.leaf_index == leaf and words in problem.text for problem in problems), problems


@pytest.mark.parametrize(("fields", "words"), ROWS.values(), ids=ROWS)
def test_a_row_that_contradicts_the_log_is_named(fields: dict[str, Any], words: str) -> None:
    log = honest()
    change_row(log, "r1", **fields)
    problem = only_problem(verify_log(log))
    assert problem.leaf_index == 13
    assert f"the row of run 'r1' {words}" in problem.text


def test_a_row_without_a_run_and_a_run_without_a_row_are_named() -> None:
    log = honest()
    change_row(log, "r2", run_uid=b"?" * 16)
    assert set(texts(verify_log(log))) == {
        f"run {b'r2'.rjust(16, bytes(1)).hex()} is in the log and has no row",
        "run 'r2' has a row and is not in the log",
    }


def test_marks_are_as_many_as_calls_in_flight() -> None:
    log = honest()
    log.marks[log.rows["r3"].row_id] = []
    assert "says calls in flight 0, the log 1" in only_problem(verify_log(log)).text
    log = honest()
    log.marks[log.rows["r1"].row_id] = log.marks[log.rows["r3"].row_id]
    assert "says calls in flight 1, the log 0" in only_problem(verify_log(log)).text


def test_a_transition_that_no_table_allows_is_named_with_its_leaf() -> None:
    log = honest()
    story = Story(log, "r1")
    index = log.commit((story.change("run", "completed", "running", 3), story.record(RecordKind.START)))
    change_row(log, "r1", state=RunState.RUNNING, generation=3, attempt=3)
    change_row(log, "r1", last_start_record_id=index << 16, end_record_id=None)
    problem = only_problem(verify_log(log))
    assert problem.leaf_index == index
    assert "a run never goes from completed to running" in problem.text


def test_a_call_started_after_a_cancel_is_named() -> None:
    log = honest()
    story = Story(log, "r2")
    index = log.commit((story.change("step", "none", "started"), None))
    log.marks[log.rows["r2"].row_id] *= 2
    problem = only_problem(verify_log(log))
    assert problem.leaf_index == index
    assert "a call was started while the run was cancelled" in problem.text


def test_a_change_of_the_store_names_its_log() -> None:
    log = honest()
    log.commit((Change(type="store", id=log.log_id, old="a", new="b", generation=0), None))
    assert verify_log(log).ok
    log.commit((Change(type="store", id=b"?" * 16, old="a", new="b", generation=0), None))
    assert "names 3f3f" in only_problem(verify_log(log)).text


def test_missing_leaves_are_named_and_the_rest_is_still_read() -> None:
    log = honest(600)
    for index in (30, 31, 32, 290, *range(512, 600)):
        del log.leaves[index]
    log.stored = {place: stored for place, stored in log.stored.items() if place >> 16 in log.leaves}
    change_record(log, 619 << 16, payload=b"other")
    report = verify_log(log)
    assert report.leaves == 620 - 4 - 88
    assert report.root_hex == ""
    assert (30, "leaves 30 to 32 are missing") in [(p.leaf_index, p.text) for p in report.problems]
    assert (290, "the leaf is missing") in [(p.leaf_index, p.text) for p in report.problems]
    assert (512, "leaves 512 to 599 are missing") in [(p.leaf_index, p.text) for p in report.problems]
    assert any(p.leaf_index == 619 and "is not the one whose MAC" in p.text for p in report.problems)


def test_a_whole_missing_stretch_is_one_problem_and_costs_no_time() -> None:
    log = honest(600)
    for index in range(256, 600):
        del log.leaves[index]
    log.stored = {place: stored for place, stored in log.stored.items() if place >> 16 in log.leaves}
    log.size = 2**45
    report = verify_log(log)
    said = [(problem.leaf_index, problem.text) for problem in report.problems]
    assert (256, "leaves 256 to 599 are missing") in said
    assert (620, "leaves 620 to 767 are missing") in said
    assert (768, f"leaves 768 to {2**45 - 1} are missing") in said
    assert report.leaves == 620 - 344


def test_records_of_missing_leaves_are_named() -> None:
    log = honest()
    del log.leaves[2]
    assert (2, "a record of a leaf that is missing") in [(p.leaf_index, p.text) for p in verify_log(log).problems]
    log = honest(600)
    for index in range(300, 620):
        del log.leaves[index]
    said = {(p.leaf_index, p.text) for p in verify_log(log).problems}
    assert {(310, "a record of a leaf that is missing"), (350, "a record of a leaf that is missing")} <= said


def test_a_leaf_outside_the_head_is_named() -> None:
    log = honest()
    log.leaves[20] = replace(log.leaves[19], index=20)
    log.leaves[-3] = replace(log.leaves[19], index=-3)
    said = {(problem.leaf_index, problem.text) for problem in verify_log(log).problems}
    assert said == {
        (20, "a leaf outside the log that the head describes"),
        (-3, "a leaf outside the log that the head describes"),
    }


def test_problems_are_capped_and_counted() -> None:
    log = honest(300)
    for place in log.stored:
        change_record(log, place, payload=b"?")
    report = verify_log(log)
    assert len(report.problems) == MAX_PROBLEMS
    assert report.problem_count == len(log.stored)
    assert not report.ok


def test_one_flipped_bit_anywhere_in_the_history_is_seen() -> None:
    for index in range(20):
        size = len(honest().leaves[index].envelope)
        for at in range(0, size, 61):
            log = honest()
            envelope = bytearray(log.leaves[index].envelope)
            envelope[at] ^= 1
            put(log, index, bytes(envelope), reseal=False)
            assert not verify_log(log).ok


@given(st.data())
def test_one_flipped_bit_anywhere_in_a_record_is_seen(data: st.DataObject) -> None:
    log = honest()
    place = data.draw(st.sampled_from(sorted(log.stored)))
    field = data.draw(st.sampled_from(["salt", "payload", "run_uid"]))
    before = getattr(log.stored[place].record, field)
    at = data.draw(st.integers(0, len(before) - 1))
    bent = bytearray(before)
    bent[at] ^= 1 << data.draw(st.integers(0, 7))
    change_record(log, place, **{field: bytes(bent)})
    assert only_problem(verify_log(log)).leaf_index == place >> 16


def test_progress_is_told_and_ends_with_everything() -> None:
    log = honest(600)
    told: list[tuple[int, int]] = []
    verify_log(log, progress=lambda done, total: told.append((done, total)))
    assert told == [(256, 620), (512, 620), (620, 620)]
