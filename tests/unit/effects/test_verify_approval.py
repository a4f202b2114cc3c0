"""Each check of a signed approval by name, in its order, and hostile envelopes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.effects.signing import sign_approval
from agent_run_ledger.effects.verifying import CHECKS, verify_approval
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import envelope_bytes
from agent_run_ledger.kernel.effects import Accepted, Action, Approval, Now, Role, TargetClass
from agent_run_ledger.kernel.effects.approval import (
    APPROVAL_TYPE,
    MAX_STATEMENT_BYTES,
    BadStatement,
    VerifiedApproval,
    statement_bytes,
    statement_from,
    statement_of,
    statement_sha256,
)
from agent_run_ledger.kernel.effects.commands import Approve
from agent_run_ledger.kernel.effects.reducer import decide
from agent_run_ledger.keys import seal
from tests.unit.effects.examples import END_MS, LEDGER, MS, actor
from tests.unit.effects.trust_examples import (
    BOB,
    DISPLAY,
    FINANCE,
    FINANCE_SHA,
    KEY_BEGINS_MS,
    KEY_ENDS_MS,
    NONCE,
    NOW,
    REQUEST,
    TRUST,
    TWO_SHA,
    asked,
    key,
    public,
    signed,
    trust_of,
)

ACTION = asked()
STATEMENT = statement_of(LEDGER, ACTION, approver="bob", nonce=NONCE)
SIGNED = signed(ACTION)


def verified(data: bytes, action: Action = ACTION, **changes: Any) -> VerifiedApproval:
    settings: dict[str, Any] = {"ledger": LEDGER, "now": NOW, **changes}
    return verify_approval(data, settings.pop("trust", TRUST), action=action, **settings)


def counted(principal: str, *, nonce: bytes = NONCE, digest: bytes = b"x" * 32) -> Approval:
    """An approval that counts already."""
    return Approval(approval_id=b"a", principal=principal, epoch=0, nonce=nonce, statement_sha256=digest)


def test_an_approval_counts_as_its_signer_made_it() -> None:
    approval = verified(signed(ACTION))
    assert approval.statement == STATEMENT
    assert approval.signed_sha256 == statement_sha256(STATEMENT)
    assert approval.principal == "bob"
    assert approval.approval_id == statement_sha256(STATEMENT)[:16]


def test_what_counts_passes_the_rules_of_the_ledger() -> None:
    command = Approve(
        actor=actor("bob", Role.APPROVER), now=NOW, action_id=ACTION.action_id, approval=verified(signed(ACTION))
    )
    assert isinstance(decide(LEDGER, (ACTION,), command), Accepted)


def _about(**changes: Any) -> Callable[[], object]:
    """An approval over a statement that differs from what is asked about."""
    return lambda: verified(signed(ACTION, **changes))


def _with_terms(**changes: Any) -> Callable[[], object]:
    """An approval of an action under other terms."""
    return lambda: verified(signed(asked(**changes)), asked(**changes))


def _two(approver: str, *before: Approval) -> Callable[[], object]:
    """An approval under the policy of two, after others."""
    action = replace(asked(TWO_SHA), approvals=before)
    return lambda: verified(signed(action, approver), action)


REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "other_trust": ("other_trust", lambda: verified(signed(ACTION), trust=trust_of(ledger_id=b"m" * 16))),
    "two signatures": (
        "one_signature",
        lambda: verified(envelope_bytes(seal(APPROVAL_TYPE, statement_bytes(STATEMENT), [key("bob"), key("dan")]))),
    ),
    "unknown_principal": ("unknown_principal", lambda: verified(signed(ACTION, "eve"))),
    "another's key": ("other_key", lambda: verified(signed(ACTION, by=key("dan")))),
    "a key of nobody": ("other_key", lambda: verified(signed(ACTION, by=key("eve")))),
    "key_not_yet_valid": ("key_not_yet_valid", lambda: verified(signed(ACTION, by=key("bob's second")))),
    "key_expired": ("key_expired", lambda: verified(signed(ACTION), now=Now(MS, KEY_ENDS_MS))),
    "a signature over other bytes": (
        "bad_signature",
        lambda: verified(_moved(SIGNED, signed(ACTION, epoch=1))),
    ),
    "other_ledger": ("other_ledger", _about(ledger_id=b"m" * 16)),
    "another epoch": ("old_epoch", _about(epoch=1)),
    "an action of an older epoch": (
        "old_epoch",
        lambda: verified(signed(ACTION, epoch=1), ledger=replace(LEDGER, epoch=1)),
    ),
    "the epoch of the action only": ("old_epoch", lambda: verified(signed(ACTION), ledger=replace(LEDGER, epoch=1))),
    "another key of an action": ("other_action", _about(action_key="refund:18")),
    "another member": ("other_action", _about(action_id=b"another member")),
    "other_request": ("other_request", _about(request_sha256=b"s" * 32)),
    "other_policy": ("other_policy", _about(policy_sha256=TWO_SHA)),
    "a window that begins sooner": ("other_window", _about(not_before_ms=0)),
    "a window that ends later": ("other_window", _about(dispatch_before_ms=END_MS + 1)),
    "another executor": ("other_terms", _about(executor="eve")),
    "another audience": ("other_terms", _about(audience="https://other.example")),
    "another class": ("other_terms", _about(target_class=TargetClass.I)),
    "an end by time that is not asked for": ("other_terms", _about(checks_expiry=True)),
    "another precondition": ("other_terms", _about(preconditions=())),
    "another display": ("other_terms", _about(display_sha256=b"e" * 32)),
    "another requester": ("other_terms", _about(requester="eve")),
    "unknown_policy": ("unknown_policy", _with_terms(policy_sha256=b"p" * 32)),
    "not_an_approver": ("not_an_approver", lambda: verified(signed(ACTION, "ann"))),
    "an officer": ("not_an_approver", lambda: verified(signed(ACTION, "ola"))),
    "fewer approvals than the policy wants": (
        "other_count",
        lambda: verified(signed(asked(TWO_SHA, approvals_needed=1)), asked(TWO_SHA, approvals_needed=1)),
    ),
    "more approvals than the policy wants": ("other_count", _with_terms(approvals_needed=2)),
    "a second program": ("needs_people", _two("bot-2", counted("bot"))),
    "a program after somebody who is gone": ("needs_people", _two("bot", counted("gone"))),
    "window_too_long": (
        "window_too_long",
        _with_terms(not_before_ms=-1, dispatch_before_ms=FINANCE.max_window_ms),
    ),
    "expired": ("expired", lambda: verified(signed(ACTION), now=Now(MS, END_MS))),
    "short_nonce": ("short_nonce", lambda: verified(signed(ACTION, nonce=b"n" * 15))),
    "replayed": (
        "replayed",
        _two(
            "bob",
            counted("bob", digest=statement_sha256(statement_of(LEDGER, asked(TWO_SHA), approver="bob", nonce=NONCE))),
        ),
    ),
    "other_instance": ("other_instance", _two("bob", counted("dan", nonce=b"another instance"))),
}


def _moved(data: bytes, other: bytes) -> bytes:
    """An envelope with the signature of another one."""
    tree = json.loads(data)
    tree["signatures"] = json.loads(other)["signatures"]
    return json.dumps(tree).encode()


@pytest.mark.parametrize("name", REFUSED)
def test_each_check_refuses_by_its_code(name: str) -> None:
    code, ask = REFUSED[name]
    with pytest.raises(Refused) as refusal:
        ask()
    assert refusal.value.code == code


def test_no_check_is_without_a_refusal() -> None:
    assert {code for code, _ in REFUSED.values()} == {check.code for check in CHECKS}


def test_the_edges_are_within() -> None:
    for now in (Now(KEY_BEGINS_MS, MS), Now(MS, END_MS - 1)):
        assert verified(signed(ACTION), now=now)
    with pytest.raises(Refused, match="does not count yet"):
        verified(signed(ACTION), now=Now(KEY_BEGINS_MS - 1, MS))
    trust = trust_of(
        principals=tuple(
            replace(one, keys=(public("bob", 0, MS + 1),)) if one == BOB else one for one in TRUST.principals
        )
    )
    assert verified(signed(ACTION), trust=trust)
    with pytest.raises(Refused, match="counts no more"):
        verified(signed(ACTION), trust=trust, now=Now(MS, MS + 1))
    longest = asked(not_before_ms=0, dispatch_before_ms=FINANCE.max_window_ms)
    assert verified(signed(longest), longest)
    assert verified(signed(ACTION, nonce=b"n" * 16))


@pytest.mark.parametrize(
    ("approver", "before"), [("bot", ()), ("bot", ("bob",)), ("bob", ("bot",)), ("dan", ("bob",)), ("bob", ())]
)
def test_programs_and_people_add_up(approver: str, before: tuple[str, ...]) -> None:
    assert _two(approver, *(counted(one) for one in before))()


def test_each_key_of_somebody_counts_in_its_time() -> None:
    later = Now(MS + 1_000, MS + 1_000)
    assert verified(signed(ACTION, by=key("bob's second")), now=later).approval_id == (
        verified(signed(ACTION), now=later).approval_id
    )


def test_who_is_taken_out_of_the_trust_file_approves_no_more() -> None:
    without = trust_of(
        principals=tuple(one for one in TRUST.principals if one != BOB),
        policies=(replace(FINANCE, approvers=frozenset({"dan", "bot"})),),
    )
    with pytest.raises(Refused) as refusal:
        verified(signed(ACTION), trust=without)
    assert refusal.value.code == "unknown_principal"


def test_who_is_taken_out_of_a_policy_approves_under_its_old_digest_no_more() -> None:
    changed = trust_of(policies=(replace(FINANCE, approvers=frozenset({"dan", "bot"})),))
    with pytest.raises(Refused) as refusal:
        verified(signed(ACTION), trust=changed)
    assert refusal.value.code == "unknown_policy"


def test_the_approver_signs_what_was_shown_and_nothing_else() -> None:
    made = sign_approval(STATEMENT, key("bob"), request=REQUEST, display=DISPLAY)
    assert made == signed(ACTION)
    for code, shown in (
        ("other_request", {"request": REQUEST + b" ", "display": DISPLAY}),
        ("other_display", {"request": REQUEST, "display": DISPLAY + b"."}),
    ):
        with pytest.raises(Refused) as refusal:
            sign_approval(STATEMENT, key("bob"), **shown)
        assert refusal.value.code == code


# -- the statement's own bytes ----------------------------------------------------------------------------------------


def test_a_statement_comes_back() -> None:
    assert statement_from(statement_bytes(STATEMENT)) == STATEMENT


def tree() -> dict[str, Any]:
    held: dict[str, Any] = json.loads(statement_bytes(STATEMENT))
    return held


def compact(held: object) -> bytes:
    return json.dumps(held, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("name", [*tree()])
def test_a_statement_lacks_nothing(name: str) -> None:
    held = tree()
    del held[name]
    with pytest.raises(BadStatement):
        statement_from(compact(held))


FORGED: dict[str, bytes] = {
    "more": compact({**tree(), "zzz": 1}),
    "another version": compact({**tree(), "v": 2}),
    "a version that is true": compact({**tree(), "v": True}),
    "spaces": json.dumps(tree(), sort_keys=True).encode(),
    "another order": json.dumps(dict(reversed(tree().items())), separators=(",", ":")).encode(),
    "capitals": compact({**tree(), "nonce": NONCE.hex().upper()}),
    "a triple": compact({**tree(), "preconditions": [["a", "b", "c"]]}),
    "a pair of others": compact({**tree(), "preconditions": [["a", 1]]}),
    "a float": compact({**tree(), "epoch": 0.0}),
    "text for a number": compact({**tree(), "epoch": "0"}),
    "a class that is none": compact({**tree(), "target_class": "z"}),
    "a class in capitals": compact({**tree(), "target_class": "V"}),
    "a number for a truth": compact({**tree(), "checks_expiry": 0}),
    "half a character": compact({**tree(), "requester": "\ud800"}),
    "an escape that is none of RFC 8785": compact({**tree(), "requester": "é"}),
    "a key twice": compact(tree()).replace(b'"v":1', b'"v":1,"v":1'),
    "too much": compact({**tree(), "requester": "a" * MAX_STATEMENT_BYTES}),
    "no object": b"[]",
    "nothing": b"",
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_nearly_a_statement_is_refused_whoever_signed_it(name: str) -> None:
    with pytest.raises(BadStatement) as refusal:
        verified(envelope_bytes(seal(APPROVAL_TYPE, FORGED[name], [key("bob")])))
    assert refusal.value.code == "bad_statement"


def test_who_reads_another_version_is_told_so() -> None:
    with pytest.raises(BadStatement, match="its version is 2"):
        statement_from(FORGED["another version"])


def test_a_signature_of_another_type_is_none() -> None:
    other = seal("application/vnd.agent-run-ledger.login.v1+json", statement_bytes(STATEMENT), [key("bob")])
    with pytest.raises(Refused) as refusal:
        verified(envelope_bytes(other))
    assert refusal.value.code == "bad_envelope"
    with pytest.raises(Refused) as refusal:
        verified(envelope_bytes(replace(other, payload_type=APPROVAL_TYPE)))
    assert refusal.value.code == "bad_signature"


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        verified(data)


@given(st.integers(0, len(SIGNED) - 1), st.integers(0, 7))
def test_one_flipped_bit_is_refused_or_leaves_the_statement(at: int, bit: int) -> None:
    data = bytearray(SIGNED)
    data[at] ^= 1 << bit
    try:
        approval = verified(bytes(data))
    except Refused:
        return
    assert approval.statement == STATEMENT


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "action_key": TEXTS,
        "executor": TEXTS,
        "audience": TEXTS,
        "requester": TEXTS,
        "epoch": st.integers(-2, 2),
        "not_before_ms": st.integers(0, 2**53 - 1),
        "dispatch_before_ms": st.integers(0, 2**53 - 1),
        "request_sha256": st.binary(max_size=33),
        "policy_sha256": st.sampled_from([FINANCE_SHA, TWO_SHA, b""]),
        "ledger_id": st.binary(max_size=17),
        "preconditions": st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    },
)


@given(CHANGES)
def test_an_approver_who_signs_another_statement_approves_nothing_here(changes: dict[str, Any]) -> None:
    statement = replace(STATEMENT, **changes)
    assert statement_from(statement_bytes(statement)) == statement
    data = signed(ACTION, **changes)
    if statement == STATEMENT:
        assert verified(data).statement == STATEMENT
    else:
        with pytest.raises(Refused):
            verified(data)
