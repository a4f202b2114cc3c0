"""An exhaustive search over the rules of effects finds no second effect where there must be none, and refutes twins."""

from __future__ import annotations

import pytest

from tests.model.effects_receivers import KINDS
from tests.model.effects_search import TWICE, Verdict, explore
from tests.model.effects_twins import TWINS, Twin
from tests.model.effects_world import Setting

REFUTED = [pytest.param(twin, kind, id=f"{kind}: {twin.name}") for twin in TWINS for kind in twin.refuted]
MADE_UP_FOR = [pytest.param(twin, kind, id=f"{kind}: {twin.name}") for twin in TWINS for kind in twin.safe]


def searched(twin: Twin, kind: str) -> Verdict:
    """The search with a twin's world; its rules are in force already."""
    setting = Setting(kind=KINDS[kind]._replace(**twin.kind), witness=not twin.none, **twin.setting)
    return explore(setting, effects_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_witness_no_key_has_two_effects_and_every_key_can_end(kind: str) -> None:
    verdict = explore(Setting(kind=KINDS[kind], witness=True), liveness=True)
    assert verdict.violation is None, str(verdict)
    assert (verdict.never_closed, verdict.never_done) == ([], [])


@pytest.mark.parametrize("kind", ["F-", "F"])
def test_a_fencing_receiver_is_enough_without_a_witness(kind: str) -> None:
    verdict = explore(Setting(kind=KINDS[kind], witness=False), liveness=True)
    assert verdict.violation is None, str(verdict)
    assert (verdict.never_closed, verdict.never_done) == ([], [])


@pytest.mark.parametrize("kind", ["N", "V", "I", "Ip"])
def test_without_a_witness_a_restored_copy_of_any_other_class_executes_twice(kind: str) -> None:
    verdict = explore(Setting(kind=KINDS[kind], witness=False))
    assert verdict.violation == TWICE, str(verdict)
    assert "RESTORE" in verdict.way


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("witness", [False, True], ids=["none", "witness"])
def test_without_a_restore_every_class_is_safe_and_every_key_can_end(kind: str, witness: bool) -> None:
    verdict = explore(Setting(kind=KINDS[kind], witness=witness, restores=0, silences=True), liveness=True)
    assert verdict.violation is None, str(verdict)
    assert (verdict.never_closed, verdict.never_done) == ([], [])


@pytest.mark.parametrize("kind", ["N", "F"])
def test_rejections_revocations_and_three_members_change_nothing(kind: str) -> None:
    ends = ("reject", "revoke", "expire")
    verdict = explore(Setting(kind=KINDS[kind], witness=True, restores=0, ends=ends, members=3), liveness=True)
    assert verdict.violation is None, str(verdict)
    assert (verdict.never_closed, verdict.never_done) == ([], [])


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_three_generations_silences_and_two_restores_change_nothing(kind: str) -> None:
    for bounds in ({"generations": 3, "members": 3}, {"silences": True}, {"restores": 2}):
        verdict = explore(Setting(kind=KINDS[kind], witness=True, **bounds), liveness=True, limit=3_000_000)
        assert verdict.violation is None, str(verdict)
        assert (verdict.never_closed, verdict.never_done) == ([], [])


def test_where_nobody_can_observe_a_key_ends_written_off() -> None:
    verdict = explore(Setting(kind=KINDS["N"], witness=True, observer=False), liveness=True)
    assert verdict.violation is None, str(verdict)
    assert verdict.never_closed == []


@pytest.mark.parametrize(("twin", "kind"), REFUTED)
def test_an_unsafe_twin_is_refuted(twin: Twin, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twin.patch(monkeypatch)
    verdict = searched(twin, kind)
    print(verdict)
    assert verdict.violation == TWICE


@pytest.mark.parametrize(("twin", "kind"), MADE_UP_FOR)
def test_where_a_receiver_makes_up_for_a_broken_rule_nothing_happens(
    twin: Twin, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin.patch(monkeypatch)
    verdict = searched(twin, kind)
    assert verdict.violation is None, str(verdict)
