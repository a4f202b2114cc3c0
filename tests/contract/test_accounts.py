"""Accounts of real runs: what was spent, what was restored without paying, and what nobody can say."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import Misuse, RunLedger, Tampered, codecs, report_usage
from agent_run_ledger.kernel.account import Entry, Total
from agent_run_ledger.kernel.envelope import Change
from agent_run_ledger.kernel.record import RecordKind, record_mac
from agent_run_ledger.kernel.states import RunState
from agent_run_ledger.kernel.usage import Usage, usage_bytes
from agent_run_ledger.ledger import account as account_module
from agent_run_ledger.ledger.account import Account, account_of_run, account_of_store
from agent_run_ledger.ports import RunRow, Tx, UsageRow
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.contract.run_kit import LyingStore, row_of, store_exists, store_of
from tests.contract.store_kit import begin, do_step, new_record, op

New = Callable[..., RunLedger]


def pipeline(new_ledger: New, *, ends: str = "ok", run_id: str = "r1", model: str = "m") -> RunLedger:
    """Return a program: `plan` asks no model, `ask` uses 100 + 10 tokens for $0.5, `sum` 1,000 + 1 for nobody knows."""
    ledger = new_ledger(run_id)
    ledger.step(name="plan")(lambda: 1)

    @ledger.step(depends_on=["plan"])
    def ask(plan: int) -> int:
        report_usage(model=model, input_tokens=100, output_tokens=10, cost_usd="0.5")
        return 1

    @ledger.step(name="sum", depends_on=["ask"])
    def add(ask: int) -> int:
        report_usage(model=f"{model}-large", input_tokens=1000, output_tokens=1)
        if ends == "die":
            raise KeyboardInterrupt
        if ends == "fail":
            raise ValueError("no")
        return 2

    return ledger


def run(ledger: RunLedger) -> Account:
    """Execute in whichever way it ends, and return the run's account by step."""
    with suppress(KeyboardInterrupt, ValueError):
        ledger.execute()
    account = ledger.bind(ledger.run_id).usage()
    assert account is not None
    return account


def said(total: Total) -> tuple[int, int | None, int | None, Decimal | None, int]:
    return (total.calls, total.input_tokens, total.output_tokens, total.cost_usd, total.cost_unknown)


def test_a_call_that_timed_out_is_uncertain_and_its_repetition_the_estimate(new_ledger: New) -> None:
    ledger, go, tries = new_ledger(), threading.Event(), itertools.count(1)

    @ledger.step(timeout_s=0.05, retries=1, retry_base_s=0.001)
    def ask() -> int:
        report_usage(model="m", input_tokens=100, output_tokens=10, cost_usd="0.5")
        return go.wait(30) if next(tries) == 1 else 2

    account = run(ledger)
    go.set()
    assert (account.total.spent.calls, account.total.uncertain.calls, account.total.uncertain.repeated) == (2, 1, 1)
    assert said(account.total.uncertain.estimate) == ASK
    assert account.silent == 0


NOTHING = said(Total())
ASK = (1, 100, 10, Decimal("0.5"), 0)
SUM = (1, 1000, 1, None, 1)
BOTH = (2, 1100, 11, Decimal("0.5"), 1)


def test_a_run_in_one_attempt_has_spent_and_nothing_else(new_ledger: New) -> None:
    account = run(pipeline(new_ledger))
    assert said(account.total.spent) == BOTH
    assert account.total.restored == Total()
    assert account.total.uncertain.calls == 0
    assert {name: said(entry.spent) for name, entry in account.rows.items()} == {"ask": ASK, "sum": SUM}
    assert (account.silent, account.running, account.runs) == (1, 0, 1)


def test_after_a_failure_every_try_is_spent_and_what_the_next_attempt_used_is_restored(new_ledger: New) -> None:
    first = run(pipeline(new_ledger, ends="fail"))
    assert said(first.total.spent) == BOTH
    assert said(first.total.restored) == NOTHING
    second = run(pipeline(new_ledger))
    assert said(second.total.spent) == (3, 2100, 12, Decimal("0.5"), 2)
    assert said(second.total.restored) == ASK
    assert said(second.rows["ask"].restored) == ASK
    assert said(second.rows["sum"].spent) == (2, 2000, 2, None, 2)
    assert second.total.uncertain.calls == 0


def test_each_attempt_that_says_its_end_restores_anew(new_ledger: New) -> None:
    for ends in ("fail", "fail", "ok"):
        account = run(pipeline(new_ledger, ends=ends))
    assert said(account.total.restored) == (2, 200, 20, Decimal("1.0"), 0)


def test_a_killed_call_is_uncertain_and_its_repetition_is_an_estimate(new_ledger: New, db: Path) -> None:
    dead = run(pipeline(new_ledger, ends="die"))
    assert (dead.total.uncertain.calls, dead.total.uncertain.repeated) == (1, 0)
    assert dead.total.uncertain.estimate == Total()
    assert said(dead.total.spent) == ASK
    again = run(pipeline(new_ledger, ends="die"))
    assert (again.total.uncertain.calls, again.total.uncertain.repeated) == (2, 0)
    assert said(again.total.restored) == NOTHING  # killed again: nothing says what it restored
    done = run(pipeline(new_ledger))
    uncertain = done.rows["sum"].uncertain
    assert (uncertain.calls, uncertain.repeated, said(uncertain.estimate)) == (2, 2, (2, 2000, 2, None, 2))
    assert said(done.total.spent) == BOTH
    assert said(done.total.restored) == ASK
    store_of(new_ledger("other")).close()
    check_ledger(db)


def test_a_later_call_with_other_inputs_is_no_estimate(new_ledger: New) -> None:
    def build(*, version: str, die: bool) -> RunLedger:
        ledger = new_ledger()

        @ledger.step(version=version)
        def ask() -> int:
            report_usage(input_tokens=1)
            if die:
                raise KeyboardInterrupt
            return 1

        return ledger

    run(build(version="1", die=True))
    account = run(build(version="2", die=False))
    assert (account.total.uncertain.calls, account.total.uncertain.repeated) == (1, 0)


def test_calls_of_a_living_attempt_are_running_and_not_uncertain(new_ledger: New) -> None:
    ledger = new_ledger()
    seen: list[Account | None] = []

    @ledger.step
    def ask() -> int:
        report_usage(input_tokens=7)
        seen.append(ledger.bind("r1").usage())
        return 1

    ledger.execute()
    assert seen[0] is not None
    assert (seen[0].running, seen[0].total.uncertain.calls, seen[0].total.spent) == (1, 0, Total())


def test_a_completed_run_that_is_executed_again_changes_no_account(new_ledger: New) -> None:
    before = run(pipeline(new_ledger))
    assert run(pipeline(new_ledger)) == before


def _ended(tx: Tx, row: RunRow, ids: list[int], *, attempt: int = 1) -> None:
    content = {"results": {}, "used": ids, "code_changed": [], "reason": ""}
    packed = codecs.pack(content, limit_bytes=1 << 20)
    record = new_record(
        RecordKind.END, row.run_uid, name="", fingerprint=b"", attempt=attempt,
        value_sha256=packed.value_sha256, encoding=packed.encoding, payload=packed.payload,
    )  # fmt: skip
    change = Change(
        type="run", id=row.run_uid, old="running", new="completed", generation=row.generation, mac=record_mac(record)
    )
    end = tx.add_record(row.row_id, record, change)
    tx.update_run(
        row, state=RunState.COMPLETED, generation=row.generation, attempt=row.attempt, holder="here",
        start_record_id=row.start_record_id, last_start_record_id=row.last_start_record_id, end_record_id=end,
    )  # fmt: skip


def test_a_fork_restores_what_its_ancestors_paid(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "runs.db", create=True)
    one, ten, hundred = (usage_bytes([Usage(input_tokens=n)]) for n in (1, 10, 100))
    grandparent = begin(store, "grandparent")
    first = do_step(store, grandparent, 1, usage=one)
    parent = begin(store, "parent")
    second = do_step(store, parent, 2, usage=ten)
    unused = do_step(store, parent, 3, usage=hundred)
    fork = begin(store, "fork")
    own = do_step(store, fork, 4, usage=hundred)
    for row, ids in ((parent, [first, second, unused]), (fork, [first, second, own])):
        store.transact(op(), lambda tx, row=row, ids=ids: _ended(tx, row, ids))
    rows = {row.run_id: row for row in store.reader().list_runs(state=None, before_row_id=None, limit=9)}
    family = {"fork": rows["parent"].row_id, "parent": rows["grandparent"].row_id, "grandparent": None}

    def row_of_fork(run_id: str) -> RunRow:
        row = rows[run_id]
        return RunRow(**{name: getattr(row, name) for name in row.__slots__} | {"forked_from_row_id": family[run_id]})

    by_row_id = {row.row_id: run_id for run_id, row in rows.items()}
    lying: Any = LyingStore(store, get_run=lambda row_id: row_of_fork(by_row_id[row_id]))
    account = account_of_run(lying, row_of_fork("fork"))
    assert (account.total.spent.input_tokens, account.total.restored.input_tokens) == (100, 11)
    assert account_of_run(lying, row_of_fork("parent")).total.restored.input_tokens == 1
    assert account_of_run(lying, rows["fork"]).total.restored.calls == 0
    family["grandparent"] = rows["fork"].row_id  # a circle that no log has ends all the same
    assert account_of_run(lying, row_of_fork("fork")).total.restored.input_tokens == 11
    store.close()


def test_the_store_is_the_sum_of_its_runs_whatever_its_rows(new_ledger: New) -> None:
    run(pipeline(new_ledger, ends="fail"))
    run(pipeline(new_ledger))
    ledger = pipeline(new_ledger, run_id="r2", ends="die", model="n")
    run(ledger)
    whole = ledger.usage()
    assert whole is not None
    assert (whole.rows, whole.runs, whole.silent) == ({}, 2, 2)
    assert said(whole.total.spent) == (4, 2200, 22, Decimal("1.0"), 2)
    for by, keys in (
        ("step", {"ask", "sum"}),
        ("model", {"m", "m-large", "n", ""}),
        ("run", {"r1", "r2"}),
        ("day", {datetime.now(UTC).date().isoformat()}),
    ):
        account = ledger.usage(by=by)
        assert account is not None
        assert account.total == whole.total
        if by != "day":  # two days, where midnight lies between
            assert set(account.rows) == keys
        total = Entry()
        for entry in account.rows.values():
            total.merge(entry)
        assert total == whole.total
    by_model = ledger.usage(by="model")
    assert by_model is not None
    assert by_model.rows[""].uncertain.calls == 1
    assert said(by_model.rows["m"].restored) == ASK


def test_since_leaves_out_what_ended_before(new_ledger: New) -> None:
    ledger = pipeline(new_ledger, ends="fail")
    run(ledger)
    run(pipeline(new_ledger))
    run(pipeline(new_ledger, run_id="dead", ends="die"))
    store = store_of(ledger)
    early, late = account_of_store(store, since_ms=0), account_of_store(store, since_ms=2**50)
    assert early.total == account_of_store(store).total
    assert early.silent is None
    assert late.total == Entry()
    results = store.reader().records(row_of(ledger).row_id, kinds=[RecordKind.RESULT])
    last = max(stored.record.ended_at_ms for stored in results)
    assert account_of_store(store, since_ms=last).total.spent.calls >= 1
    with pytest.raises(Misuse, match="time zone"):
        ledger.usage(since=datetime(2026, 1, 1))
    since = ledger.usage(since=datetime(2026, 1, 1, tzinfo=UTC))
    assert since is not None
    assert since.total == early.total


def test_progress_is_told_run_by_run(new_ledger: New) -> None:
    ledgers = [pipeline(new_ledger, run_id=f"r{n}") for n in range(3)]
    for ledger in ledgers:
        run(ledger)
    told: list[tuple[int, int]] = []
    account_of_store(store_of(ledgers[0]), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_all_runs_are_read_also_beyond_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_module, "PAGE", 2)
    store = open_sqlite(tmp_path / "runs.db", create=True)
    for n in range(5):
        do_step(store, begin(store, f"r{n}"), n, usage=usage_bytes([Usage(input_tokens=10**n)]))
    assert account_of_store(store).total.spent.input_tokens == 11111
    store.close()


def test_there_is_no_account_before_the_first_run(new_ledger: New, db: Path) -> None:
    ledger = pipeline(new_ledger)
    assert ledger.usage() is None
    assert ledger.bind("r1").usage() is None
    assert not store_exists(db)
    run(ledger)
    assert ledger.bind("other").usage() is None


def test_another_word_for_the_rows_is_misuse(new_ledger: New) -> None:
    ledger = pipeline(new_ledger)
    run(ledger)
    with pytest.raises(Misuse, match="by must be one of"):
        ledger.usage(by="week")


def test_a_usage_that_is_none_is_tampering(new_ledger: New) -> None:
    ledger = pipeline(new_ledger)
    run(ledger)
    row = UsageRow(1, 1, RecordKind.RESULT, b"", "ask", b"", 0, 1, b'[{"input_tokens":-5}]', 1)
    lying: Any = LyingStore(store_of(ledger), usages=lambda _: iter([row]))
    with pytest.raises(Tampered, match="arl verify"):
        account_of_run(lying, row_of(ledger))


def test_an_erased_record_still_says_what_it_used(new_ledger: New) -> None:
    ledger = pipeline(new_ledger)
    before = run(ledger)
    store, row = store_of(ledger), row_of(ledger)
    ids = [stored.record_id for stored in store.reader().records(row.row_id, kinds=[RecordKind.RESULT])]

    def erase(tx: Tx) -> None:
        assert tx.erase_records(row.row_id, ids) == 3
        tx.add_change(Change(type="store", id=op(), old="x", new="y", generation=1))

    store.transact(op(), erase)
    assert account_of_run(store, row).total == before.total


def test_runs_within_a_run_are_accounted_on_their_own_or_with_it(new_ledger: New) -> None:
    ledger = new_ledger("r1")

    @ledger.step
    def ask(tokens: int) -> int:
        report_usage(model="m", input_tokens=tokens, output_tokens=0)
        return tokens

    with ledger.run(n=1):
        ask(1)
        with ledger.run(n=2):
            ask(10)
            with ledger.run(n=3):
                ask(100)
    bound = ledger.bind("r1")
    own, family = bound.usage(), bound.usage(by="run", children=True)
    assert own is not None
    assert family is not None
    assert (own.total.spent.tokens, own.runs) == (1, 1)
    assert (family.total.spent.tokens, family.runs) == (111, 3)
    assert [entry.spent.tokens for entry in family.rows.values()] == [1, 10, 100]
