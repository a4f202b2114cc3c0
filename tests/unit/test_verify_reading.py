"""verify_log while it reads: rows that cannot be read, a log that grows, and a size and root noted earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent_run_ledger.errors import Tampered, Unavailable
from agent_run_ledger.kernel.merkle import root
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.ledger.verify import Problem, verify_extends, verify_log
from agent_run_ledger.ports import Event, Head, InFlight, RunRow, StoredRecord
from tests.unit.forgeries import change_record, change_row, honest, only_problem, rewrite, texts
from tests.unit.memory_log import MemoryLog, Story


class Torn(MemoryLog):
    """A store whose rows cannot all be read."""

    unreadable_leaves: frozenset[int] = frozenset()
    unreadable_records: frozenset[int] = frozenset()
    fails: frozenset[str] = frozenset()

    def events(self, *, first: int, stop: int) -> Iterator[Event]:
        for event in super().events(first=first, stop=stop):
            if event.index in self.unreadable_leaves:
                raise Tampered("a torn page")
            yield event

    def leaf_records(self, *, first: int, stop: int) -> Iterator[StoredRecord]:
        for stored in super().leaf_records(first=first, stop=stop):
            if stored.record_id in self.unreadable_records:
                raise ValueError("99 is not a valid RecordKind")
            yield stored

    def tile(self, level: int, index: int) -> bytes | None:
        if "tile" in self.fails:
            raise Tampered("a torn page")
        return super().tile(level, index)

    def head(self) -> Head:
        if "head" in self.fails:
            raise Tampered("a torn page")
        return super().head()

    def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
        if "runs" in self.fails:
            raise ValueError("'paused' is not a valid RunState")
        return super().list_runs(state=state, before_row_id=before_row_id, limit=limit)

    def run_row_ids(self, *, before_row_id: int | None, limit: int) -> list[int]:
        if "row ids" in self.fails:
            raise Tampered("a torn page")
        return super().run_row_ids(before_row_id=before_row_id, limit=limit)

    def orphan_marks(self, *, limit: int) -> list[InFlight]:
        if "orphans" in self.fails:
            raise Tampered("a torn page")
        return super().orphan_marks(limit=limit)

    def in_flight(self, run_row_id: int) -> list[InFlight]:
        if "marks" in self.fails:
            raise Tampered("a torn page")
        return super().in_flight(run_row_id)


def torn(more: int = 300) -> Torn:
    log = honest(more)
    log.__class__ = Torn
    assert isinstance(log, Torn)
    return log


def test_what_cannot_be_read_is_named_and_the_rest_is_still_read() -> None:
    log = torn()
    log.unreadable_leaves = frozenset({7, 300})
    log.unreadable_records = frozenset({2 << 16, 310 << 16})
    change_record(log, 319 << 16, payload=b"other")
    report = verify_log(log)
    assert report.leaves == 318
    said = {(problem.leaf_index, problem.text) for problem in report.problems}
    for leaf in (7, 300):
        assert (leaf, "the leaf cannot be read: a torn page") in said
    for leaf in (2, 310):
        assert (leaf, "a record cannot be read: 99 is not a valid RecordKind") in said
    assert any(problem.leaf_index == 319 for problem in report.problems)
    assert report.records == len(log.stored) - 2 - 2  # and those of the two leaves that could not be read


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("tile", "tile 0 of level 0 cannot be read: a torn page"),
        ("runs", "the row of a run, row 1, cannot be read: 'paused' is not"),
        ("row ids", "the rows of runs cannot be read below row None: a torn page"),
        ("orphans", "the marks of runs that do not exist cannot be read: a torn page"),
        ("marks", "the marks of run 'r1' cannot be read: a torn page"),
    ],
)
def test_other_rows_that_cannot_be_read_are_named(fails: str, words: str) -> None:
    log = torn()
    log.fails = frozenset({fails})
    assert any(words in text for text in texts(verify_log(log)))


def test_without_a_head_everything_else_is_still_read() -> None:
    log = torn()
    log.fails = frozenset({"head"})
    assert only_problem(verify_log(log)) == Problem(leaf_index=None, text="the head cannot be read: a torn page")
    change_record(log, 319 << 16, payload=b"other")
    report = verify_log(log)
    assert (report.leaves, report.problem_count) == (320, 2)
    assert report.root_hex == root(320, log.frontier).hex()
    assert not verify_extends(log, 320, root(320, log.frontier))


class Growing(MemoryLog):
    """A store in which a run goes on whenever the rows of runs are read."""

    story: Story
    left = 0

    def grow(self) -> None:
        if self.left:
            self.left -= 1
            self.story.conclude(begin=2)

    def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
        self.grow()
        return super().list_runs(state=state, before_row_id=before_row_id, limit=limit)

    def find_run(self, run_id: str) -> RunRow | None:
        self.grow()
        return super().find_run(run_id)


def growing(times: int) -> Growing:
    log = Growing()
    log.story = Story(log, "r1")
    log.story.start()
    log.story.begin()
    log.left = times
    return log


@pytest.mark.parametrize("times", [1, 2, 3, 10, 40])
def test_a_log_that_grows_meanwhile_is_followed(times: int) -> None:
    log = growing(times)
    report = verify_log(log)
    assert report.problems == ()
    assert report.leaves == log.size


def test_a_difference_in_a_log_that_grows_is_still_found() -> None:
    log = growing(3)
    change_row(log, "r1", attempt=7)
    assert "says attempt 7, the log 1" in only_problem(verify_log(log)).text


def test_a_run_that_never_rests_is_no_verdict() -> None:
    log = growing(10_000)
    with pytest.raises(Unavailable, match="changes faster"):
        verify_log(log)


def test_a_run_that_begins_while_rows_are_read_is_no_problem() -> None:
    log = growing(0)

    class Begins(Growing):
        def list_runs(self, *, state: RunState | None, before_row_id: int | None, limit: int) -> list[RunRow]:
            rows = super().list_runs(state=state, before_row_id=before_row_id, limit=limit)
            if "late" not in self.rows:
                Story(self, "late").start()
            return rows

    log.__class__ = Begins
    report = verify_log(log)
    assert report.problems == ()
    assert report.runs == 2


def test_a_row_that_goes_away_is_named() -> None:
    log = growing(0)

    class Goes(Growing):
        def find_run(self, run_id: str) -> RunRow | None:
            return None

    log.__class__ = Goes
    change_row(log, "r1", attempt=7)
    assert texts(verify_log(log)) == ["the row of run 'r1' was there and is gone"]


def test_a_head_that_shrinks_while_it_is_read_is_named() -> None:
    log = honest()

    class Shrinks(MemoryLog):
        heads = 0

        def head(self) -> Head:
            self.heads += 1
            return super().head() if self.heads < 2 else replace(super().head(), size=3)

    log.__class__ = Shrinks
    assert "the head's size fell from 20 to 3" in texts(verify_log(log))


# An earlier size and root


def test_a_log_extends_what_it_was_and_nothing_else() -> None:
    log = honest(300)
    for size in (0, 1, 7, 255, 256, 257, 320):
        assert verify_extends(log, size, root_of(size))
        assert not verify_extends(log, size, b"\1" * 32)
    assert not verify_extends(log, 19, root_of(20))
    assert not verify_extends(log, 321, root_of(320))
    assert not verify_extends(log, -1, root_of(0))
    assert not verify_extends(log, 7, b"")


def root_of(size: int) -> bytes:
    log = honest(300)
    shorter = MemoryLog()
    for index in range(size):
        shorter.append_leaf(log.leaves[index].op_id, log.leaves[index].envelope)
    return root(size, shorter.frontier)


def test_a_log_whose_past_was_rewritten_thoroughly_does_not_extend_what_it_was() -> None:
    log = honest(300)
    noted = root(log.size, log.frontier)
    noted_size = log.size
    rewrite(log, 19, lambda envelope: envelope.update(time_ms=1_019))
    log.time_ms = 1_320
    assert verify_log(log).ok
    assert root(log.size, log.frontier) != noted
    assert not verify_extends(log, noted_size, noted)
    log.frontier = ()
    assert not verify_extends(log, noted_size, noted)
