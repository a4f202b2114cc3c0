"""What approvers sign: the canonical bytes, the digest, and how approvals of one instance add up."""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256

import pytest

from agent_run_ledger.kernel.canonical import NotCanonical
from agent_run_ledger.kernel.effects import Rejected, Role
from agent_run_ledger.kernel.effects.approval import Statement, statement_bytes, statement_of, statement_sha256
from agent_run_ledger.kernel.effects.states import Event
from tests.unit.effects.examples import LEDGER, A, Asked, actor, approval_of, example, row

STATEMENT = statement_of(LEDGER, row(A.PROPOSED), approver="bob", nonce=b"n")
# Written by hand from the format: RFC 8785, keys sorted, ids and digests in hex, preconditions as pairs in their order.
BYTES = (
    '{"action_id":"6669727374206d656d626572","action_key":"refund:17","approver":"bob",'
    '"audience":"https://pay.example","checks_expiry":false,"dispatch_before_ms":200000,"display_sha256":"'
    + "64"
    * 32
    + '",'
    '"epoch":0,"executor":"exe","ledger_id":"' + "6c" * 16 + '","nonce":"6e","not_before_ms":1000,'
    '"policy_sha256":"' + "70" * 32 + '","preconditions":[["uid","7"]],"request_sha256":"' + "72" * 32 + '",'
    '"requester":"ann","target_class":"v","v":1}'
)


def test_the_bytes_of_a_statement_are_those_of_the_format() -> None:
    assert statement_bytes(STATEMENT).decode() == BYTES


def test_the_digest_has_its_domain_before_the_bytes() -> None:
    assert statement_sha256(STATEMENT) == sha256(b"arl/approval/v1\n" + BYTES.encode()).digest()


@pytest.mark.parametrize("name", [field.name for field in fields(Statement)])
def test_every_field_is_signed(name: str) -> None:
    value = getattr(STATEMENT, name)
    other = value + 1 if isinstance(value, int) else value + value
    assert statement_sha256(replace(STATEMENT, **{name: other})) != statement_sha256(STATEMENT)


def test_text_that_json_cannot_say_is_no_statement() -> None:
    with pytest.raises(NotCanonical):
        statement_bytes(replace(STATEMENT, requester="\ud800"))


def test_an_action_is_available_with_the_last_of_the_approvals_it_needs() -> None:
    asked = example(Event.APPROVE).terms_with(approvals_needed=2)
    first = asked.accepted()
    assert (first.old, first.new) == (A.PROPOSED, A.PROPOSED)
    (once,) = first.rows
    again = replace(asked, members=(once,))
    assert isinstance(again.decided(), Rejected)
    second = by("dan", again).accepted()
    assert (second.old, second.new) == (A.PROPOSED, A.AVAILABLE)
    assert [one.principal for one in second.rows[0].approvals] == ["bob", "dan"]
    assert {one.epoch for one in second.rows[0].approvals} == {0}


def test_an_approval_keeps_the_digest_that_was_signed() -> None:
    (changed,) = example(Event.APPROVE).accepted().rows
    assert changed.approvals[0].statement_sha256 == statement_sha256(STATEMENT)


def by(approver: str, asked: Asked) -> Asked:
    """The same by another approver, for what is asked about now."""
    approval = approval_of(asked.ledger, asked.members[-1], approver)
    return asked.with_(approval=approval, actor=actor(approver, Role.APPROVER))


def test_who_edits_is_the_requester_of_what_comes_of_it() -> None:
    old, new = example(Event.EDIT).accepted().rows
    assert (old.state, new.state, new.requester, new.replaces) == (A.SUPERSEDED, A.PROPOSED, "bob", old.action_id)
    asked = replace(example(Event.APPROVE), members=(old, new)).with_(action_id=new.action_id)
    refused = by("bob", asked).decided()
    assert isinstance(refused, Rejected)
    assert refused.code == "approver_is_requester"
    assert by("dan", asked).accepted().new is A.AVAILABLE
