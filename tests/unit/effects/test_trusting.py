"""Signed trust files: who has to have signed, and which one comes after which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_run_ledger.effects.trusting import cosign_trust, follow_trust, open_trust, sign_trust
from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.dsse import envelope_bytes
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.kernel.effects.approval import APPROVAL_TYPE
from agent_run_ledger.kernel.effects.trust import TRUST_TYPE, TrustFile, trust_bytes, trust_sha256
from agent_run_ledger.keys import seal
from tests.unit.effects.examples import MS
from tests.unit.effects.trust_examples import (
    DAN,
    KEY_BEGINS_MS,
    KEY_ENDS_MS,
    NOW,
    OLA,
    TRUST,
    R,
    key,
    principal,
    public,
    trust_of,
)

DIGEST = trust_sha256(TRUST)
OFFICERS = [key("dan"), key("ola")]
PIA = principal("pia", R.OFFICER)
NEXT = trust_of(serial=4, principals=(*(one for one in TRUST.principals if one != OLA), PIA))
"""The next file: pia is an officer in the place of ola."""


def opened(*names: str, trust: TrustFile = TRUST, now: Now = NOW, digest: bytes | None = DIGEST) -> frozenset[str]:
    data = sign_trust(trust, [key(name) for name in names])
    return open_trust(data, now=now, expected_sha256=digest).signers


def followed(*names: str, trust: TrustFile = NEXT) -> frozenset[str]:
    return follow_trust(sign_trust(trust, [key(name) for name in names]), now=NOW, before=TRUST).signers


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        ask()
    return refusal.value.code


def test_enough_officers_open_a_trust_file_of_a_known_digest() -> None:
    found = open_trust(sign_trust(TRUST, OFFICERS), now=NOW, expected_sha256=DIGEST)
    assert (trust_bytes(found.trust), found.sha256, found.signers) == (trust_bytes(TRUST), DIGEST, {"dan", "ola"})


def test_a_digest_that_nobody_knows_yet_is_returned() -> None:
    assert opened("dan", "ola", digest=None) == {"dan", "ola"}


def test_another_trust_file_is_refused_whoever_signed_it() -> None:
    assert refused(lambda: opened("dan", "ola", trust=trust_of(serial=4))) == "other_trust"


@pytest.mark.parametrize("names", [("dan",), ("dan", "bob"), ("dan", "eve"), ("bob", "eve")])
def test_too_few_officers_open_nothing(names: tuple[str, ...]) -> None:
    assert refused(lambda: opened(*names)) == "few_officers"


def test_two_keys_of_one_officer_are_one_officer() -> None:
    two = replace(DAN, keys=(public("dan"), public("dan's second")))
    trust = trust_of(principals=tuple(two if one == DAN else one for one in TRUST.principals))
    assert refused(lambda: opened("dan", "dan's second", trust=trust, digest=None)) == "few_officers"


@pytest.mark.parametrize("now", [Now(KEY_BEGINS_MS - 1, MS), Now(MS, KEY_ENDS_MS)])
def test_keys_that_do_not_count_now_open_nothing(now: Now) -> None:
    assert refused(lambda: opened("dan", "ola", now=now)) == "few_officers"


def test_a_signature_of_another_payload_opens_nothing() -> None:
    other = seal(TRUST_TYPE, trust_bytes(trust_of(serial=9)), OFFICERS)
    moved = envelope_bytes(replace(other, payload=trust_bytes(TRUST)))
    assert refused(lambda: open_trust(moved, now=NOW, expected_sha256=DIGEST)) == "few_officers"


def test_an_approval_is_no_trust_file() -> None:
    data = envelope_bytes(seal(APPROVAL_TYPE, trust_bytes(TRUST), OFFICERS))
    assert refused(lambda: open_trust(data, now=NOW, expected_sha256=DIGEST)) == "bad_envelope"


def test_what_is_signed_is_canonical() -> None:
    data = envelope_bytes(seal(TRUST_TYPE, trust_bytes(TRUST) + b"\n", OFFICERS))
    assert refused(lambda: open_trust(data, now=NOW, expected_sha256=DIGEST)) == "not_canonical"


def test_officers_sign_one_after_the_other() -> None:
    data = cosign_trust(sign_trust(TRUST, OFFICERS[:1]), OFFICERS[1])
    assert data == sign_trust(TRUST, OFFICERS)
    assert refused(lambda: cosign_trust(data, OFFICERS[1])) == "signed_already"


def test_who_is_an_officer_of_neither_file_cosigns_nothing() -> None:
    data, other = sign_trust(TRUST, OFFICERS[:1]), trust_of(serial=2)
    for before in (None, other):
        assert refused(lambda: cosign_trust(data, key("eve"), before=before)) == "not_an_officer"
        assert refused(lambda: cosign_trust(data, key("bob"), before=before)) == "not_an_officer"  # an approver


def test_nobody_cosigns_what_is_no_trust_file() -> None:
    data = envelope_bytes(seal(TRUST_TYPE, b"{}", OFFICERS[:1]))
    assert refused(lambda: cosign_trust(data, OFFICERS[1])) == "bad_trust"


def test_the_next_file_is_signed_by_the_officers_of_both() -> None:
    assert followed("dan", "ola", "pia") == {"dan", "ola", "pia"}
    assert refused(lambda: followed("dan", "pia")) == "few_officers"
    assert refused(lambda: followed("dan", "ola")) == "few_officers"


@pytest.mark.parametrize("serial", [2, 3])
def test_an_older_file_does_not_come_back(serial: int) -> None:
    assert refused(lambda: followed("dan", "ola", "pia", trust=replace(NEXT, serial=serial))) == "old_serial"


def test_the_file_of_another_ledger_follows_none() -> None:
    other = replace(NEXT, ledger_id=b"m" * 16)
    assert refused(lambda: followed("dan", "ola", "pia", trust=other)) == "other_ledger"


def test_an_officers_key_in_the_new_file_alone_does_not_count_for_the_old_one() -> None:
    taken = replace(OLA, keys=(public("eve"),))
    trust = trust_of(serial=4, principals=tuple(taken if one == OLA else one for one in TRUST.principals))
    assert refused(lambda: followed("dan", "eve", trust=trust)) == "few_officers"
