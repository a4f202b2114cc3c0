"""Approvals through `EffectLedger.grant`: verified inside of the transaction, on record with their signature, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from agent_run_ledger import Refused
from agent_run_ledger.effects import ActionState, Event, TargetClass, gate, statement_bytes
from agent_run_ledger.effects.verifying import verify_approval
from agent_run_ledger.kernel.dsse import envelope_bytes, pae
from agent_run_ledger.kernel.effects.approval import APPROVAL_TYPE, Statement
from agent_run_ledger.kernel.effects.commands import Approve
from agent_run_ledger.kernel.effects.evidence import DrainKind
from agent_run_ledger.kernel.effects.record import transition_from
from agent_run_ledger.keys import seal, verify
from agent_run_ledger.ledger.local_trust import LOCAL, UNSIGNED, local_folder
from tests.contract.approval_kit import DISPLAY, KEY_ENDS_MS, NONCE, REQUEST, Approvals, approvals
from tests.contract.effect_kit import ANN, BOB, WINDOW_MS, Kit, effects
from tests.contract.engine_kit import each_engine, only_a_file
from tests.unit.effects.trust_examples import key

pytestmark = each_engine

A, E = ActionState, Event


def sealed(statement: Statement, *signers: str) -> bytes:
    """An envelope of any statement, signed by anybody."""
    return envelope_bytes(seal(APPROVAL_TYPE, statement_bytes(statement), [key(name) for name in signers]))


def test_where_there_is_a_trust_file_nobody_approves_by_their_word() -> None:
    with approvals() as kit:
        view = kit.asked()
        assert kit.code(lambda: kit.ledger.approve(BOB, view.action_id, kit.approval(view))) == "not_signed"
        assert kit.look(view).state is A.PROPOSED


def test_without_a_trust_file_no_signature_counts() -> None:
    with effects() as kit:
        view = kit.propose()
        statement = kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE)
        assert kit.refused(lambda: kit.ledger.grant(sealed(statement, "bob"))).code == "no_trust"
        assert kit.ledger.trust is None
        assert UNSIGNED in kit.ledger.status().not_protected


def test_an_approval_is_verified_while_nobody_else_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with approvals() as kit:
        view, inside = kit.asked(), []

        def watched(*args: Any, **named: Any) -> Any:
            inside.append((kit.ledger._store._shared.is_mine(), named["now"].latest_ms))
            return verify_approval(*args, **named)

        monkeypatch.setattr(gate, "verify_approval", watched)
        data = kit.signed(view)
        kit.ticks.tick(5)
        kit.grant(view, data)
        assert inside == [(True, kit.now())]


def test_a_key_that_ends_before_the_transaction_does_not_count() -> None:
    with approvals() as kit:
        kit.ticks.tick(KEY_ENDS_MS - kit.now() - 1)
        view = kit.asked()
        data = kit.signed(view)
        kit.ticks.tick(1)
        assert kit.refusal(data) == "key_expired"


def test_what_counted_is_on_record_with_its_signature() -> None:
    with approvals() as kit:
        view = kit.asked()
        kit.grant(view, kit.signed(view))
        command = transition_from(kit.ledger._store.reader().effects.transitions(view.action_id)[-1].payload).command
        assert isinstance(command, Approve)
        approval = command.approval
        assert approval.key_id == key("bob").key_id
        assert verify(key("bob").public, approval.signature, pae(APPROVAL_TYPE, statement_bytes(approval.statement)))


def test_a_grant_whose_reply_was_lost_is_told_again_and_counts_once() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        op_id, data = kit.id(), kit.signed(view)
        first = kit.ledger.grant(data, op_id=op_id)
        assert kit.ledger.grant(data, op_id=op_id).approvals == first.approvals == ("bob",)
        for other in (
            kit.signed(view, "dan"),
            sealed(kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE), "dan"),
        ):
            assert kit.code(lambda: kit.ledger.grant(other, op_id=op_id)) == "op_id_used"
        assert kit.refusal(data) == "replayed"


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a short nonce": ({"nonce": b"seven b"}, "short_nonce"),
    "a long nonce": ({"nonce": b"n" * 65}, "bad_statement"),
    "no nonce": ({"nonce": b""}, "short_nonce"),
    "a name that moves the cursor": ({"approver": "bob\x1b[2J"}, "unknown_principal"),
    "a name in other letters' case": ({"approver": "Bob"}, "unknown_principal"),
    "no name": ({"approver": ""}, "unknown_principal"),
    "an id of no bytes": ({"action_id": b""}, "unknown_action"),
    "a long id": ({"action_id": b"i" * 5_000}, "unknown_action"),
    "a long executor": ({"executor": "e" * 5_000}, "other_terms"),
    "a key with a NUL": ({"action_key": "refund:17\0"}, "other_action"),
    "the highest epoch": ({"epoch": (1 << 53) - 1}, "old_epoch"),
    "many preconditions": ({"preconditions": (("a", "b"),) * 500}, "other_terms"),
}


@pytest.mark.parametrize(("changes", "code"), HOSTILE.values(), ids=HOSTILE)
def test_what_an_envelope_says_is_refused_and_is_nobodys_misuse(changes: dict[str, Any], code: str) -> None:
    with approvals() as kit:
        view = kit.asked()
        statement = replace(kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE), **changes)
        refused = kit.refused(lambda: kit.ledger.grant(sealed(statement, "bob")))
        assert (isinstance(refused, Refused), refused.code) == (True, code)


def test_two_signatures_are_no_approval() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        statement = kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE)
        assert kit.refusal(sealed(statement, "bob", "dan")) == "one_signature"


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{" * 10_000, b"0" * (1 << 20), "é".encode()])
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    with approvals() as kit:
        kit.asked()
        assert kit.refusal(data) == "bad_envelope"


def test_an_envelope_whose_bytes_are_other_bytes_of_the_same_says_the_same() -> None:
    with approvals() as kit:
        view = kit.asked()
        spaced = json.dumps(json.loads(kit.signed(view)), indent=2).encode()
        assert kit.grant(view, spaced).state is A.AVAILABLE


def _terms(kit: Kit) -> dict[str, Callable[[Any], Any]]:
    return {
        "propose": lambda terms: kit.propose(key="refund:99", **terms),
        "edit": lambda terms: kit.do(
            E.EDIT, kit.look(kit.propose(key="refund:98", **_good(kit))), intent=kit.intent(**terms)
        ),
        "successor": lambda terms: kit.do(E.SUCCESSOR, rejected(kit), intent=kit.intent(**terms)),
    }


def _good(kit: Any) -> dict[str, Any]:
    return {"policy_sha256": kit.one, "request": b"a request"}


def rejected(kit: Any) -> Any:
    return kit.move(E.REJECT, kit.propose(key="refund:97", **_good(kit)))


WORSE: dict[str, tuple[Callable[[Approvals], dict[str, Any]], str]] = {
    "a policy that nobody knows": (lambda kit: {"policy_sha256": b"p" * 32}, "unknown_policy"),
    "fewer approvals": (lambda kit: {"policy_sha256": kit.two, "approvals_needed": 1}, "other_count"),
    "more approvals": (lambda kit: {"policy_sha256": kit.one, "approvals_needed": 2}, "other_count"),
    "a longer window": (
        lambda kit: {
            "policy_sha256": kit.one,
            "dispatch_before_ms": kit.now() + kit.trust.policies[0].max_window_ms + 1,
        },
        "window_too_long",
    ),
}


@pytest.mark.parametrize("way", ["propose", "edit", "successor"])
@pytest.mark.parametrize(("worse", "code"), WORSE.values(), ids=WORSE)
def test_nothing_is_asked_for_that_the_policies_do_not_allow(
    way: str, worse: Callable[[Approvals], dict[str, Any]], code: str
) -> None:
    with approvals() as kit:
        with pytest.raises(Refused) as refusal:
            _terms(kit)[way](worse(kit))
        assert refusal.value.code == code


@pytest.mark.parametrize("way", ["propose", "edit", "successor"])
def test_what_the_policies_just_allow_is_asked_for(way: str) -> None:
    with approvals() as kit:
        longest = {"policy_sha256": kit.one, "dispatch_before_ms": kit.now() + kit.trust.policies[0].max_window_ms}
        _terms(kit)[way](longest)


def test_what_is_on_record_is_told_also_when_its_policy_is_gone() -> None:
    with approvals() as kit:
        view = kit.asked()
        claim = {"claim_key": b"one claim's key!"}
        view = kit.grant(view, kit.signed(view))
        kit.do(E.CLAIM, view, **claim)
        one, two = kit.trust.policies
        kit.follow(
            replace(kit.trust, serial=2, policies=(replace(one, name="other", people_needed=0), two)),
            key("dan"),
            key("ola"),
        )
        assert kit.asked().action_id == view.action_id
        assert kit.do(E.CLAIM, view, **claim).granted_now is False
        assert kit.code(lambda: kit.asked("refund:18")) == "unknown_policy"


@only_a_file
def test_the_status_says_that_keys_beside_the_database_protect_little() -> None:
    with approvals() as kit:
        assert LOCAL not in kit.ledger.status().not_protected
        assert UNSIGNED not in kit.ledger.status().not_protected
        folder = local_folder(kit.path)
        folder.mkdir()
        (folder / "trust.json").touch()
        assert LOCAL not in kit.ledger.status().not_protected
        (folder / "approver.pem").touch()
        assert LOCAL in kit.ledger.status().not_protected


def test_no_permit_is_handed_out_under_a_policy_that_is_gone() -> None:
    with approvals() as kit:
        view = kit.asked()
        view = kit.move(E.PREPARE, kit.move(E.CLAIM, kit.grant(view, kit.signed(view))))
        one, two = kit.trust.policies
        policies = (replace(one, people_needed=0), two)
        kit.follow(replace(kit.trust, serial=2, policies=policies), key("dan"), key("ola"))
        assert kit.code(lambda: kit.do(E.HAND_OUT, view)) == "unknown_policy"
        assert kit.move(E.DOUBT, view).state is A.UNRESOLVED


def test_two_signatures_are_no_approval_of_anybody() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        statement = kit.ledger.statement(view.action_id, approver="nobody", nonce=NONCE)
        assert kit.refusal(sealed(statement, "bob", "dan")) == "one_signature"


@pytest.mark.parametrize("flaw", [{"signature": b"short"}, {"key_id": "ab"}, {"key_id": "a" * 64}])
def test_who_approves_by_word_names_a_whole_signature_or_none(flaw: dict[str, Any]) -> None:
    with effects() as kit:
        view = kit.propose()
        approval = replace(kit.approval(view), **flaw)
        assert kit.refused(lambda: kit.ledger.approve(BOB, view.action_id, approval)).code == "bad_argument"


def test_what_was_approved_by_word_before_there_was_a_trust_file_is_not_claimed_under_it() -> None:
    """Who knows the digest of a policy to come cannot have an action approved in advance."""
    with approvals(begin=False) as kit:
        ready, waits, mine = (kit.asked(name) for name in ("refund:1", "refund:2", "refund:3"))
        for view in (ready, mine):
            kit.do(E.APPROVE, view)
        mine = kit.move(E.PREPARE, kit.move(E.CLAIM, kit.look(mine)))
        kit.begin()
        assert kit.look(ready).state is A.AVAILABLE
        assert kit.code(lambda: kit.do(E.CLAIM, ready)) == "before_trust"
        assert kit.refusal(kit.signed(waits)) == "before_trust"
        assert kit.code(lambda: kit.do(E.HAND_OUT, mine)) in ("before_trust", "restarted")
        again = kit.ledger.edit(ANN, waits.action_id, kit.intent(**_shown(kit), request=REQUEST, executor="exe2"))
        assert kit.grant(again, kit.signed(again)).state is A.AVAILABLE
        kit.do(E.REVOKE, ready)
        after = kit.ledger.successor(ANN, ready.action_id, kit.intent(**_shown(kit), request=REQUEST))
        after = kit.grant(after, kit.signed(after))
        assert kit.do(E.CLAIM, after).granted_now


def _shown(kit: Approvals) -> dict[str, Any]:
    return {"policy_sha256": kit.one, "display_sha256": sha256(DISPLAY).digest()}


def test_who_asked_before_there_was_a_trust_file_ends_no_doubt_by_time() -> None:
    for checks_expiry, target in ((True, TargetClass.I), (False, TargetClass.V)):
        with approvals(begin=False) as kit:
            view = kit.propose(target, checks_expiry=checks_expiry)
            for event in (E.APPROVE, E.CLAIM, E.PREPARE, E.HAND_OUT, E.DOUBT):
                view = kit.move(event, view)
            kit.begin()
            kit.ticks.tick(2 * WINDOW_MS)
            drain = kit.drain(view, DrainKind.EXPIRY)
            assert kit.code(lambda: kit.do(E.OBSERVE, view, evidence=drain)) == "unproved_expiry"
            dead = kit.drain(view)
            assert kit.do(E.OBSERVE, view, evidence=dead).drain == dead.evidence_id
