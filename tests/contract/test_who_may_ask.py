"""Under a trust file the ledger asks who asks, for every command: by names, roles, keys and policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import (
    ActionState,
    Actor,
    Event,
    Role,
    SignedTrust,
    gate,
)
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.approval_kit import KEY_ENDS_MS, Approvals, approvals
from tests.contract.effect_kit import ASKED, CAT, DOES, FROM, actor
from tests.contract.test_trust_on_record import OFFICERS

A, E, R = ActionState, Event, Role
NARROWS = (E.REVOKE, E.DOUBT, E.OUTCOME)
"""What nobody is kept from by a key that is over, or by another trust file that came meanwhile."""
BY_ROLE = [event for event in ASKED if event is not E.APPROVE]
"""An approval names its signer itself: its tests are those of grants."""
ELSEWHERE = [event for event in BY_ROLE if event not in (*NARROWS, E.PROPOSE, E.EDIT, E.SUCCESSOR)]


def as_(kit: Approvals, event: Event, who: Actor) -> Callable[[], object]:
    """Ask for an event, from where it is asked for, as somebody."""
    view = kit.ready(event, kit.reach(FROM[event])) if event is not E.PROPOSE else kit.propose(key="refund:1")
    return lambda: kit.do(event, replace(view, action_key="new") if event is E.PROPOSE else view, actor=who)


@pytest.mark.parametrize("event", BY_ROLE)
def test_nobody_of_the_trust_file_asks_for_nothing(event: Event) -> None:
    with approvals() as kit:
        ask = as_(kit, event, Actor("eve", DOES[event].roles))
        assert kit.code(ask) == "unknown_principal"


@pytest.mark.parametrize("event", BY_ROLE)
def test_nobody_asks_in_a_role_that_the_trust_file_does_not_give_them(event: Event) -> None:
    with approvals() as kit:
        ask = as_(kit, event, Actor("ola", DOES[event].roles))
        assert kit.code(ask) == "wrong_role"


def without(kit: Approvals, *names: str) -> SignedTrust:
    """Put a later trust file in use without somebody, through another opening."""
    assert kit.signed_trust is not None
    one, _ = kit.trust.policies
    left = tuple(who for who in kit.trust.principals if who.name not in names)
    later = kit.by_officers(replace(kit.trust, serial=2, principals=left, policies=(one,)))
    with kit.opened(kit.signed_trust) as other:
        other.follow_trust(later.signed)
    return later


@pytest.mark.parametrize("event", [E.OBSERVE, E.SUCCESS, E.NOT_EXECUTED, E.WRITE_OFF, E.EXPIRE, E.REVOKE])
def test_who_was_taken_out_asks_for_nothing_more(event: Event) -> None:
    with approvals() as kit:
        who = DOES[event]
        ask = as_(kit, event, who)
        later = without(kit, who.principal)
        if event in NARROWS:
            ask()
        else:
            assert kit.code(ask) == "other_trust"
        kit.signed_trust = later
        kit.reopen()
        ask = again(kit, event, who)
        assert kit.code(ask) == "unknown_principal"


def again(kit: Approvals, event: Event, who: Actor) -> Callable[[], object]:
    view = kit.ledger.inspect("refund:17")[-1]
    return lambda: kit.do(event, view, actor=who)


@pytest.mark.parametrize("event", [event for event in BY_ROLE if DOES[event].principal not in ("exe", "bob")])
def test_who_has_keys_that_are_over_gives_nothing_away(event: Event) -> None:
    with approvals() as kit:
        view = kit.ready(event, kit.reach(FROM[event]))
        kit.ticks.tick(KEY_ENDS_MS - kit.now())
        asked = replace(view, action_key="new") if event is E.PROPOSE else view
        if event in NARROWS:
            kit.do(event, asked)
        else:
            assert kit.code(lambda: kit.do(event, asked)) == "key_expired"


def test_who_decides_about_one_policy_rejects_and_edits_nothing_of_another() -> None:
    ann, bob, dan = (actor(name, R.APPROVER) for name in ("ann", "bob", "dan"))
    with approvals() as kit:
        view, edited = kit.asked("refund:1"), kit.asked("refund:2")
        for event in (E.REJECT, E.EDIT):
            assert kit.code(lambda: kit.do(event, view, actor=ann)) == "not_an_approver"
        kit.do(E.REJECT, view, actor=bob)
        kit.do(E.EDIT, edited, actor=dan)
        both = kit.two_asked()
        kit.do(E.REJECT, both, actor=ann)  # she is one of the approvers of this one


def test_a_policy_that_is_one_no_more_has_nobody_who_rejects() -> None:
    with approvals() as kit:
        view = kit.asked()
        _, two = kit.trust.policies
        kit.follow(replace(kit.trust, serial=2, policies=(two,)), *OFFICERS)
        assert kit.code(lambda: kit.do(E.REJECT, view)) == "not_an_approver"
        assert kit.move(E.REVOKE, view).state is A.REVOKED


@pytest.mark.parametrize(
    ("people", "code"),
    [
        (("olga", "otto"), "unknown_principal"),
        (("dan", "otto"), "unknown_principal"),
        (("dan", "rev"), "wrong_role"),
        (("dan",), "few_officers"),
        (("dan", "ola"), None),
    ],
)
def test_a_clock_is_corrected_by_the_officers_of_the_trust_file(people: tuple[str, ...], code: str | None) -> None:
    with approvals() as kit:
        kit.asked()
        kit.ticks.leap(-1)
        first, *others = people
        officer, together = actor(first, R.OFFICER), frozenset(others)
        if code is None:
            assert kit.ledger.correct_clock(officer, together).state == "open"
        else:
            assert kit.code(lambda: kit.ledger.correct_clock(officer, together)) == code


def test_a_ledger_that_was_opened_without_the_trust_file_decides_nothing_once_there_is_one() -> None:
    with approvals(begin=False) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        with kit.opened(kit.by_officers(kit.trust)):
            pass
        for event in (E.OBSERVE, E.NOT_EXECUTED, E.WRITE_OFF, E.SUCCESS):
            assert kit.code(lambda: kit.do(event, view)) == "no_trust"
        kit.ticks.leap(-1)
        assert kit.code(lambda: kit.ledger.correct_clock(actor("olga", R.OFFICER))) == "no_trust"


def test_at_a_copy_somebody_looks_without_a_trust_file(tmp_path: Path) -> None:
    with approvals() as kit:
        view, path = kit.reach(A.UNRESOLVED), tmp_path / "copy.db"
        kit.ledger._store.backup(path)
        with EffectLedger(path, time=kit.ticks, settings=kit.settings) as copy:
            assert copy.observe(CAT, view.action_id, kit.seen(view)).seen is not None
        check_ledger(path)


def test_the_auditor_asks_again_who_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with approvals(kept=False) as kit:
        view = kit.reach(A.UNRESOLVED)
        monkeypatch.setattr(gate, "check_command", lambda *_: None)
        kit.do(E.WRITE_OFF, view, actor=actor("x", R.RECONCILER), people=frozenset({"y"}), sign=None)
        kit.ledger.close()
        with pytest.raises(LedgerBroken, match="'x' may not ask for write_off under the trust file: unknown_principal"):
            check_ledger(kit.path)


@pytest.mark.parametrize(
    ("people", "code"),
    [
        (("olga", "otto"), "unknown_principal"),
        (("dan", "rev"), "wrong_role"),
        (("dan",), "few_officers"),
        (("dan", "ola"), None),
    ],
)
def test_the_auditor_asks_again_who_corrected_the_clock(
    people: tuple[str, ...], code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with approvals(kept=False) as kit:
        kit.asked()
        kit.ticks.leap(-1)
        monkeypatch.setattr(gate, "check_officers", lambda *_: None)
        first, *others = people
        kit.ledger.correct_clock(actor(first, R.OFFICER), frozenset(others))
        kit.ledger.close()
        if code is None:
            check_ledger(kit.path)
        else:
            words = f"a clock correction: it does not count under the trust file: {code}"
            with pytest.raises(LedgerBroken, match=words):
                check_ledger(kit.path)
