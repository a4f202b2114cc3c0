"""Numbers that Prometheus' own client exposes: what is counted, under which labels, and the gauges of a store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent_run_ledger import LoopDetected, Misuse, RunLedger, RunState, Unavailable
from agent_run_ledger.kernel.effects.states import ActionState, LedgerState
from agent_run_ledger.kernel.gauges import EffectGauges, StoreGauges, Why
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.kernel.usage import Usage
from agent_run_ledger.ledger.store_gauges import read_gauges
from agent_run_ledger.telemetry import Prometheus
from agent_run_ledger.telemetry.exposition import exposition, families
from tests.contract.observer_kit import let_pay
from tests.contract.run_kit import in_a_file, marks_of, operate, row_of, store_exists, store_of

New = Callable[..., RunLedger]
PAID = {"first": [Usage(input_tokens=100, output_tokens=7, cache_read_tokens=60)], "second": [Usage(output_tokens=5)]}
LABELS = {
    "outcome", "type", "disposition", "state", "kind", "file", "le", "step", "level", "why", "result", "decision",
}  # fmt: skip


class Seen:
    """One observer with a registry of its own."""

    def __init__(self, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        self.observer = Prometheus(self.registry, **settings)

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"agent_run_ledger_{name}", labels)
        return 0 if found is None else found


def two_steps(ledger: RunLedger, second: Callable[[int], Any] = lambda first: first + 1) -> None:
    ledger.step(name="first")(lambda: 1)
    ledger.step(name="second", depends_on=["first"], retries=1, retry_base_s=0)(second)


def fail_then_finish(new_ledger: New, **settings: Any) -> Seen:
    """One failed attempt with a retry, then one that completes the run; one observer for both."""
    seen = Seen(**settings)
    for second in (lambda first: 1 // 0, lambda first: first):
        ledger = new_ledger(observers=[seen.observer])
        two_steps(ledger, second)
        try:
            ledger.execute()
        except ZeroDivisionError:
            continue
    return seen


def test_steps_runs_and_attempts_are_counted_by_outcome(new_ledger: New) -> None:
    seen = fail_then_finish(new_ledger)
    assert {o: seen.value("steps_total", outcome=o) for o in ("live", "replayed", "failed")} == {
        "live": 2,
        "replayed": 1,
        "failed": 2,
    }
    assert seen.value("retries_total") == 1
    assert {s: seen.value("runs_total", state=s) for s in ("completed", "failed")} == {"completed": 1, "failed": 1}
    assert {k: seen.value("attempts_total", kind=k) for k in ("first", "resumed", "takeover")} == {
        "first": 1,
        "resumed": 1,
        "takeover": 0,
    }
    assert seen.value("step_duration_seconds_count") == 4
    assert seen.value("commits_total", outcome="committed") == 6
    assert seen.value("commit_seconds_count") == seen.value("commit_wait_seconds_count") == 6


def test_tokens_are_spent_once_and_counted_apart_when_replayed(
    new_ledger: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pay(monkeypatch, PAID)
    seen = fail_then_finish(new_ledger)

    def tokens(disposition: str) -> dict[str, float]:
        types = ("input", "output", "cache_read", "cache_write")
        return {t: seen.value("tokens_total", type=t, disposition=disposition) for t in types}

    assert tokens("spent") == {"input": 100, "output": 7 + 5 * 3, "cache_read": 60, "cache_write": 0}
    assert tokens("replayed") == {"input": 100, "output": 7, "cache_read": 60, "cache_write": 0}
    assert tokens("uncertain") == {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}


def test_what_was_paid_for_and_is_not_on_record_is_uncertain(new_ledger: New, monkeypatch: pytest.MonkeyPatch) -> None:
    let_pay(monkeypatch, PAID)
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    two_steps(ledger)
    kind = type(store_of(ledger))
    whole, calls = kind.transact, iter(range(100))

    def transact(self: Any, op_id: bytes, fn: Any, *, sync: bool = True, first: Any = ()) -> Any:
        if next(calls) == 2:
            raise Unavailable("the disk is full", code="disk_full")
        return whole(self, op_id, fn, sync=sync, first=first)

    monkeypatch.setattr(kind, "transact", transact)
    with pytest.raises(Unavailable):
        ledger.execute()
    assert seen.value("tokens_total", type="input", disposition="uncertain") == 100
    assert seen.value("tokens_total", type="input", disposition="spent") == 0
    assert seen.value("unrecorded_calls_total") == 1
    assert seen.value("commits_total", outcome="failed") == 1
    assert seen.value("commit_wait_seconds_count") == 1, "a commit that never had the lock did not wait for it"
    assert seen.value("runs_total", state="running") == 1


def test_calls_that_an_attempt_finds_abandoned_are_counted(new_ledger: New) -> None:
    seen = Seen()

    def interrupt(first: int) -> int:
        raise KeyboardInterrupt

    for second in (interrupt, lambda first: first):
        ledger = new_ledger(observers=[seen.observer])
        two_steps(ledger, second)
        try:
            ledger.execute()
        except KeyboardInterrupt:
            assert seen.value("abandoned_calls_total") == 0
    assert seen.value("abandoned_calls_total") == 1
    assert seen.value("unrecorded_calls_total") == 1


@pytest.mark.parametrize("step_names", [False, True])
def test_labels_hold_no_run_and_no_input_and_a_steps_name_only_where_asked_for(
    new_ledger: New, step_names: bool
) -> None:
    seen = fail_then_finish(new_ledger, step_names=step_names)
    told = generate_latest(seen.registry).decode()
    labels = {name for f in text_string_to_metric_families(told) for s in f.samples for name in s.labels}
    assert labels <= LABELS
    assert ("step" in labels) is step_names
    assert '"r1"' not in told
    outcome = {"outcome": "live", "step": "second"} if step_names else {"outcome": "live"}
    assert seen.value("steps_total", **outcome) == (1 if step_names else 2)


def test_a_second_observer_on_one_registry_is_refused() -> None:
    seen = Seen()
    with pytest.raises(Misuse, match="another Prometheus observer"):
        Prometheus(seen.registry)


def test_the_default_registry_is_the_clients_own() -> None:
    from prometheus_client import REGISTRY

    observer = Prometheus()
    try:
        assert REGISTRY.get_sample_value("agent_run_ledger_retries_total") == 0
    finally:
        for collector in list(REGISTRY._collector_to_names):
            if any(name.startswith("agent_run_ledger") for name in REGISTRY._collector_to_names[collector]):
                REGISTRY.unregister(collector)
    assert observer is not None


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Misuse) as refused:
        Prometheus()
    assert refused.value.code == "extra_missing"
    assert refused.value.hint == 'pip install "agent-run-ledger[prometheus]"'


# -- the gauges of a store ------------------------------------------------------------------------------------------


def interrupted(ledger: RunLedger, run_id: str) -> None:
    """Leave the second step of a run begun and not concluded, and nobody at work on it."""
    with pytest.raises(KeyboardInterrupt):
        ledger.bind(run_id).execute()


def leaving(new_ledger: New) -> RunLedger:
    def interrupt(first: int) -> int:
        raise KeyboardInterrupt

    ledger = new_ledger()
    two_steps(ledger, interrupt)
    return ledger


def test_the_age_is_that_of_the_oldest_call_in_a_run_that_nobody_works_on(new_ledger: New) -> None:
    ledger = leaving(new_ledger)
    for run_id in ("r1", "r2"):
        interrupted(ledger, run_id)
    store = store_of(ledger)
    began = {run_id: marks_of(ledger, run_id)[0].started_at_ms for run_id in ("r1", "r2")}
    now_ms = began["r2"] + 60_000
    assert read_gauges(store, now_ms).unresolved_age_s == (now_ms - began["r1"]) / 1000
    with_r1_alive = store.lock_run("r1")
    assert with_r1_alive is not None
    assert read_gauges(store, now_ms).unresolved_age_s == 60.0
    with_r2_alive = store.lock_run("r2")
    assert with_r2_alive is not None
    assert read_gauges(store, now_ms).unresolved_age_s == 0
    with_r1_alive.release()
    with_r2_alive.release()
    assert read_gauges(store, began["r1"] - 5_000).unresolved_age_s == 0, "a clock that was set back gives no negative"


def test_a_quarantined_run_still_counts_and_a_cancelled_or_resumed_one_does_not(new_ledger: New) -> None:
    ledger = leaving(new_ledger)
    interrupted(ledger, "r1")
    store, began_ms = store_of(ledger), marks_of(ledger)[0].started_at_ms
    operate(ledger, RunEvent.QUARANTINE)
    assert read_gauges(store, began_ms + 1_000).unresolved_age_s == 1.0
    operate(ledger, RunEvent.CANCEL)
    assert row_of(ledger).state is RunState.CANCELLED
    assert marks_of(ledger), "its mark is still there"
    assert read_gauges(store, began_ms + 1_000).unresolved_age_s == 0
    interrupted(ledger, "r2")
    resumed = new_ledger(run_id="r2")
    two_steps(resumed)
    resumed.execute()
    assert read_gauges(store, began_ms + 10_000).unresolved_age_s == 0


@in_a_file
def test_runs_are_counted_by_state_and_sizes_are_those_of_the_files(new_ledger: New, db: Path) -> None:
    ledger = leaving(new_ledger)
    interrupted(ledger, "r1")
    done = new_ledger(run_id="done")
    two_steps(done)
    done.execute()
    gauges = done.store_gauges()
    assert gauges is not None
    assert gauges.runs == dict.fromkeys(RunState, 0) | {RunState.RUNNING: 1, RunState.COMPLETED: 1}
    assert gauges.leaves == store_of(ledger).reader().head().size
    assert gauges.database_bytes == db.stat().st_size
    assert gauges.wal_bytes == Path(f"{db}-wal").stat().st_size


def test_a_store_that_does_not_exist_has_no_gauges_and_is_not_made(new_ledger: New, db: Path) -> None:
    seen = Seen()
    ledger = new_ledger()
    seen.observer.watch_store(ledger.store_gauges)
    assert ledger.store_gauges() is None
    assert b"agent_run_ledger_log_leaves" not in generate_latest(seen.registry)
    assert not store_exists(db)


@in_a_file
def test_a_scrape_has_the_gauges_of_the_store_as_it_is_then(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger()
    two_steps(ledger)
    seen.observer.watch_store(ledger.store_gauges)
    assert seen.value("stored_runs", state="completed") == 0
    ledger.execute()
    assert seen.value("stored_runs", state="completed") == 1
    assert seen.value("store_bytes", file="database") > 0
    assert seen.value("unresolved_age_seconds") == 0
    with pytest.raises(Misuse, match="watches a store already"):
        seen.observer.watch_store(ledger.store_gauges)


def test_a_store_that_cannot_be_read_leaves_the_other_metrics_alone(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()

    def unreadable() -> StoreGauges:
        raise Unavailable("the disk is gone")

    seen.observer.watch_store(unreadable)
    with caplog.at_level(logging.WARNING, "agent_run_ledger"):
        told = generate_latest(seen.registry)
    assert b"agent_run_ledger_log_leaves" not in told
    assert b"agent_run_ledger_retries_total 0.0" in told
    assert "the disk is gone" in caplog.text


def test_the_text_of_the_gauges_is_what_the_clients_parser_reads() -> None:
    gauges = StoreGauges(
        runs={RunState.RUNNING: 2, RunState.FAILED: 0},
        unresolved_age_s=0.25,
        leaves=2**40,
        database_bytes=1,
        wal_bytes=0,
        quarantined={Why.LOOP: 2, Why.BUDGET: 0},
        effects=EffectGauges(
            actions={ActionState.UNRESOLVED: 3},
            state=LedgerState.RECOVERY,
            doubt_age_s=0.5,
            stranded=4,
            waiting_age_s=7,
            unclaimed_age_s=8,
        ),
    )
    read = {
        (sample.name, *sample.labels.items()): sample.value
        for family in text_string_to_metric_families(exposition(gauges))
        for sample in family.samples
    }
    assert read == {
        ("agent_run_ledger_stored_runs", ("state", "running")): 2,
        ("agent_run_ledger_stored_runs", ("state", "failed")): 0,
        ("agent_run_ledger_unresolved_age_seconds",): 0.25,
        ("agent_run_ledger_quarantined_runs", ("why", "loop")): 2,
        ("agent_run_ledger_quarantined_runs", ("why", "budget")): 0,
        ("agent_run_ledger_log_leaves",): 2**40,
        ("agent_run_ledger_store_bytes", ("file", "database")): 1,
        ("agent_run_ledger_store_bytes", ("file", "wal")): 0,
        ("agent_run_ledger_stored_actions", ("state", "unresolved")): 3,
        ("agent_run_ledger_doubt_age_seconds",): 0.5,
        ("agent_run_ledger_stranded_claims",): 4,
        ("agent_run_ledger_waiting_approval_age_seconds",): 7,
        ("agent_run_ledger_unclaimed_age_seconds",): 8,
        **{("agent_run_ledger_ledger_state", ("state", s)): s == "recovery" for s in map(str, LedgerState)},
    }
    assert [family.name for family in families(gauges)] == list(dict.fromkeys(name for name, *_ in read))


def test_outcomes_that_nobody_knows_are_told_apart(new_ledger: New) -> None:
    seen = Seen()
    for attempt in range(2):
        ledger = new_ledger(observers=[seen.observer])

        @ledger.tool
        def send(to: str, fails: bool = attempt == 0) -> str:
            if fails:
                raise KeyboardInterrupt
            return to

        try:
            with ledger.run():
                send("ann")
        except KeyboardInterrupt:
            assert seen.value("unknown_outcomes_total") == 0
    assert seen.value("abandoned_calls_total") == 1
    assert seen.value("unknown_outcomes_total") == 1


def test_verdicts_of_the_breaker_are_counted_by_level(new_ledger: New) -> None:
    seen = Seen()
    ledger = new_ledger(observers=[seen.observer])
    read = ledger.tool(name="read", safe=True)(lambda: "nothing new")

    def loop() -> None:
        with ledger.run():
            for _ in range(9):
                read()

    with pytest.raises(LoopDetected):
        loop()
    assert [seen.value("breaker_verdicts_total", level=level) for level in ("ok", "warn", "nudge", "quarantine")] == [
        *(0, 1, 1, 1)
    ]
