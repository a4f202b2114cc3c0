"""What monitoring is told of effects: gauges of a store, counters of a process, and alert rules that rest on them."""

from __future__ import annotations

import logging
import operator
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent_run_ledger import Budget, BudgetExceeded, EffectLedger, LedgerError, LoopDetected, RunLedger
from agent_run_ledger.cli.main import main
from agent_run_ledger.effects import ActionState, EffectNotice, Gave
from agent_run_ledger.kernel.gauges import EffectGauges, StoreGauges, Why
from agent_run_ledger.kernel.states import RunEvent
from agent_run_ledger.ledger.store_gauges import read_gauges
from agent_run_ledger.runs.operate import decide
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.telemetry import Prometheus
from agent_run_ledger.telemetry.exposition import exposition
from tests.contract.effect_kit import BOB, BOUND_MS, DOES, PERMIT_MS, A, E, FakeWitness, Kit, effects
from tests.contract.engine_kit import each_engine, only_a_file

pytestmark = each_engine

HOUR_MS = 3_600_000
RULES = Path("docs/reference/alerts/agent-run-ledger.rules.yml")


class Watched(Kit):
    """A kit whose ledger tells a Prometheus of its own."""

    def _open(self) -> EffectLedger:
        self.registry = CollectorRegistry()
        self.observer = Prometheus(self.registry)
        return EffectLedger(
            self.path, witness=self.witness, time=self.ticks, settings=self.settings, observers=[self.observer]
        )

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"agent_run_ledger_{name}", labels) or 0


@pytest.fixture
def kit() -> Iterator[Kit]:
    with effects() as kit:
        yield kit


def gauges(kit: Kit) -> StoreGauges:
    return read_gauges(kit.ledger._store, kit.now(), time=kit.ticks)


def of_effects(kit: Kit) -> EffectGauges:
    read = gauges(kit).effects
    assert read is not None
    return read


def test_actions_are_counted_by_state(kit: Kit) -> None:
    for state in ActionState:
        kit.reach(state, key=str(state))
    kit.reach(A.UNRESOLVED, key="one more")
    counted = of_effects(kit).actions
    assert set(counted) == set(ActionState)
    assert (counted[A.UNRESOLVED], counted[A.SUCCEEDED], counted[A.SUPERSEDED]) == (2, 1, 1)


def test_the_age_of_doubt_is_that_of_the_oldest_that_nothing_ended(kit: Kit) -> None:
    assert (of_effects(kit).doubt_age_s, gauges(kit).unresolved_age_s) == (0, 0)
    first = kit.reach(A.PREPARED, key="prepared first")
    second = kit.reach(A.UNRESOLVED, key="doubted first")
    kit.ticks.tick(4_000)
    kit.do(E.DOUBT, first)
    kit.ticks.tick(1_000)
    assert (of_effects(kit).doubt_age_s, gauges(kit).unresolved_age_s) == (5.0, 5.0)
    kit.do(E.OUTCOME, second)
    assert of_effects(kit).doubt_age_s == 1.0
    kit.do(E.OUTCOME, first)
    assert (of_effects(kit).doubt_age_s, gauges(kit).unresolved_age_s) == (0, 0)


def test_claims_are_stranded_from_the_end_of_permit_and_bound_on(kit: Kit) -> None:
    view = kit.reach(A.PREPARED)
    kit.ticks.tick(PERMIT_MS + BOUND_MS - 1)
    assert of_effects(kit).stranded == 0
    kit.ticks.tick(1)
    assert of_effects(kit).stranded == 1
    kit.do(E.DOUBT, view)
    assert of_effects(kit).stranded == 0, "a doubt is no claim any more"


def test_what_waits_for_approval_is_counted_while_its_window_is_open(kit: Kit) -> None:
    kit.ticks.wall_ms = time.time_ns() // 1_000_000  # a proposal's age is by the log's clock, which is the machine's
    assert of_effects(kit).waiting_age_s == 0
    view = kit.propose(dispatch_before_ms=kit.now() + 3 * HOUR_MS)
    kit.ticks.tick(2 * HOUR_MS)
    assert 7_100 < of_effects(kit).waiting_age_s <= 7_200
    kit.ticks.tick(HOUR_MS)
    assert of_effects(kit).waiting_age_s == 0, "nobody can approve it any more"
    kit.do(E.EXPIRE, view)
    kit.reach(A.AVAILABLE, key="approved")
    assert of_effects(kit).waiting_age_s == 0


def test_what_is_approved_is_unclaimed_from_then_on_while_its_window_is_open(kit: Kit) -> None:
    kit.ticks.wall_ms = time.time_ns() // 1_000_000
    view = kit.move(E.APPROVE, kit.propose(dispatch_before_ms=kit.now() + 3 * HOUR_MS))
    later = {"not_before_ms": kit.now() + 24 * HOUR_MS, "dispatch_before_ms": kit.now() + 48 * HOUR_MS}
    kit.move(E.APPROVE, kit.propose(key="later", **later))
    assert of_effects(kit).unclaimed_age_s < 100
    kit.ticks.tick(2 * HOUR_MS)
    assert 7_100 < of_effects(kit).unclaimed_age_s <= 7_300
    kit.ticks.tick(HOUR_MS)
    assert of_effects(kit).unclaimed_age_s == 0, "nobody can claim it any more"
    kit.do(E.EXPIRE, view)
    assert of_effects(kit).unclaimed_age_s == 0


@only_a_file
def test_the_ledgers_state_is_that_of_store_and_clock(kit: Kit, tmp_path: Path) -> None:
    kit.reach(A.UNRESOLVED)
    assert of_effects(kit).state == "open"
    kit.ticks.leap(-1)
    assert of_effects(kit).state == "time_untrusted"
    kit.ticks.leap(1)
    assert main(["backup", str(tmp_path / "copy.db"), "--db", str(kit.path)]) == 0
    copy = open_sqlite(tmp_path / "copy.db", create=False, readonly=True)
    try:
        read = read_gauges(copy, kit.now(), time=kit.ticks).effects
    finally:
        copy.close()
    assert read is not None
    assert read.state == "recovery"


def test_a_store_for_runs_alone_has_no_numbers_of_effects(tmp_path: Path) -> None:
    with RunLedger("r", tmp_path / "runs.db") as ledger:
        ledger.step(name="one")(lambda: 1)
        ledger.execute()
        read = ledger.store_gauges()
    assert read is not None
    assert read.effects is None
    assert "stored_actions" not in exposition(read)
    assert "ledger_state" not in exposition(read)


def stop(path: Path, why: Why, name: str) -> StoreGauges:
    """Let a run be stopped for a loop, for its budget, or by a person, and return what the store says then."""
    budget = Budget(max_calls=1) if why is Why.BUDGET else None
    with RunLedger(name, path, budget=budget) as ledger:
        read = ledger.tool(name="read", safe=True)(lambda: "nothing new")

        def loop() -> None:
            with ledger.run():
                for _ in range(9 if why is not Why.OTHER else 1):
                    read()
                raise ZeroDivisionError

        with pytest.raises((LoopDetected, BudgetExceeded, ZeroDivisionError)):
            loop()
        if why is Why.OTHER:
            decide(ledger._opened.context(), name, RunEvent.QUARANTINE, reason="loop: I say so", actor="op")
        gauges = ledger.store_gauges()
    assert gauges is not None
    return gauges


def test_runs_in_quarantine_are_counted_by_why(tmp_path: Path) -> None:
    whys = (Why.LOOP, Why.BUDGET, Why.BUDGET, Why.OTHER)
    read = [stop(tmp_path / "runs.db", why, f"run {number}") for number, why in enumerate(whys)][-1]
    assert read.quarantined == {Why.LOOP: 1, Why.BUDGET: 2, Why.OTHER: 1}


def test_claims_are_counted_by_how_they_ended() -> None:
    with effects(kind=Watched, witness=FakeWitness()) as kit:
        assert isinstance(kit, Watched)
        waits, view = kit.propose(key="not approved"), kit.reach(A.AVAILABLE)
        kit.do(E.CLAIM, view, claim_key=b"k" * 16)
        kit.do(E.CLAIM, view, claim_key=b"k" * 16)
        for asked, changes in (
            (view, {"worker": "w2"}),
            (waits, {}),
            (waits, {"actor": BOB}),
            (kit.reach(A.REJECTED, key="rejected"), {}),
            (kit.reach(A.SUCCEEDED, key="done"), {"worker": "w2"}),
        ):
            with pytest.raises(LedgerError):
                kit.do(E.CLAIM, asked, **changes)
        kit.ticks.leap(-5_000)
        with pytest.raises(LedgerError):
            kit.do(E.CLAIM, kit.propose(key="late"))
        counted = {
            result: kit.value("claims_total", result=result)
            for result in ("granted", "again", "taken", "waiting", "refused", "unavailable", "uncertain")
        }
    assert counted == {
        "granted": 2, "again": 1, "taken": 2, "waiting": 1, "refused": 2, "unavailable": 1, "uncertain": 0,
    }  # fmt: skip


def test_decisions_and_doubts_are_counted_once_and_refusals_are_not() -> None:
    with effects(kind=Watched) as kit:
        assert isinstance(kit, Watched)
        view = kit.reach(A.NOT_EXECUTED)
        kit.do(E.SUCCESSOR, view)
        with pytest.raises(LedgerError):
            kit.do(E.SUCCESSOR, view)
        kit.reach(A.REVOKED, key="revoked")
        kit.do(E.REVOKE, kit.ledger.inspect("revoked")[0])
        names = ("approve", "not_executed", "successor", "revoke", "success", "write_off", "observe", "claim")
        counted = {name: kit.value("decisions_total", decision=name) for name in names}
        assert kit.value("doubts_total") == 1
    assert counted == {
        "approve": 1, "not_executed": 1, "successor": 1, "revoke": 1, "success": 0, "write_off": 0,
        "observe": 0, "claim": 0,
    }  # fmt: skip


def test_an_observer_is_told_what_became_of_a_question_and_nothing_of_the_action() -> None:
    told: list[EffectNotice] = []

    class Tells:
        def tell(self, notice: EffectNotice) -> None:
            told.append(notice)

    class Telling(Kit):
        def _open(self) -> EffectLedger:
            return EffectLedger(self.path, time=self.ticks, settings=self.settings, observers=[Tells()])

    with effects(kind=Telling) as kit:
        view = kit.propose()
        kit.propose()
        with pytest.raises(LedgerError):
            kit.do(E.CLAIM, view)
        with pytest.raises(LedgerError):
            kit.do(E.APPROVE, view, actor=DOES[E.CLAIM])
    assert told == [
        EffectNotice(event=E.PROPOSE, gave=Gave.ACCEPTED),
        EffectNotice(event=E.PROPOSE, gave=Gave.RECORDED),
        EffectNotice(event=E.CLAIM, gave=Gave.PENDING, code="proposed"),
        EffectNotice(event=E.APPROVE, gave=Gave.REFUSED, code="wrong_role"),
    ]


def test_an_observer_that_fails_changes_nothing_and_is_told_no_more(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[EffectNotice] = []
    later: list[EffectNotice] = []

    class Fails:
        def tell(self, notice: EffectNotice) -> None:
            asked.append(notice)
            raise RuntimeError("the monitoring is down")

    class Holds:
        def tell(self, notice: EffectNotice) -> None:
            later.append(notice)

    class Failing(Kit):
        def _open(self) -> EffectLedger:
            return EffectLedger(self.path, time=self.ticks, settings=self.settings, observers=[Fails(), Holds()])

    with caplog.at_level(logging.ERROR, "agent_run_ledger"), effects(kind=Failing) as kit:
        assert kit.reach(A.CLAIMED).state is A.CLAIMED
    assert (len(asked), len(later)) == (1, 3)
    assert caplog.text.count("told no more") == 1


def test_no_label_holds_anything_of_an_action() -> None:
    with effects(kind=Watched) as kit:
        assert isinstance(kit, Watched)
        kit.reach(A.UNRESOLVED, key="a-key-that-is-nobodys-business")
        kit.observer.watch_store(lambda: gauges(kit))
        told = generate_latest(kit.registry).decode()
    for secret in ("nobodys", "w1", "pay.example", "ops"):
        assert not re.search(rf'"[^"]*{secret}[^"]*"', told), secret
    assert 'agent_run_ledger_stored_actions{state="unresolved"} 1.0' in told


# -- alert rules ----------------------------------------------------------------------------------------------------


def rules(root: Path) -> dict[str, dict[str, Any]]:
    read = yaml.safe_load((root / RULES).read_text(encoding="utf-8"))
    assert set(read) == {"groups"}
    found = [rule for group in read["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found)
    return {rule["alert"]: rule for rule in found}


def told_by(kit: Watched) -> dict[tuple[str, ...], float]:
    """What a scrape of a process with this ledger reads: by name, and by name and the label's value."""
    kit.observer.watch_store(lambda: gauges(kit))
    families = text_string_to_metric_families(generate_latest(kit.registry).decode())
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name != "le")): sample.value
        for family in families
        for sample in family.samples
    }


SIMPLE = re.compile(r'(agent_run_ledger_\w+)(?:\{\w+="(\w+)"\})? (>|==) (\d+)')
COMPARE = {">": operator.gt, "==": operator.eq}


def firing(root: Path, told: dict[tuple[str, ...], float]) -> set[str]:
    """The alerts of one comparison each that these numbers raise."""
    found: set[str] = set()
    for name, rule in rules(root).items():
        simple = SIMPLE.fullmatch(rule["expr"])
        if simple is not None:
            metric, label, sign, limit = simple.groups()
            value = told.get((metric,) if label is None else (metric, label))  # what is not told raises nothing
            found |= {name} if value is not None and COMPARE[sign](value, float(limit)) else set()
    return found


def test_every_rule_says_what_it_is_how_bad_and_which_command_comes_first(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rule in rules(root).items():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, name
        assert re.fullmatch(r"\d+[mh]", rule["for"]), name
        assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"}), name
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "command"}, name
        assert all(said.values()), name
        program, *words = said["command"].split()
        assert program == "arl"
        assert main([*words, "--help"]) == 0, name
        options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert {word for word in words if word.startswith("--")} <= options, name


def test_every_metric_and_label_in_a_rule_is_told_by_a_real_store_and_process(root: Path) -> None:
    with effects(kind=Watched, kept=False) as kit:
        assert isinstance(kit, Watched)
        view = kit.reach(A.PREPARED, key="claimed")
        with pytest.raises(LedgerError):
            kit.do(E.CLAIM, view, worker="w2")
        kit.ticks.leap(-1)
        with pytest.raises(LedgerError):
            kit.do(E.CLAIM, kit.propose(key="late"))
        told = told_by(kit)
    names = {name for name, *_ in told}
    for name, rule in rules(root).items():
        for metric, label, value in re.findall(r'(agent_run_ledger_\w+)(?:\{(\w+)=~?"([^"]+)"\})?', rule["expr"]):
            assert metric in names, name
            values = {key[1] for key in told if key[0] == metric and len(key) > 1}
            wanted = set(value.split("|")) - {"uncertain"} if label else set()
            assert wanted <= values, (name, wanted, values)


def test_the_rules_are_silent_over_a_healthy_store_and_each_is_raised_by_its_fault(root: Path) -> None:
    with effects(kind=Watched, kept=False) as kit:
        assert isinstance(kit, Watched)
        kit.ticks.wall_ms = time.time_ns() // 1_000_000
        kit.reach(A.SUCCEEDED, key="done")
        kit.reach(A.CLAIMED, key="at work")
        kit.propose(key="new", dispatch_before_ms=kit.now() + 24 * HOUR_MS)
        kit.reach(A.AVAILABLE, key="approved")
        assert firing(root, told_by(kit)) == set()
    with effects(kind=Watched, kept=False) as kit:
        assert isinstance(kit, Watched)
        kit.ticks.wall_ms = time.time_ns() // 1_000_000
        kit.reach(A.UNRESOLVED, key="doubted")
        kit.reach(A.PREPARED, key="stranded")
        kit.propose(key="waits", dispatch_before_ms=kit.now() + 24 * HOUR_MS)
        kit.move(E.APPROVE, kit.propose(key="approved", dispatch_before_ms=kit.now() + 24 * HOUR_MS))
        kit.ticks.tick(5 * HOUR_MS)
        raised = {"ActionInDoubt", "ClaimStranded", "ApprovalWaits", "ApprovedUnclaimed"}
        assert firing(root, told_by(kit)) == raised
    with effects(kind=Watched, kept=False) as kit:
        assert isinstance(kit, Watched)
        kit.reach(A.AVAILABLE)
        kit.ticks.leap(-1)
        assert firing(root, told_by(kit)) == {"LedgerNotOpen"}


def test_stopped_runs_raise_the_alert_of_why(root: Path, tmp_path: Path) -> None:
    for why, alerts in ((Why.LOOP, {"LoopQuarantine"}), (Why.BUDGET, {"BudgetUsedUp"}), (Why.OTHER, set[str]())):
        read, registry = stop(tmp_path / f"{why}.db", why, "r1"), CollectorRegistry()
        Prometheus(registry).watch_store(lambda read=read: read)
        families = text_string_to_metric_families(generate_latest(registry).decode())
        told = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
        assert firing(root, told) == alerts
