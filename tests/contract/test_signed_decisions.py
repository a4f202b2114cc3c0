"""Decisions that end a doubt without the effect: signed by all who decide, about the action as it stands, on record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger
from agent_run_ledger.effects import (
    ActionState,
    ActionView,
    DrainKind,
    Event,
    Role,
    Signature,
    TargetClass,
    gate,
    signing,
)
from agent_run_ledger.effects.signing import Sign
from agent_run_ledger.kernel.dsse import pae
from agent_run_ledger.kernel.effects.decided import DECISION_TYPE
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.keys import verify
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.approval_kit import Approvals, approvals, someone
from tests.contract.effect_kit import CAT, FakeWitness, Kit, actor
from tests.contract.test_approvals_at_the_claim import written
from tests.contract.test_trust_on_record import OFFICERS
from tests.unit.effects.trust_examples import key, public

A, E, R = ActionState, Event, Role
WATCHER = actor("watcher", R.RECONCILER)
"""A program of the trust file that has no key."""
DAN = frozenset({"dan"})


@contextmanager
def doubt(target: TargetClass = TargetClass.N, **settings: Any) -> Iterator[tuple[Approvals, ActionView]]:
    """An action of which nobody knows how it ended, under a trust file."""
    with approvals(**settings) as kit:
        yield kit, kit.reach(A.UNRESOLVED, target)


def by(*names: str) -> Sign:
    return signing(*(key(name) for name in names))


def last(kit: Kit, view: ActionView) -> Any:
    """The command of the last record of an action."""
    return transition_from(kit.ledger._store.reader().effects.transitions(view.action_id)[-1].payload).command


# -- two people give up ------------------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "names that somebody invented": ({"people": frozenset({"otto"}), "sign": by("cat", "otto")}, "unknown_principal"),
    "an approver as the second one": ({"people": frozenset({"bob"}), "sign": by("cat", "bob")}, "wrong_role"),
    "a program as the second one": ({"people": frozenset({"watcher"}), "sign": by("cat")}, "no_person"),
    "a program that asks": ({"actor": WATCHER, "people": DAN, "sign": by("dan")}, "no_person"),
    "nobody's signature": ({"sign": None}, "not_signed"),
    "one signature": ({"sign": by("cat")}, "not_signed"),
    "the second one's alone": ({"sign": by("dan")}, "not_signed"),
    "another's key for the second one": ({"sign": by("cat", "bob")}, "not_signed"),
    "one signature too many": ({"sign": by("cat", "dan", "bob")}, "other_key"),
    "a signature over something else": ({"sign": lambda _: by("cat", "dan")(b"something else")}, "bad_signature"),
    "alone": ({"people": frozenset(), "sign": by("cat")}, "few_people"),
    "alone with oneself": ({"people": frozenset({"cat"}), "sign": by("cat")}, "few_people"),
}


@pytest.mark.parametrize(("changes", "code"), OTHERS.values(), ids=OTHERS)
def test_nobody_writes_off_with_less_than_two_people_who_sign_it(changes: dict[str, Any], code: str) -> None:
    with doubt() as (kit, view):
        assert kit.code(lambda: kit.do(E.WRITE_OFF, view, **changes)) == code


def test_two_people_who_sign_it_write_off_and_their_signatures_are_on_record() -> None:
    with doubt() as (kit, view):
        assert kit.move(E.WRITE_OFF, view).state is A.WRITTEN_OFF
        kept = {one.key_id: one.value for one in last(kit, view).signatures}
        # Written by hand from the format: RFC 8785, keys sorted, ids and digests in hex.
        status = kit.ledger.status()
        decision = (
            f'{{"action_id":"{view.action_id.hex()}","action_key":"refund:17",'
            '"asked":{"class":"WriteOff","nobody_can_observe":true},"deciders":["cat","dan"],"epoch":0,"evidence":[],'
            f'"generation":1,"ledger_id":"{status.ledger_id.hex()}","request_sha256":"{view.request_sha256.hex()}",'
            '"state":"unresolved","v":1}'
        ).encode()
        assert kept.keys() == {key("cat").key_id, key("dan").key_id}
        for name in ("cat", "dan"):
            assert verify(key(name).public, kept[key(name).key_id], pae(DECISION_TYPE, decision))


def test_a_decision_whose_reply_was_lost_is_told_again() -> None:
    with doubt() as (kit, view):
        op_id = kit.id()
        kit.do(E.WRITE_OFF, view, op_id=op_id)
        assert kit.do(E.WRITE_OFF, view, op_id=op_id).state is A.WRITTEN_OFF
        assert kit.code(lambda: kit.do(E.WRITE_OFF, view, op_id=op_id, people=frozenset({"ops"}))) == "op_id_used"


def test_what_is_told_again_was_signed_about_the_action_as_it_stood_before() -> None:
    with doubt() as (kit, view):
        op_id, drain = kit.id(), kit.drain(view)
        for _ in range(2):
            assert kit.do(E.OBSERVE, view, evidence=drain, op_id=op_id).drain == drain.evidence_id
    with doubt(TargetClass.F) as (kit, view):
        op_id, fence = kit.id(), kit.fence(view)
        for _ in range(2):
            assert kit.do(E.NOT_EXECUTED, view, fence=fence, op_id=op_id).state is A.NOT_EXECUTED


def test_a_signature_is_about_one_action_and_one_decision() -> None:
    with doubt() as (kit, view):
        other = kit.reach(A.UNRESOLVED, key="refund:18")
        taken: list[tuple[Signature, ...]] = []

        def take(decision: bytes) -> tuple[Signature, ...]:
            taken.append(by("cat", "dan")(decision))
            return taken[0]

        kit.do(E.WRITE_OFF, other, sign=take)

        def replay(_: bytes) -> tuple[Signature, ...]:
            return taken[0]

        assert kit.code(lambda: kit.do(E.WRITE_OFF, view, sign=replay)) == "bad_signature"
        ready = kit.ready(E.NOT_EXECUTED, view)
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, ready, people=DAN, sign=replay)) == "bad_signature"


def test_what_is_recorded_after_somebody_signed_makes_it_another_decision() -> None:
    with doubt() as (kit, view):

        def meanwhile(decision: bytes) -> tuple[Signature, ...]:
            with kit.opened(kit.signed_trust) as other:
                other.observe(CAT, view.action_id, kit.drain(view, evidence_id=kit.id()), sign=by("cat"))
            return by("cat", "dan")(decision)

        with pytest.raises(Exception, match="as it stands") as refusal:
            kit.do(E.WRITE_OFF, view, sign=meanwhile)
        assert getattr(refusal.value, "code", None) == "bad_signature"
        assert kit.look(view).state is A.UNRESOLVED


def test_what_was_signed_of_an_action_in_another_state_decides_nothing() -> None:
    with approvals() as kit:
        view = kit.reach(A.PREPARED)
        kept: list[tuple[Signature, ...]] = []

        def keep(decision: bytes) -> tuple[Signature, ...]:
            kept.append(by("cat", "dan")(decision))
            return kept[0]

        assert kit.code(lambda: kit.do(E.WRITE_OFF, view, sign=keep)) == "prepared"
        doubted = kit.move(E.DOUBT, view)
        assert kit.code(lambda: kit.do(E.WRITE_OFF, doubted, sign=lambda _: kept[0])) == "bad_signature"
        assert kit.move(E.WRITE_OFF, doubted).state is A.WRITTEN_OFF


def test_a_key_that_is_over_signs_no_decision() -> None:
    with doubt() as (kit, view):
        ended = (public("cat", 0, kit.now()), public("cat's new one", 0, kit.now() * 2))
        principals = tuple(replace(one, keys=ended) if one.name == "cat" else one for one in kit.trust.principals)
        kit.follow(replace(kit.trust, serial=2, principals=principals), *OFFICERS)
        assert kit.code(lambda: kit.do(E.WRITE_OFF, view)) == "not_signed"
        assert kit.move(E.WRITE_OFF, view, sign=by("cat's new one", "dan")).state is A.WRITTEN_OFF


# -- it did not happen -------------------------------------------------------------------------------------------------


def test_a_drain_by_dead_paths_is_signed_by_who_stands_for_it() -> None:
    with doubt() as (kit, view):
        drain = kit.drain(view)
        for sign, code in ((None, "not_signed"), (by("dan"), "not_signed"), (by("cat", "dan"), "other_key")):
            assert kit.code(lambda: kit.do(E.OBSERVE, view, evidence=drain, sign=sign)) == code
        theirs = replace(drain, observer="watcher")
        assert kit.code(lambda: kit.do(E.OBSERVE, view, actor=WATCHER, evidence=theirs, sign=None)) == "not_signed"
        assert kit.do(E.OBSERVE, view, evidence=drain).drain == drain.evidence_id
        assert [one.key_id for one in last(kit, view).signatures] == [key("cat").key_id]


def test_that_it_did_not_happen_is_signed_by_who_decides_it() -> None:
    with doubt() as (kit, asked):
        view = kit.ready(E.NOT_EXECUTED, asked)
        for sign, code in ((None, "not_signed"), (by("dan"), "not_signed")):
            assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, sign=sign)) == code
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, people=DAN, sign=by("cat"))) == "not_signed"
        assert kit.move(E.NOT_EXECUTED, view, people=DAN).state is A.NOT_EXECUTED


def test_a_program_without_a_key_closes_what_is_proved_and_nothing_by_its_word() -> None:
    with doubt() as (kit, asked):
        view = kit.ready(E.NOT_EXECUTED, asked)
        forged = (Signature("a" * 64, b"s" * 64),)
        for changes, code in (
            ({"sign": lambda _: forged}, "not_signed"),
            ({"sign": by("dan"), "people": DAN}, "no_person"),
            ({"sign": None, "fence": kit.fence(view)}, "not_signed"),
        ):
            assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, actor=WATCHER, **changes)) == code
        assert kit.move(E.NOT_EXECUTED, view, actor=WATCHER, sign=None).state is A.NOT_EXECUTED


def test_a_person_without_a_key_is_no_program() -> None:
    with approvals(begin=False) as kit:
        nobody = someone("nick", R.RECONCILER, keys=())
        kit.trust = replace(kit.trust, principals=(*kit.trust.principals, nobody))
        kit.begin()
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        nick = actor("nick", R.RECONCILER)
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, actor=nick, sign=None)) == "not_signed"


def test_what_was_never_prepared_is_closed_by_signature() -> None:
    with approvals(witness=FakeWitness()) as kit:
        view = kit.reach(A.CLAIMED)
        assert kit.code(lambda: kit.do(E.CLOSE_UNPREPARED, view, sign=None)) == "not_signed"
        assert kit.code(lambda: kit.do(E.CLOSE_UNPREPARED, view, actor=WATCHER, sign=None)) == "not_signed"
        assert kit.move(E.CLOSE_UNPREPARED, view).state is A.NOT_EXECUTED


def test_a_fence_is_signed_by_who_passes_it_on() -> None:
    with doubt(TargetClass.F) as (kit, view):
        fence = kit.fence(view)
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, fence=fence, sign=None)) == "not_signed"
        assert kit.move(E.NOT_EXECUTED, view, fence=fence).state is A.NOT_EXECUTED


def test_without_a_trust_file_nobody_signs() -> None:
    with approvals(begin=False) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        assert kit.move(E.NOT_EXECUTED, view, actor=actor("anybody", R.RECONCILER)).state is A.NOT_EXECUTED


def test_what_was_a_word_before_the_trust_file_ends_by_signature() -> None:
    with approvals(begin=False) as kit:
        view = kit.ready(E.NOT_EXECUTED, kit.reach(A.UNRESOLVED))
        kit.begin()
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view, actor=WATCHER, sign=None)) == "not_signed"
        assert kit.move(E.NOT_EXECUTED, view).state is A.NOT_EXECUTED


# -- by time -----------------------------------------------------------------------------------------------------------


def timed(kit: Approvals, target: TargetClass = TargetClass.I, *, checks_expiry: bool = True) -> ActionView:
    """A doubt about an action whose every permit is over."""
    view = kit.propose(target, checks_expiry=checks_expiry)
    for event in (E.APPROVE, E.CLAIM, E.PREPARE, E.HAND_OUT, E.DOUBT):
        view = kit.move(event, view)
    kit.ticks.tick(1_000_000)
    return view


def drained(kit: Approvals, view: ActionView) -> ActionView:
    drain = kit.drain(view, DrainKind.EXPIRY, observer="watcher")
    return kit.move(E.OBSERVE, view, actor=WATCHER, evidence=drain)


@pytest.mark.parametrize(("target", "checks"), [(TargetClass.I, True), (TargetClass.V, False)])
def test_time_ends_a_doubt_where_approvers_signed_that_it_can(target: TargetClass, checks: bool) -> None:
    with approvals() as kit:
        view = drained(kit, timed(kit, target, checks_expiry=checks))
        view = kit.move(E.OBSERVE, view, actor=WATCHER, evidence=kit.seen(view, observer="watcher"))
        assert kit.move(E.NOT_EXECUTED, view, actor=WATCHER, sign=None).state is A.NOT_EXECUTED


WRITTEN = (
    "target_class = 'v'",
    """more = replace(more, '{"class"', '{"checks_expiry":true,"class"')""",
)


@pytest.mark.parametrize("column", WRITTEN)
def test_a_writer_of_the_database_makes_no_doubt_end_by_time(column: str, tmp_path: Path) -> None:
    with approvals() as kit:
        view = timed(kit, checks_expiry=False)
        with written(kit, tmp_path) as writer:
            writer.run(f"UPDATE actions SET {column}")
            with EffectLedger(writer.path, time=kit.ticks, settings=kit.settings, trust=kit.signed_trust) as ledger:
                assert ledger.get(view.action_id).by_time
                drain = kit.drain(view, DrainKind.EXPIRY, observer="watcher")
                with pytest.raises(Exception, match="did not sign it") as refusal:
                    ledger.observe(WATCHER, view.action_id, drain)
                assert getattr(refusal.value, "code", None) == "unproved_expiry"


def test_a_drain_by_time_from_before_the_trust_file_proves_nothing_under_it() -> None:
    with approvals(begin=False) as kit:
        view = drained(kit, timed(kit, TargetClass.V))
        view = kit.move(E.OBSERVE, view, evidence=kit.seen(view))
        kit.begin()
        assert kit.code(lambda: kit.do(E.NOT_EXECUTED, view)) == "unproved_expiry"
        view = kit.ready(E.NOT_EXECUTED, view)
        assert kit.move(E.NOT_EXECUTED, view).state is A.NOT_EXECUTED


def test_a_signature_that_was_a_word_before_the_trust_file_proves_nothing_under_it() -> None:
    with approvals(begin=False) as kit:
        view = kit.propose(TargetClass.V)
        said = replace(kit.approval(view), key_id="a" * 64, signature=b"s" * 64)
        view = kit.move(E.APPROVE, view, approval=said)
        for event in (E.CLAIM, E.PREPARE, E.HAND_OUT, E.DOUBT):
            view = kit.move(event, view)
        kit.begin()
        kit.ticks.tick(1_000_000)
        assert kit.code(lambda: drained(kit, view)) == "unproved_expiry"


# -- the auditor -------------------------------------------------------------------------------------------------------


def _unsigned(kit: Approvals, view: ActionView) -> None:
    kit.do(E.WRITE_OFF, view, sign=None)


def _by_another(kit: Approvals, view: ActionView) -> None:
    kit.do(E.WRITE_OFF, view, sign=lambda _: by("cat", "dan")(b"something else"))


FORGED: dict[str, tuple[Callable[[Approvals, ActionView], None], str]] = {
    "no signature": (_unsigned, "not_signed"),
    "signatures over something else": (_by_another, "bad_signature"),
}


@pytest.mark.parametrize(("forge", "code"), FORGED.values(), ids=FORGED)
def test_the_auditor_verifies_decisions_again(
    forge: Callable[[Approvals, ActionView], None], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with approvals(kept=False) as kit:
        view = kit.reach(A.UNRESOLVED)
        monkeypatch.setattr(gate, "check_command", lambda *_: None)
        forge(kit, view)
        kit.ledger.close()
        with pytest.raises(LedgerBroken, match=f"may not ask for write_off under the trust file: {code}"):
            check_ledger(kit.path)


def test_the_auditor_agrees_with_every_decision_of_a_ledger() -> None:
    with approvals() as kit:  # read anew at its end
        for number, target in enumerate((TargetClass.N, TargetClass.F)):
            view = kit.reach(A.NOT_EXECUTED, target, key=f"refund:{number}")
            kit.do(E.SUCCESSOR, view)
        for state in (A.WRITTEN_OFF, A.REJECTED, A.REVOKED, A.SUCCEEDED, A.SUPERSEDED):
            kit.reach(state, key=f"in {state}")
