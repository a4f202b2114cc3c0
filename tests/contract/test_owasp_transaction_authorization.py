"""The rules of the OWASP Transaction Authorization Cheat Sheet by number, as far as signed approvals can show them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from agent_run_ledger import Misuse, Refused
from agent_run_ledger.effects import ActionState, ActionView, Event
from agent_run_ledger.kernel.canonical import canonical
from agent_run_ledger.kernel.dsse import envelope_bytes
from agent_run_ledger.kernel.effects import Role
from agent_run_ledger.kernel.effects.approval import statement_bytes
from agent_run_ledger.kernel.effects.trust import TrustFile
from agent_run_ledger.keys import seal
from tests.contract.approval_kit import DISPLAY, KEY_ENDS_MS, NONCE, REQUEST, Approvals, approvals, someone
from tests.contract.effect_kit import ANN, WINDOW_MS
from tests.contract.engine_kit import each_engine
from tests.unit.effects.trust_examples import key

pytestmark = each_engine

A, E = ActionState, Event
OTHER = b'{"amount_cents":3000000,"to":"eve"}'


def replaced_in(data: bytes, view: ActionView) -> bytes:
    """An envelope whose statement somebody changed to be about another action."""
    tree = json.loads(data)
    statement = json.loads(b64decode(tree["payload"]))
    statement["action_id"] = view.action_id.hex()
    tree["payload"] = b64encode(canonical(statement)).decode()
    return json.dumps(tree).encode()


def changed(kit: Approvals, **changes: Any) -> TrustFile:
    """The next trust file."""
    return replace(kit.trust, serial=2, **changes)


# -- 1. What it does ---------------------------------------------------------------------------------------------------


def test_1_1_what_you_see_is_what_you_sign() -> None:
    with approvals() as kit:
        view = kit.asked()
        for shown in ({"display": b"Pay 0.30 EUR to ann"}, {"request": OTHER}):
            with pytest.raises(Refused):
                kit.signed(view, **shown)
        other = b"Pay 0.30 EUR to ann"
        seen = kit.signed(view, display=other, display_sha256=sha256(other).digest())
        assert kit.refusal(seen) == "other_terms"
        assert kit.grant(view, kit.signed(view)).state is A.AVAILABLE


def test_1_2_a_key_is_changed_by_the_keys_that_count_now() -> None:
    with approvals() as kit:
        view, thief = kit.asked(), key("thief")
        stolen = someone("bob", Role.APPROVER, keys=(someone("thief", Role.APPROVER).keys[0],))
        trust = changed(kit, principals=tuple(stolen if one.name == "bob" else one for one in kit.trust.principals))
        for signers in ([thief], [thief, key("bob")], [key("dan"), thief]):
            assert kit.code(lambda: kit.follow(trust, *signers)) == "few_officers"
        assert kit.refusal(kit.signed(view, by=thief)) == "other_key"
        kit.follow(trust, key("dan"), key("ola"))
        assert kit.refusal(kit.signed(view)) == "other_key"
        assert kit.grant(view, kit.signed(view, by=thief)).state is A.AVAILABLE


def test_1_3_a_policy_is_changed_by_the_officers_and_open_approvals_are_void() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        kit.grant(view, kit.signed(view))
        one, two = kit.trust.policies
        trust = changed(kit, policies=(one, replace(two, people_needed=0)))
        ready = kit.asked("refund:18", policy_sha256=kit.two, approvals_needed=2)
        for approver in ("bob", "dan"):
            kit.grant(ready, kit.signed(ready, approver))
        claimed = kit.asked("refund:19", policy_sha256=kit.two, approvals_needed=2)
        for approver in ("bob", "dan"):
            kit.grant(claimed, kit.signed(claimed, approver))
        claimed = kit.move(E.CLAIM, claimed)
        assert kit.code(lambda: kit.follow(trust, key("bob"), key("bot"))) == "few_officers"
        kit.follow(trust, key("dan"), key("ola"))
        for approver in ("dan", "bot"):
            assert kit.refusal(kit.signed(view, approver)) == "unknown_policy"
        assert kit.look(view).state is A.PROPOSED
        assert kit.look(ready).state is A.AVAILABLE
        assert kit.code(lambda: kit.do(E.CLAIM, ready)) == "unknown_policy"
        assert kit.code(lambda: kit.do(E.PREPARE, claimed)) == "unknown_policy"
        assert kit.move(E.REVOKE, ready).state is A.REVOKED


def test_1_4_a_signature_for_something_else_is_no_approval() -> None:
    with approvals() as kit:
        view = kit.asked()
        statement = statement_bytes(kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE))
        login = seal("application/vnd.agent-run-ledger.login.v1+json", statement, [key("bob")])
        assert kit.refusal(envelope_bytes(login)) == "bad_envelope"
        renamed = replace(login, payload_type="application/vnd.agent-run-ledger.approval.v1+json")
        assert kit.refusal(envelope_bytes(renamed)) == "bad_signature"


def test_1_5_each_action_has_an_authorisation_of_its_own() -> None:
    with approvals() as kit:
        first, second = kit.asked("refund:17"), kit.asked("refund:18")
        moved = kit.signed(first, action_id=second.action_id)
        assert kit.refusal(moved) == "other_action"
        assert kit.grant(first, kit.signed(first)).state is A.AVAILABLE
        assert kit.refusal(moved) == "other_action"
        assert kit.look(second).state is A.PROPOSED


# -- 2. How it does it -------------------------------------------------------------------------------------------------


def test_2_1_the_ledger_decides_whatever_the_asker_sends() -> None:
    with approvals(begin=False) as kit:
        asked = {
            "other_count": {"policy_sha256": kit.two, "approvals_needed": 1},
            "unknown_policy": {"policy_sha256": b"p" * 32},
            "window_too_long": {"dispatch_before_ms": kit.now() + WINDOW_MS + 1},
        }
        before = {code: kit.asked(code, **terms) for code, terms in asked.items()}
        kit.begin()
        for code, terms in asked.items():
            assert kit.code(lambda: kit.asked("refund:1", **terms)) == code
            assert kit.refusal(kit.signed(before[code])) == code
        unknown = before["unknown_policy"]
        for data in (b"", b"{}", b"null", b'{"approved":true}', kit.signed(unknown)[:-1]):
            assert kit.refusal(data) == "bad_envelope"
        unsigned = json.loads(kit.signed(unknown))
        unsigned["signatures"] = []
        assert kit.refusal(json.dumps(unsigned).encode()) == "bad_envelope"


def test_2_2_who_may_approve_and_how_is_the_trust_files_and_not_the_senders() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        assert kit.refusal(kit.signed(view, "bot")) == "needs_people"
        assert kit.refusal(kit.signed(view, by=key("bot"))) == "other_key"
        single = kit.asked("refund:18")
        assert kit.refusal(kit.signed(single, "bot")) == "not_an_approver"
        weaker = kit.signed(view, policy_sha256=kit.one)
        assert kit.refusal(weaker) == "other_policy"


def test_2_3_what_is_approved_is_made_from_the_stored_bytes() -> None:
    with approvals() as kit:
        view = kit.asked()
        statement = kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE)
        assert statement.request_sha256 == sha256(kit.ledger.request(view.action_id)).digest()
        made_up = kit.signed(view, request=OTHER, request_sha256=sha256(OTHER).digest())
        assert kit.refusal(made_up) == "other_request"
        assert kit.ledger.request(view.action_id) == REQUEST


def test_2_4_wrong_signatures_never_add_up() -> None:
    with approvals() as kit:
        view = kit.asked()
        tree = json.loads(kit.signed(view))
        good = tree["signatures"][0]["sig"]
        for place in range(0, 80, 5):
            wrong = "A" if good[place] != "A" else "B"
            tree["signatures"][0]["sig"] = good[:place] + wrong + good[place + 1 :]
            assert kit.refusal(json.dumps(tree).encode()) == "bad_signature"
        assert kit.look(view).approvals == ()


def test_2_5_no_step_is_left_out_or_made_out_of_order() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        assert kit.code(lambda: kit.do(E.CLAIM, view)) == "proposed"
        view = kit.grant(view, kit.signed(view))
        assert kit.code(lambda: kit.do(E.CLAIM, view)) == "proposed"
        late = kit.signed(view, "ann")
        view = kit.move(E.CLAIM, kit.grant(view, kit.signed(view, "dan")))
        assert kit.refusal(late) == "claimed"
        assert kit.code(lambda: kit.do(E.HAND_OUT, view)) == "claimed"


def test_2_6_a_change_of_what_is_to_be_done_voids_what_was_approved() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        first, second = kit.signed(view), kit.signed(view, "dan")
        kit.grant(view, first)
        assert kit.code(lambda: kit.asked(request=OTHER)) == "key_taken"
        intent = kit.intent(
            request=OTHER,
            policy_sha256=kit.two,
            approvals_needed=2,
            display_sha256=sha256(DISPLAY).digest(),
        )
        after = kit.ledger.edit(ANN, view.action_id, intent)
        assert (after.state, after.approvals) == (A.PROPOSED, ())
        assert kit.refusal(first) == "replayed"
        assert kit.refusal(second) == "superseded"
        assert kit.refusal(replaced_in(second, after)) == "bad_signature"
        assert kit.refusal(kit.signed(view, "dan", action_id=after.action_id)) == "other_request"


def test_2_7_the_approval_that_travels_holds_no_byte_of_the_request() -> None:
    with approvals() as kit:
        view = kit.asked(request=b"IBAN DE02120300000000202051")
        data = kit.signed(view, request=b"IBAN DE02120300000000202051")
        payload = statement_bytes(kit.ledger.statement(view.action_id, approver="bob", nonce=NONCE))
        assert b"DE0212" not in data + payload
        assert DISPLAY not in data + payload


def test_2_8_what_is_carried_out_is_checked_once_more_and_is_what_was_approved() -> None:
    with approvals() as kit:
        view = kit.asked()
        view = kit.grant(view, kit.signed(view))
        assert kit.code(lambda: kit.do(E.CLAIM, view, request_sha256=sha256(OTHER).digest())) == "digest_mismatch"
        view = kit.move(E.PREPARE, kit.move(E.CLAIM, view))
        dispatch = kit.do(E.HAND_OUT, view)
        assert dispatch.request == REQUEST
        assert dispatch.permit.req == sha256(REQUEST).hexdigest()
        revoked = kit.asked("refund:18")
        revoked = kit.move(E.REVOKE, kit.grant(revoked, kit.signed(revoked)))
        assert kit.code(lambda: kit.do(E.CLAIM, revoked)) == "revoked"


def test_2_9_an_authorisation_counts_for_a_limited_time() -> None:
    with approvals() as kit:
        long_ms = kit.now() + WINDOW_MS + 1
        assert kit.code(lambda: kit.asked("refund:1", dispatch_before_ms=long_ms)) == "window_too_long"
        late, granted = kit.asked("refund:2"), kit.asked("refund:3")
        data = kit.signed(late)
        granted = kit.grant(granted, kit.signed(granted))
        kit.ticks.tick(WINDOW_MS)
        assert kit.refusal(data) == "expired"
        assert kit.code(lambda: kit.do(E.CLAIM, granted)) == "expired"
        kit.ticks.tick(KEY_ENDS_MS - kit.now() - 1)
        new = kit.asked("refund:4")
        kit.ticks.tick(1)
        assert kit.refusal(kit.signed(new)) == "key_expired"


def test_2_10_an_authorisation_is_unique_and_counts_once() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        data = kit.signed(view)
        kit.grant(view, data)
        assert kit.refusal(data) == "replayed"
        assert kit.refusal(kit.signed(view, "dan", nonce=b"another instance")) == "other_instance"
        assert kit.refusal(kit.signed(view, nonce=b"another instance")) == "other_instance"
        other = kit.asked("refund:18")
        assert kit.refusal(kit.signed(view, "dan", action_id=other.action_id)) == "other_action"
        assert kit.look(view).state is A.PROPOSED
        assert kit.grant(view, kit.signed(view, "dan")).approvals == ("bob", "dan")
        short = kit.asked("refund:19")
        with pytest.raises(Misuse, match="a nonce has 16 to 64 bytes"):
            kit.signed(short, nonce=b"17")


# -- Beside the numbers ------------------------------------------------------------------------------------------------


def test_an_authorisation_is_bound_to_its_approver_who_neither_asks_nor_carries_out() -> None:
    with approvals() as kit:
        view = kit.two_asked()
        assert kit.refusal(kit.signed(view, by=key("dan"))) == "other_key"
        assert kit.refusal(kit.signed(view, "eve")) == "unknown_principal"
        assert kit.refusal(kit.signed(view, "ola")) == "not_an_approver"
        assert kit.refusal(kit.signed(view, "ann")) == "approver_is_requester"
        assert kit.refusal(kit.signed(view, "exe", by=key("bob"))) == "other_key"
        by_bob = kit.asked("refund:18", executor="bob")
        assert kit.refusal(kit.signed(by_bob)) == "approver_is_executor"


def test_an_authorisation_of_another_ledger_or_epoch_does_not_count() -> None:
    with approvals() as kit, approvals() as other:
        view = kit.asked()
        assert kit.refusal(kit.signed(view, ledger_id=other.trust.ledger_id)) == "other_ledger"
        assert kit.refusal(other.signed(other.asked())) == "unknown_action"
        assert kit.code(lambda: kit.opened(other.signed_trust)) == "other_trust"
        assert kit.refusal(kit.signed(view, epoch=1)) == "old_epoch"
