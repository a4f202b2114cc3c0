"""The trust file: each rule by name, its bytes and digests, and what a strict reader refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.canonical import MAX_INT, canonical
from agent_run_ledger.kernel.effects.principals import Principal
from agent_run_ledger.kernel.effects.trust import TrustFile, trust_bytes, trust_sha256
from agent_run_ledger.kernel.effects.trust_reader import MAX_TRUST_BYTES, read_trust, trust_from
from agent_run_ledger.kernel.effects.trust_rules import BadTrust
from tests.unit.effects.trust_examples import (
    ANN,
    AUTOMATIC,
    BOB,
    BOT,
    BOT_2,
    DAN,
    EXE,
    FINANCE,
    FINANCE_SHA,
    OLA,
    RULES,
    TRUST,
    TWO,
    R,
    policy,
    principal,
    public,
    trust_of,
)

EVERYBODY = TRUST.principals


def with_one(*more: Principal) -> Callable[[], TrustFile]:
    """The file with other principals, each in the place of the one of its name."""
    named = {one.name: one for one in (*EVERYBODY, *more)}
    return lambda: trust_of(principals=tuple(named.values()))


def with_policy(*policies: Any) -> Callable[[], TrustFile]:
    return lambda: trust_of(policies=policies)


REFUSED: dict[str, tuple[str, Callable[[], TrustFile]]] = {
    "a short ledger id": ("bad_ledger_id", lambda: trust_of(ledger_id=b"l" * 15)),
    "serial 0": ("bad_number", lambda: trust_of(serial=0)),
    "a serial that JSON cannot say": ("bad_number", lambda: trust_of(serial=MAX_INT + 1)),
    "no officer decides": ("bad_number", lambda: trust_of(officers_needed=0)),
    "no approval is needed": ("bad_number", with_policy(replace(FINANCE, approvals_needed=0))),
    "no window": ("bad_number", with_policy(replace(FINANCE, max_window_ms=0))),
    "fewer people than none": ("bad_number", with_policy(replace(FINANCE, people_needed=-1))),
    "more people than approvals": ("bad_number", with_policy(replace(FINANCE, people_needed=2))),
    "a name with a space": ("bad_name", with_one(principal("bob smith", R.APPROVER))),
    "a name of look-alikes": ("bad_name", with_one(principal("b\u043eb", R.APPROVER))),
    "a name with a line": ("bad_name", with_one(principal("bob\n", R.APPROVER))),
    "no name": ("bad_name", with_one(principal("", R.APPROVER))),
    "a long name": ("bad_name", with_one(principal("b" * 129, R.APPROVER))),
    "a policy's name": ("bad_name", with_policy(replace(FINANCE, name="fin ance"))),
    "a principal twice": ("principal_twice", lambda: trust_of(principals=(*EVERYBODY, principal("dan", R.REVOKER)))),
    "the same in other letters": ("principal_twice", with_one(principal("DAN", R.REVOKER))),
    "a policy twice": ("policy_twice", with_policy(FINANCE, replace(FINANCE, max_window_ms=7))),
    "a key of two principals": ("key_twice", with_one(principal("eve", R.APPROVER, keys=(public("bob"),)))),
    "a key twice of one": ("key_twice", with_one(replace(DAN, keys=(public("dan"), public("dan", 7))))),
    "a short key": ("bad_key", with_one(replace(DAN, keys=(replace(public("dan"), public=b"k" * 31),)))),
    "a key for which all can sign": (
        "bad_key",
        with_one(replace(DAN, keys=(replace(public("dan"), public=(1).to_bytes(32, "little")),))),
    ),
    "a key that never counts": ("bad_validity", with_one(replace(DAN, keys=(public("dan", 7, 7),)))),
    "a key without end": ("bad_validity", with_one(replace(DAN, keys=(public("dan", 7, MAX_INT + 1),)))),
    "no role": ("no_role", with_one(principal("eve"))),
    "an approver who executes": ("approver_is_executor", with_one(principal("eve", R.APPROVER, R.EXECUTOR))),
    "a reconciler who executes": ("reconciler_is_executor", with_one(principal("eve", R.RECONCILER, R.EXECUTOR))),
    "an approver without a key": ("no_key", with_one(replace(BOB, keys=()))),
    "an officer without a key": ("no_key", with_one(replace(OLA, keys=()))),
    "a program as officer": ("officer_is_no_person", with_one(principal("cron", R.OFFICER, kind=AUTOMATIC))),
    "a program without rules": ("no_rules", with_one(replace(BOT, rules_sha256=None))),
    "a program with half a digest": ("no_rules", with_one(replace(BOT, rules_sha256=b"r" * 31))),
    "a person with rules": ("needless_rules", with_one(replace(BOB, rules_sha256=RULES))),
    "an executor with rules": ("needless_rules", with_one(replace(EXE, rules_sha256=RULES))),
    "more officers needed than there are": ("few_officers", lambda: trust_of(officers_needed=3)),
    "an approver who is nobody": ("unknown_approver", with_policy(policy("p", 1, "eve"))),
    "an approver in other letters": ("unknown_approver", with_policy(policy("p", 1, "Bob"))),
    "an approver without the role": ("not_an_approver", with_policy(policy("p", 1, "ola"))),
    "m above n": ("few_approvers", with_policy(policy("p", 3, "bob", "dan"))),
    "no approver": ("few_approvers", with_policy(policy("p", 1))),
    "more people needed than there are": ("few_people", with_policy(policy("p", 2, "bob", "bot", people=2))),
    "programs cannot fill up": ("few_people", with_policy(policy("p", 3, "bob", "bot", "bot-2", people=2))),
    "one person short of m": ("few_people", with_policy(policy("p", 3, "bob", "dan", "bot", people=3))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_rule_refuses_by_its_code(name: str) -> None:
    code, made = REFUSED[name]
    with pytest.raises(BadTrust) as refusal:
        made()
    assert refusal.value.code == code
    assert refusal.value.path in str(refusal.value)


ACCEPTED = {
    "one person of everything": lambda: trust_of(
        principals=(principal("me", R.REQUESTER, R.APPROVER, R.OFFICER, R.RECONCILER, R.REVOKER, R.OPERATOR),),
        policies=(policy("mine", 1, "me", people=1),),
        officers_needed=1,
    ),
    "programs alone": with_policy(policy("p", 2, "bot", "bot-2")),
    "a person and as many programs as there is room for": with_policy(policy("p", 2, "bob", "bot", people=1)),
    "no policy yet": with_policy(),
    "the longest name": with_one(principal("b" * 128, R.REVOKER)),
    "keys one after the other": with_one(replace(DAN, keys=(public("dan", 1, 2), public("dan 2", 2, 3)))),
    "an executor and a requester without keys": with_one(principal("eve", R.REQUESTER, R.EXECUTOR, keys=())),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_keeps_the_rules_is_a_trust_file_and_comes_back(name: str) -> None:
    trust = ACCEPTED[name]()
    assert trust_bytes(trust_from(trust_bytes(trust))) == trust_bytes(trust)


def test_the_bytes_do_not_depend_on_the_order_of_writing() -> None:
    bob = replace(BOB, keys=BOB.keys[::-1])
    other = trust_of(principals=(EXE, BOT_2, BOT, OLA, DAN, bob, ANN), policies=(TWO, FINANCE))
    assert trust_bytes(other) == trust_bytes(TRUST)
    assert trust_bytes(TRUST) == canonical(json.loads(trust_bytes(TRUST)))


def test_the_digest_has_its_domain_before_the_bytes() -> None:
    assert trust_sha256(TRUST) == sha256(b"arl/trust/v1\n" + trust_bytes(TRUST)).digest()


def test_the_digest_of_a_policy_is_over_what_it_says_and_the_rules_of_its_programs() -> None:
    said = {
        "approvals_needed": 1,
        "approvers": [
            {"name": "bob", "rules_sha256": None},
            {"name": "bot", "rules_sha256": RULES.hex()},
            {"name": "dan", "rules_sha256": None},
        ],
        "max_window_ms": FINANCE.max_window_ms,
        "name": "finance",
        "people_needed": 0,
        "v": 1,
    }
    written = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    assert sha256(b"arl/approval-policy/v1\n" + written).digest() == FINANCE_SHA


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "finance-2"},
        {"approvals_needed": 2},
        {"people_needed": 1},
        {"approvers": frozenset({"bob", "dan"})},
        {"max_window_ms": 7},
    ],
)
def test_a_changed_policy_has_another_digest(changes: dict[str, Any]) -> None:
    assert TRUST.policy_sha256(replace(FINANCE, **changes)) != FINANCE_SHA


def test_other_rules_of_a_program_are_another_policy_and_other_keys_are_not() -> None:
    rules = with_one(replace(BOT, rules_sha256=sha256(b"below 1000 EUR").digest()))()
    assert rules.policy(FINANCE_SHA) is None
    keys = with_one(replace(BOB, keys=(public("bob's next"),)))()
    assert keys.policy(FINANCE_SHA) == FINANCE


def test_somebody_is_found_by_exactly_their_name() -> None:
    assert TRUST.principal("bob") == BOB
    assert TRUST.principal("Bob") is None
    assert [one.name for one in TRUST.officers] == ["dan", "ola"]


Change = Callable[[dict[str, Any]], object]
WRITTEN: dict[str, tuple[str, Change]] = {
    "another version": ("bad_trust", lambda tree: tree.update(v=2)),
    "a version that is no number": ("bad_trust", lambda tree: tree.update(v=True)),
    "a part less": ("bad_trust", lambda tree: tree.pop("policies")),
    "a part more": ("bad_trust", lambda tree: tree.update(note="")),
    "a key with more": ("bad_trust", lambda tree: tree["principals"][1]["keys"][0].update(note="")),
    "a principal with less": ("bad_trust", lambda tree: tree["principals"][1].pop("rules_sha256")),
    "a policy with more": ("bad_trust", lambda tree: tree["policies"][0].update(veto=[])),
    "a number as text": ("bad_trust", lambda tree: tree.update(serial="3")),
    "a key in capitals": (
        "bad_trust",
        lambda tree: tree["principals"][1]["keys"][0].update(public_key=public("bob").public.hex().upper()),
    ),
    "a role that is none": ("unknown_role", lambda tree: tree["principals"][1].update(roles=["boss"])),
    "a role twice": ("bad_trust", lambda tree: tree["principals"][1].update(roles=["approver", "approver"])),
    "an approver twice": ("bad_trust", lambda tree: tree["policies"][0].update(approvers=["bob", "bob"])),
    "a kind that is none": ("unknown_kind", lambda tree: tree["principals"][1].update(kind="people")),
    "no list of roles": ("bad_trust", lambda tree: tree["principals"][1].update(roles="approver")),
    "a broken rule": ("no_role", lambda tree: tree["principals"][0].update(roles=[])),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_nearly_a_trust_file_is_none(name: str) -> None:
    code, change = WRITTEN[name]
    tree = json.loads(trust_bytes(TRUST))
    change(tree)
    with pytest.raises(BadTrust) as refusal:
        read_trust(json.dumps(tree).encode())
    assert refusal.value.code == code


def test_a_draft_may_be_written_as_people_write_and_what_is_signed_may_not() -> None:
    tree = json.loads(trust_bytes(TRUST))
    tree["principals"].reverse()
    draft = json.dumps(tree, indent=2).encode()
    assert trust_bytes(read_trust(draft)) == trust_bytes(TRUST)
    with pytest.raises(BadTrust) as refusal:
        trust_from(draft)
    assert refusal.value.code == "not_canonical"
    assert trust_bytes(trust_from(trust_bytes(TRUST))) == trust_bytes(TRUST)


def test_a_trust_file_has_a_size() -> None:
    with pytest.raises(BadTrust, match="at most"):
        read_trust(trust_bytes(TRUST) + b" " * MAX_TRUST_BYTES)


@given(st.integers(0, len(trust_bytes(TRUST)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_another_digest(at: int, by: int) -> None:
    data = bytearray(trust_bytes(TRUST))
    data[at] ^= by
    try:
        changed = trust_from(bytes(data))
    except BadTrust:
        return
    assert trust_sha256(changed) != trust_sha256(TRUST)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})


@given(st.sampled_from(["serial", "v", "ledger_id", "principals", "policies", "officers_needed"]), LEAVES)
def test_other_kinds_of_values_are_refused_by_the_one_error(name: str, value: object) -> None:
    tree = json.loads(trust_bytes(TRUST))
    tree[name] = value
    try:
        trust = read_trust(json.dumps(tree).encode())
    except BadTrust:
        return
    assert json.loads(trust_bytes(trust)) == tree
