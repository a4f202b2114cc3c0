"""Forks and erasure together: what is erased in the one, what stays in the other, and what an auditor says of both."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

import pytest

from agent_run_ledger import Refused, RunState
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.run_view import view_run
from agent_run_ledger.ports import StoredRecord
from agent_run_ledger.runs.erase import Act, Selection, erase_run, plan_erasure
from agent_run_ledger.runs.erased_check import check_erasures
from agent_run_ledger.runs.prune import old_runs, prune
from agent_run_ledger.testing import check_ledger
from tests.contract.fork_kit import Program
from tests.contract.run_kit import LyingStore, report_of, row_of, store_of

ACT = Act(event="erase", reason="asked for", actor="tester")
LATER = 1 << 46


@pytest.fixture
def program(db: pathlib.Path) -> Iterator[Program]:
    """A program whose run `a` is complete, and whose fork `b` of it begins at `judge` and was not executed."""
    made = Program(db)
    made.run()
    made.ledger.fork("a", from_step="judge", new_run_id="b")
    made.ran_since()
    yield made
    made.ledger.close()
    check_ledger(db)


def _erase(program: Program, run_id: str, *steps: str) -> None:
    erase_run(program.ledger._opened.context(), run_id, Selection(steps=steps or None), ACT)


def test_an_erased_fork_verifies_and_leaves_its_parent_whole(program: Program) -> None:
    _erase(program, "b")
    assert report_of(program.ledger).problems == ()
    assert program.run("a") == "yes to v1 on acme in 2026"
    refused = program.run("b")
    assert isinstance(refused, Refused)
    assert refused.code == "erased"
    assert program.ran_since() == []


def test_a_fork_of_what_is_erased_is_refused_before_anything_is_written(program: Program) -> None:
    _erase(program, "a")
    before = store_of(program.ledger).reader().head().size
    refused = program.run("b")
    assert isinstance(refused, Refused)
    assert refused.code == "erased"
    assert store_of(program.ledger).reader().head().size == before
    assert row_of(program.ledger, "b").state is RunState.SUSPENDED
    assert program.ran_since() == []
    assert report_of(program.ledger).problems == ()


def test_a_fork_whose_prefix_is_erased_is_shown_as_refused(program: Program) -> None:
    def is_shown_as_refused() -> bool:
        return view_run(store_of(program.ledger), row_of(program.ledger, "b")).is_refused

    assert not is_shown_as_refused()
    _erase(program, "a", "aside")
    assert is_shown_as_refused()


def test_an_erasure_names_the_forks_that_stay(program: Program) -> None:
    plan = plan_erasure(store_of(program.ledger), "a", Selection(steps=None))
    assert list(plan.forks) == ["b"]


def test_a_prune_leaves_a_run_on_which_an_unfinished_fork_rests_until_that_is_over(program: Program) -> None:
    context = program.ledger._opened.context()
    act = Act(event="prune", reason="old", actor="tester")

    def pruned() -> list[str]:
        ids = old_runs(context.store, before_ms=LATER, state=RunState.COMPLETED, keep_last=0)
        prune(context, ids, act)
        rows = [row_of(program.ledger, each) for each in ("a", "b")]
        reader = context.store.reader()
        return [row.run_id for row in rows if reader.record(row.start_record_id or 0).erased]

    assert pruned() == []
    assert program.run("b") == "yes to v1 on acme in 2026"
    assert pruned() == ["a", "b"]
    assert report_of(program.ledger).problems == ()


def test_a_fork_is_not_told_of_tampering_while_the_run_it_rests_on_is_erased(program: Program) -> None:
    _erase(program, "a", "judge")
    store = store_of(program.ledger)
    erased_since = iter(["review", "fetch"])

    def erasing(run_row_id: int, *, kinds: Sequence[RecordKind]) -> Iterator[StoredRecord]:
        """The ids are read, and before the first record comes a batch more is erased."""
        records = store.reader().records(run_row_id, kinds=kinds)
        if len(kinds) > 1 and (step := next(erased_since, "")):
            _erase(program, "a", step)
        return records

    check_erasures(LyingStore(store, records=erasing), row_of(program.ledger, "a").row_id)  # type: ignore[arg-type]
    assert list(erased_since) == []
