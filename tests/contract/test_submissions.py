"""Submitted runs: on record before anything of them runs, begun with what was recorded, found by their queue."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Budget, LedgerError, Misuse, RunLedger
from agent_run_ledger.errors import InputsChanged, Refused, Tampered
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.runs.erase import Act, Selection, erase_run
from agent_run_ledger.runs.run import Run
from agent_run_ledger.testing import check_ledger
from tests.contract.engine_kit import each_engine, new_place, only_a_file
from tests.contract.run_kit import leaves_of, records_of, report_of, row_of
from tests.contract.store_kit import quick_folder

EDITOR = Path(__file__).parents[1] / "scenario" / "programs" / "edit_rows.py"


pytestmark = each_engine


@pytest.fixture
def place(engine: None) -> Iterator[Any]:
    with quick_folder() as folder:
        yield new_place(folder, "runs.db")


@pytest.fixture
def ledger(place: Any) -> Iterator[RunLedger]:
    with RunLedger("r1", place) as made:
        yield made
        written = made.bind("r1").state is not None
    if written:
        check_ledger(place)


def code_of(call: Any) -> str:
    with pytest.raises(LedgerError) as caught:
        call()
    return caught.value.code


def queued(ledger: RunLedger, queue: str | None = None) -> list[str]:
    return [row.run_id for row in ledger.runs_of_queue(queue).queued(limit=100)]


def test_a_submitted_run_is_on_record_and_nothing_of_it_has_run(ledger: RunLedger) -> None:
    ran: list[int] = []

    @ledger.entry
    def job(n: int) -> int:
        ran.append(n)
        return n

    assert job.submit("r1", n=3) == "r1"
    assert (ran, ledger.bind("r1").state, row_of(ledger).reason) == ([], RunState.SUSPENDED, "submitted")
    assert leaves_of(ledger)[1:] == [[("run", "none", "running"), ("run", "running", "suspended")]]
    assert queued(ledger) == ["r1"]
    assert job.start("r1", n=3) == 3
    assert (ran, ledger.bind("r1").state, queued(ledger)) == ([3], RunState.COMPLETED, [])
    assert job.start("r1", n=3) == 3  # the recorded result
    assert ledger.runs_of_queue().submission(row_of(ledger)).inputs == {"n": 3}


def test_the_same_submission_again_changes_nothing(ledger: RunLedger) -> None:
    @ledger.entry
    def job(n: int) -> int:
        return n

    job.submit("r1", n=3)
    before = leaves_of(ledger)
    job.submit("r1", n=3)
    job.start("r1", n=3)
    after = leaves_of(ledger)
    job.submit("r1", n=3)  # also of a completed run
    assert (leaves_of(ledger), before) == (after, after[:2])
    with pytest.raises(InputsChanged):
        job.submit("r1", n=4)


def test_a_run_that_was_not_submitted_is_nobodys_to_submit(ledger: RunLedger) -> None:
    @ledger.entry
    def job() -> int:
        return 1

    job.start("r1")
    assert code_of(lambda: job.submit("r1")) == "run_exists"


def test_another_entry_or_queue_under_the_same_id_is_refused(ledger: RunLedger) -> None:
    @ledger.entry
    def job() -> int:
        return 1

    @ledger.entry
    def other() -> int:
        return 2

    job.submit("r1")
    assert code_of(lambda: other.submit("r1")) == "run_exists"
    ledger.queue = "slow"
    assert code_of(lambda: job.submit("r1")) == "run_exists"
    assert (queued(ledger, "default"), queued(ledger)) == (["r1"], [])


def test_a_pipeline_is_submitted_with_its_steps(ledger: RunLedger) -> None:
    @ledger.step
    def double(n: int) -> int:
        return 2 * n

    assert ledger.submit("r1", n=4) == "r1"
    assert ledger.execute(n=4) == 8
    assert (row_of(ledger).attempt, queued(ledger)) == (2, [])


def test_inputs_that_nothing_takes_are_refused_before_anything_is_written(ledger: RunLedger) -> None:
    @ledger.entry
    def job(run: Run, n: int) -> str:
        return f"{run.id} {n}"

    for inputs in ({}, {"n": 1, "m": 2}):
        assert code_of(lambda given=inputs: job.submit("r1", **given)) == "bad_inputs"
    assert ledger.bind("r1").state is None
    job.submit("r1", n=1)
    assert job.start("r1", n=1) == "r1 1"


def test_of_several_entries_one_has_to_be_named(ledger: RunLedger) -> None:
    for name in ("one", "two"):
        ledger.entry(name=name)(lambda: None)
    assert code_of(ledger.submit) == "which_entry"
    assert [one.name for one in ledger.entries] == ["one", "two"]
    assert code_of(lambda: ledger.entry(name="one")(lambda: None)) == "duplicate_entry"


def test_a_ledger_with_nothing_to_run_has_nothing_to_submit(ledger: RunLedger) -> None:
    assert code_of(ledger.submit) == "no_steps"


def test_what_is_no_entry_is_refused(ledger: RunLedger) -> None:
    def items() -> Iterator[int]:
        yield 1

    def by_place(n: int, /) -> int:
        return n

    def late(n: int, run: Run) -> None: ...

    def many(*n: int) -> None: ...

    for bad in (items, by_place, late, many):
        assert code_of(lambda fn=bad: ledger.entry(fn)) == "bad_entry"
    assert code_of(lambda: ledger.entry(name=" ")(lambda: None)) == "bad_entry"


def test_an_async_entry_runs_on_a_loop_only(ledger: RunLedger) -> None:
    @ledger.entry
    async def job(run: Run, n: int) -> str:
        await asyncio.sleep(0)
        return f"{run.id} {n}"

    assert code_of(lambda: job.start("r1", n=1)) == "bad_entry"
    assert asyncio.run(job.astart("r1", n=1)) == "r1 1"


def test_a_plain_entry_also_runs_on_a_loop(ledger: RunLedger) -> None:
    @ledger.entry
    def job(n: int) -> int:
        return n + 1

    assert asyncio.run(job.astart("r1", n=1)) == 2


def test_a_budget_is_open_from_the_submission_on(place: Any) -> None:
    with RunLedger("r1", place, budget=Budget(max_calls=1)) as ledger:

        @ledger.step
        def one(n: int) -> int:
            return n

        @ledger.entry
        def job() -> list[int]:
            return [one(1), one(2)]

        job.submit("r1")
        used = ledger.bind("r1").budget()
        assert used is not None
        assert code_of(lambda: job.start("r1")) == "budget_exceeded"


def test_a_run_that_was_cancelled_is_not_in_its_queue(ledger: RunLedger) -> None:
    ledger.entry(name="job")(lambda: None)
    ledger.submit("r1")
    ledger.bind("r1").cancel("not needed")
    assert queued(ledger) == []
    assert code_of(lambda: ledger.entries[0].start("r1")) == "run_cancelled"


def test_an_erased_run_cannot_be_begun(ledger: RunLedger) -> None:
    ledger.entry(name="job")(lambda n: n)
    ledger.submit("r1", n=1)
    ledger.bind("r1").cancel("not needed")
    erase_run(ledger._opened.context(), "r1", Selection(), Act(event="erase", reason="a test", actor="me"))
    with pytest.raises(Refused) as caught:
        ledger.runs_of_queue().submission(row_of(ledger))
    assert caught.value.code == "erased"


def test_a_row_in_a_queue_that_its_start_does_not_name_is_tampered(ledger: RunLedger) -> None:
    ledger.entry(name="job")(lambda: 1)
    ledger.entries[0].start("r1")
    ledger.submit("r2")
    for run_id in ("r1", "r2"):
        with pytest.raises(Tampered):
            ledger.runs_of_queue().submission(replace(row_of(ledger, run_id), queue="other"))


@only_a_file
@pytest.mark.parametrize(("queue", "as_sql"), [(None, "NULL"), ("other", "'other'")])
def test_a_row_that_was_moved_to_another_queue_is_found(queue: str | None, as_sql: str) -> None:
    with quick_folder() as folder:
        path = folder / "runs.db"
        with RunLedger(db_path=path) as ledger:
            ledger.entry(name="job")(lambda: 1)
            ledger.submit("r1")
        subprocess.run([sys.executable, str(EDITOR), str(path), f"UPDATE runs SET queue = {as_sql}"], check=True)
        with RunLedger(db_path=path) as ledger:
            texts = [problem.text for problem in report_of(ledger).problems]
        assert texts == [f"the row of run 'r1' says queue {queue!r}, the log 'default'"]


def test_queues_and_their_order(ledger: RunLedger) -> None:
    ledger.entry(name="job")(lambda n: n)
    for n in range(5):
        ledger.queue = "even" if n % 2 == 0 else "odd"
        ledger.submit(f"r{n}", n=n)
    assert (queued(ledger, "even"), queued(ledger, "odd")) == (["r0", "r2", "r4"], ["r1", "r3"])
    rows = ledger.runs_of_queue("even").queued(limit=1)
    after = rows[0].row_id
    assert [row.run_id for row in ledger.runs_of_queue("even").queued(after_row_id=after, limit=9)] == ["r2", "r4"]
    for bad in ("", " ", "a\nb", "x" * 101):
        assert code_of(lambda name=bad: RunLedger(queue=name)) == "bad_queue"


def test_the_start_says_queue_and_entry(ledger: RunLedger) -> None:
    from agent_run_ledger import codecs

    ledger.entry(name="job")(lambda: None)
    ledger.submit("r1")
    start = records_of(ledger, RecordKind.START)[0]
    content: Any = codecs.unpack(start.encoding, start.payload)
    assert content["submitted"] == {"queue": "default", "entry": "job"}


def test_misuse_says_what_to_do() -> None:
    with pytest.raises(Misuse) as caught:
        RunLedger().entry(name="")(lambda: None)
    assert "printable name" in caught.value.message
