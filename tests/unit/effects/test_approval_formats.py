"""Trust files and approvals: what an earlier version signed is what this one signs, reads and verifies."""

from __future__ import annotations

import json

import pytest

from agent_run_ledger.effects.trusting import open_trust
from agent_run_ledger.effects.verifying import verify_approval
from agent_run_ledger.kernel.effects.trust import trust_bytes
from tests.unit.effects.approval_examples import LEDGER, NOW, TRUST, action, written
from tests.unit.effects.trust_examples import key
from tests.unit.kernel_formats import golden, worked_example


@pytest.mark.parametrize("name", ["trust", "approval_envelope"])
def test_what_was_signed_once_is_signed_now(name: str) -> None:
    assert written()[name] == golden(name)


def test_a_golden_approval_counts_under_the_golden_trust_file() -> None:
    (trust,), (approval,) = golden("trust"), golden("approval_envelope")
    opened = open_trust(trust["envelope"].encode(), now=NOW, expected_sha256=bytes.fromhex(trust["sha256"]))
    assert trust_bytes(opened.trust) == trust_bytes(TRUST)
    assert opened.signers == {"approver"}
    counts = verify_approval(approval["envelope"].encode(), opened.trust, ledger=LEDGER, action=action(), now=NOW)
    assert counts.signed_sha256.hex() == approval["sha256"]
    assert counts.approval_id.hex() == approval["approval_id"]


def test_the_pages_example_is_the_golden_one() -> None:
    (approval,) = golden("approval_envelope")
    assert worked_example("approval") == json.loads(approval["envelope"])


def test_the_key_of_the_examples_is_the_one_that_its_name_draws() -> None:
    (trust,) = golden("trust")
    assert key("approver").key_id == trust["key_id"]
    assert json.loads(trust["envelope"])["signatures"][0]["keyid"] == trust["key_id"]
