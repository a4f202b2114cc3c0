"""Old runs that are over are erased as a whole; what is young, alive, kept or rested on stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Misuse, Refused, RunLedger, RunState, Step, Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.runs.prune import MAX_NAMED, Pruned, look_at, old_runs, prune, why_not
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import LyingStore, in_a_file, records_of, report_of, row_of, store_of, stored_of

New = Callable[..., RunLedger]
ACT = Act(event="prune", reason="older than a year", actor="ann")
LATER = 1 << 60


def finished(new_ledger: New, *run_ids: str, ends: str = "well") -> RunLedger:
    """Return a ledger on a store with a completed (or failed) run of two steps under each of these ids."""
    ledger = new_ledger()

    @ledger.step
    def one(n: int) -> int:
        return n + 1

    @ledger.step(depends_on=["one"])
    def two(one: int) -> int:
        if ends != "well":
            raise ValueError(ends)
        return one * 2

    for run_id in run_ids:
        if ends == "well":
            assert ledger.bind(run_id).execute(n=1) == 4
        else:
            with pytest.raises(ValueError, match=ends):
                ledger.bind(run_id).execute(n=1)
    return ledger


def pruned(ledger: RunLedger, before_ms: int = LATER, **choice: Any) -> Pruned:
    context = ledger._opened.context()
    return prune(context, old_runs(context.store, before_ms=before_ms, **choice), ACT)


def named(ledger: RunLedger, **choice: Any) -> list[str]:
    store = store_of(ledger)
    return [store.reader().get_run(row_id).run_id for row_id in old_runs(store, before_ms=LATER, **choice)]


def is_erased(ledger: RunLedger, run_id: str) -> bool:
    kinds = (RecordKind.START, RecordKind.RESULT, RecordKind.ERROR)
    erased = {stored.erased for stored in stored_of(ledger, *kinds, run_id=run_id)}
    assert len(erased) == 1
    return erased.pop()


def test_old_runs_are_erased_oldest_first_and_their_story_stays(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b", "c")
    report = pruned(ledger)
    assert (report.runs, report.records, report.skipped, report.run_ids) == (3, 9, [], ["a", "b", "c"])
    for run_id in ("a", "b", "c"):
        assert is_erased(ledger, run_id)
        assert row_of(ledger, run_id).state is RunState.COMPLETED
        assert [record.name for record in records_of(ledger, RecordKind.DECISION, run_id=run_id)] == ["prune"]
        assert [record.name for record in records_of(ledger, RecordKind.RESULT, run_id=run_id)] == ["one", "two"]
        with pytest.raises(Refused) as caught:
            ledger.bind(run_id).execute(n=1)
        assert caught.value.code == "erased"
    assert report_of(ledger).ok
    ledger.close()
    check_ledger(ledger.db_path)


def test_a_second_prune_finds_nothing(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b")
    assert pruned(ledger).runs == 2
    size = store_of(ledger).reader().head().size
    assert pruned(ledger) == Pruned()
    assert store_of(ledger).reader().head().size == size


def test_only_what_is_older_is_erased(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a")
    moment = row_of(ledger, "a").updated_at_ms
    assert pruned(ledger, moment).runs == 0
    assert pruned(ledger, moment + 1).runs == 1


def test_the_newest_stay_if_so_many_are_to_be_kept(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b", "c")
    assert named(ledger, keep_last=1) == ["a", "b"]
    assert named(ledger, keep_last=3) == []
    assert pruned(ledger, keep_last=2).run_ids == ["a"]
    assert [is_erased(ledger, run_id) for run_id in "abc"] == [True, False, False]
    assert named(ledger, keep_last=2) == []


def test_runs_in_the_state_that_is_asked_for_are_erased_and_no_others(new_ledger: New) -> None:
    ledger = finished(new_ledger, "done")
    context = finished(new_ledger, "failed", "cancelled", "stopped", ends="no")._opened.context()
    decide(context, "cancelled", RunEvent.CANCEL, reason="x", actor="ann")
    decide(context, "stopped", RunEvent.QUARANTINE, reason="x", actor="ann")
    assert named(ledger) == ["done"]
    assert named(ledger, state=RunState.FAILED) == ["failed"]
    assert pruned(ledger, state=RunState.CANCELLED).run_ids == ["cancelled"]
    assert [is_erased(ledger, run_id) for run_id in ("done", "failed", "cancelled", "stopped")] == [
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.SUSPENDED, RunState.QUARANTINED])
def test_a_run_that_waits_is_never_pruned(new_ledger: New, state: RunState) -> None:
    with pytest.raises(Misuse, match=f"a run that is {state} is not over"):
        old_runs(store_of(finished(new_ledger, "a")), before_ms=LATER, state=state)


def test_a_run_that_goes_on_meanwhile_is_skipped(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b", ends="no")
    context = ledger._opened.context()
    row_ids = old_runs(context.store, before_ms=LATER, state=RunState.FAILED)
    lock = context.store.lock_run("b")
    assert lock is not None
    report = prune(context, row_ids, ACT)
    lock.release()
    assert (report.run_ids, report.skipped_count, report.skipped[0].run_id) == (["a"], 1, "b")
    assert "works on it" in report.skipped[0].why
    decide(context, "b", RunEvent.QUARANTINE, reason="x", actor="ann")
    assert prune(context, row_ids[1:], ACT).skipped[0].why == "it is quarantined again"
    assert not is_erased(ledger, "b")


def test_a_run_on_which_an_unfinished_fork_rests_is_skipped(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b", "c")
    reader = store_of(ledger).reader()
    a, b, c = (row_of(ledger, run_id) for run_id in "abc")
    forks = {
        a.row_id: [replace(b, state=RunState.COMPLETED)],
        b.row_id: [replace(c, state=RunState.FAILED)],
        c.row_id: [],
    }
    lying = LyingStore(store_of(ledger), forks_of=lambda row_id: forks[row_id])
    assert why_not(lying.reader(), a) == "its fork c is failed"
    assert why_not(lying.reader(), b) == "its fork c is failed"
    assert why_not(lying.reader(), c) == ""
    assert look_at(lying, [a.row_id, b.row_id, c.row_id]).run_ids == ["c"]  # type: ignore[arg-type]
    assert why_not(reader, a) == ""
    forks[b.row_id], forks[c.row_id] = [replace(c, state=RunState.CANCELLED)], [a]
    assert why_not(lying.reader(), a) == ""


def test_looking_writes_nothing(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a", "b")
    store = store_of(ledger)
    size = store.reader().head().size
    report = look_at(store, old_runs(store, before_ms=LATER))
    assert (report.runs, report.records, report.run_ids) == (2, 6, ["a", "b"])
    assert store.reader().head().size == size


def test_what_an_erasure_left_of_a_run_is_pruned_and_counted(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a")
    erase_run(ledger._opened.context(), "a", Selection(steps=("two",)), replace(ACT, event="erase"))
    assert pruned(ledger).records == 2
    assert is_erased(ledger, "a")
    assert report_of(ledger).ok


def test_a_prune_needs_a_reason_before_it_begins(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a")
    context = ledger._opened.context()
    with pytest.raises(Misuse) as caught:
        prune(context, old_runs(context.store, before_ms=LATER), replace(ACT, reason=""))
    assert caught.value.code == "no_reason"
    assert not is_erased(ledger, "a")


def test_a_report_names_a_bounded_number_of_runs() -> None:
    report = Pruned()
    for number in range(MAX_NAMED + 5):
        report.count(f"r{number}", 1, 1)
        report.leave(f"s{number}", "why")
    assert (report.runs, report.records, len(report.run_ids)) == (MAX_NAMED + 5, MAX_NAMED + 5, MAX_NAMED)
    assert (report.skipped_count, len(report.skipped)) == (MAX_NAMED + 5, MAX_NAMED)


@in_a_file
def test_compacting_gives_pages_back_and_changes_nothing(new_ledger: New) -> None:
    ledger = new_ledger("big")
    ledger.add(Step(lambda: [str(number) * 9 for number in range(40_000)], name="big"))
    ledger.execute()
    store: Any = store_of(ledger)
    pruned(ledger)
    assert store.scrub()
    before, root = store.stats(), report_of(ledger).root_hex
    assert before.free_pages > 10
    assert store.compact() is True
    after = store.stats()
    assert (after.free_pages, report_of(ledger).root_hex) == (0, root)
    assert after.database_bytes < before.database_bytes
    assert after.wal_bytes == 0
    again = new_ledger("next")
    again.add(Step(lambda: 1, name="one"))
    assert again.execute() == 1
    assert report_of(ledger).ok


@in_a_file
def test_a_file_that_was_replaced_is_not_compacted(new_ledger: New) -> None:
    ledger = finished(new_ledger, "a")
    store: Any = store_of(ledger)
    path = Path(ledger.db_path)
    moved, wal = path.with_suffix(".moved"), Path(f"{path}-wal")
    path.rename(moved)
    before = (moved.read_bytes(), wal.read_bytes())
    with pytest.raises(Tampered) as caught:
        store.compact()
    assert caught.value.code == "store_replaced"
    assert (moved.read_bytes(), wal.read_bytes()) == before
    moved.rename(path)
    assert store.compact() is True
    assert report_of(ledger).ok
