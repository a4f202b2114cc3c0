"""What a ledger requires: within limits, never less than at the latest transition, and less is found by the auditor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger, Misuse, Refused, Tampered
from agent_run_ledger.effects import ActionState, Settings, WitnessPolicy
from agent_run_ledger.kernel.effects import Standing
from agent_run_ledger.kernel.effects.strength import weaker
from agent_run_ledger.ledger.verify import verify_log
from agent_run_ledger.store import open_sqlite
from tests.contract.effect_kit import FakeWitness, effects
from tests.contract.effect_stories import Stories, edit, places, rewrite
from tests.contract.engine_kit import each_engine

pytestmark = each_engine

STRONG = {"bound_ms": 500, "max_permit_ms": 40_000, "people_for_not_executed": 2}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("bound_ms", 0, 3_600_000), ("max_permit_ms", 1, 60_000), ("people_for_not_executed", 1, 100)],
)
def test_a_setting_is_an_integer_within_its_limits(name: str, least: int, most: int) -> None:
    for number in (least, most):
        assert getattr(Settings(**{name: number}), name) == number
    wrong: list[Any] = [least - 1, most + 1, -60_000, 10**12, True, 1.0, "7", None]
    for number in wrong:
        with pytest.raises(Misuse, match=name) as refusal:
            Settings(**{name: number})
        assert refusal.value.code == "bad_settings"


@pytest.mark.parametrize(("name", "less"), [(name, most - 1) for name, most in STRONG.items()])
def test_who_asks_for_less_than_the_latest_transition_is_refused(name: str, less: int) -> None:
    with effects(**STRONG) as kit:
        kit.settings = Settings(**{**STRONG, name: less})
        kit.reopen()  # nothing was decided yet
        kit.settings = Settings(**STRONG)
        kit.reopen()
        kit.reach(ActionState.PREPARED)
        with pytest.raises(Refused, match=f"{name} {less} after {less + 1}") as refusal:
            EffectLedger(kit.path, time=kit.ticks, settings=Settings(**{**STRONG, name: less}))
        assert refusal.value.code == "weaker_settings"
        assert refusal.value.hint
        kit.settings = Settings(**{**STRONG, name: less + 2})
        kit.reopen()


def test_a_ledger_that_had_a_witness_is_not_opened_without_one() -> None:
    with effects(witness=FakeWitness()) as kit:
        kit.reach(ActionState.PREPARED)
        with pytest.raises(Refused, match="witness none after http") as refusal:
            EffectLedger(kit.path, time=kit.ticks, settings=kit.settings)
        assert refusal.value.code == "weaker_settings"


def test_a_ledger_without_a_witness_may_get_one() -> None:
    with effects() as kit:
        kit.reach(ActionState.PREPARED)
        kit.witness = FakeWitness()
        kit.reopen()
        assert kit.ledger.status().witness is WitnessPolicy.HTTP


def test_kinds_of_witnesses_are_ordered() -> None:
    kinds = (WitnessPolicy.NONE, WitnessPolicy.FILE, WitnessPolicy.HTTP)
    stood = [Standing(ledger_id=b"", witness=kind) for kind in kinds]
    less = {(now.witness, before.witness) for now in stood for before in stood if weaker(now, before)}
    assert less == {(kinds[0], kinds[1]), (kinds[0], kinds[2]), (kinds[1], kinds[2])}


def test_a_latest_record_that_cannot_be_read_is_no_reason_to_open(tmp_path: Path) -> None:
    stories = Stories(tmp_path / "effects.db")
    stories.claimed("k")
    stories.ledger.close()
    edit(tmp_path / "effects.db", "UPDATE action_records SET payload = x'7b7d'")
    with pytest.raises(Tampered, match="latest transition"):
        stories.reopened(tmp_path / "effects.db")


def _weaker_leaves(path: Path) -> list[tuple[int | None, str]]:
    store = open_sqlite(path, create=False)
    try:
        report = verify_log(store.reader(), log_id=store.log_id, is_copy=store.is_copy)
        return [(one.leaf_index, one.text) for one in report.problems if "the ledger was weaker" in one.text]
    finally:
        store.close()


def test_the_auditor_names_the_transition_at_which_the_ledger_was_weaker(tmp_path: Path) -> None:
    path = tmp_path / "effects.db"
    stories = Stories(path)
    stories.claimed("k")
    stories.available("other")
    stories.ledger.close()
    assert _weaker_leaves(path) == []
    (claim,) = places(path, "k", "Claim")
    rewrite(path, claim, lambda tree: tree["ledger"].update(bound_ms=999), lambda line: None)
    ((leaf, text),) = _weaker_leaves(path)
    assert leaf == claim >> 16
    assert text.endswith("the ledger was weaker: bound_ms 999 after 1000")


def test_who_names_no_settings_gets_those_of_the_latest_transition() -> None:
    with effects(people_for_not_executed=2, officers_needed=3) as kit:
        kit.propose()
        with EffectLedger(kit.path, time=kit.ticks) as ledger:
            assert ledger._engine.settings == kit.settings
    with effects(kept=False) as kit, EffectLedger(kit.path, time=kit.ticks) as ledger:
        assert ledger._engine.settings == Settings()
